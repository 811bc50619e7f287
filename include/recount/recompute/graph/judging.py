"""The stream time by which an operator judges each record, at the record's own offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from recount.recompute.graph.rows import CARRIED, OFFSET, PARTITION, PLACE, TIME, TOPIC

STREAM_TIME = "__stream_time_ms"


def refused(judging: Sequence[tuple[DataFrame, Column, Column]], above: Sequence[DataFrame] = ()) -> DataFrame:
    """The places of records that do not advance the stream time of an operator: those without the key that it needs.

    ``judging`` has of each input the rows, whether one lacks the key, and whether one is judged; ``above`` the places
    that operators further up refused. Of the rows that a flat-map made of one record, one that is judged is enough.
    """
    said = [
        frame.where(F.col(OFFSET).isNotNull()).select(*PLACE, lacks.alias("__lacks"), judged.alias("__judged"))
        for frame, lacks, judged in judging
    ]
    said += [frame.select(*PLACE, F.lit(True).alias("__lacks"), F.lit(False).alias("__judged")) for frame in above]
    rows = said[0]
    for other in said[1:]:
        rows = rows.union(other)
    found = rows.groupBy(*PLACE).agg(F.bool_or("__lacks").alias("__lacks"), F.bool_or("__judged").alias("__judged"))
    return found.where(F.col("__lacks") & ~F.coalesce(F.col("__judged"), F.lit(False))).select(
        *PLACE, F.lit(True).alias("__refused")
    )


def stream_times(
    entries: DataFrame, without: DataFrame, stood: Mapping[tuple[str, int], int], *, before: bool = False
) -> DataFrame:
    """Stream time at every place: the largest event time of the partition up to it, passing over ``without``.

    The record itself counts, unless ``before`` asks for the stream time that it found. ``stood`` has what partitions
    had reached before the first of ``entries``. Null: nothing advanced it yet.
    """
    last = -1 if before else Window.currentRow
    so_far = Window.partitionBy(TOPIC, PARTITION).orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, last)
    advancing = F.when(F.col("__refused").isNull(), F.col(TIME))
    reached = F.max(advancing).over(so_far)
    if stood:
        known = {f"{topic}-{partition}": time_ms for (topic, partition), time_ms in stood.items()}
        at_first = F.create_map(*(F.lit(part) for one in known.items() for part in one))
        partition = F.concat(TOPIC, F.lit("-"), F.col(PARTITION).cast("string"))
        reached = F.greatest(reached, F.try_element_at(at_first, partition))
    timed = entries.join(without, list(PLACE), "left").withColumn(STREAM_TIME, reached)
    return timed.select(*PLACE, STREAM_TIME)


def judged(frame: DataFrame, times: DataFrame | None) -> DataFrame:
    """``frame`` with ``STREAM_TIME``: what a row carries, else that of ``times`` at its place.

    It is null for a derived row and, with ``times`` None, for all: nothing is late.
    """
    if times is None:
        return frame.withColumn(STREAM_TIME, F.lit(None).cast("long"))
    timed = frame.join(times, list(PLACE), "left")
    return timed.withColumn(STREAM_TIME, F.coalesce(CARRIED, STREAM_TIME))


def held_back(timed: DataFrame) -> DataFrame:
    """Judged rows as they go on from an operator that holds rows back: they are judged alike further down."""
    return timed.withColumn(CARRIED, F.col(STREAM_TIME)).drop(STREAM_TIME)
