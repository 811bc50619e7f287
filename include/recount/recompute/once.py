"""Frames that are computed once, of which Spark forgets how they were made, and frames of one task."""

from __future__ import annotations

from pyspark.sql import DataFrame


def once(frame: DataFrame) -> DataFrame:
    """``frame``, computed when it is first read, and kept by Spark until nobody refers to it any more.

    Unlike ``persist`` this cuts the plan: with a persisted frame Spark copies and compares the whole plan that led to
    it in each query that reads it, which takes seconds and gigabytes where a topology was recomputed and lined up.
    """
    checkpoint = in_one_task(frame).localCheckpoint(eager=False)
    # columns of their own: Spark cannot rename those of a checkpoint where it meets the frame that it was made of
    return checkpoint.toDF(*checkpoint.columns)


def in_one_task(frame: DataFrame) -> DataFrame:
    """``frame`` in one partition where the session is one for few rows, which shuffles into one.

    Spark knows of such frames that they need no shuffle to be grouped or joined, and sends fewer tasks: in an audit of
    few records these cost more than what they do.
    """
    few = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
    return frame.coalesce(1) if few else frame
