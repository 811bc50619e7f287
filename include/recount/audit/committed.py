"""Committed records of a topic that Recount writes, with their headers, for comparison."""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.recompute.log import Ranges


def committed_records(session: SparkSession, bootstrap_servers: str, topic: str, ranges: Ranges) -> DataFrame | None:
    """What a read_committed consumer finds in ``ranges``, as Spark's Kafka source has it; None for empty ranges."""
    spans = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
    if not spans:
        return None
    starts, ends = (json.dumps({topic: {str(p): span[end] for p, span in spans.items()}}) for end in (0, 1))
    return (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("assign", json.dumps({topic: sorted(spans)}))
        .option("startingOffsets", starts)
        .option("endingOffsets", ends)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.fetch.max.wait.ms", "20")  # a range ends in a transaction marker, of which a fetch tells nothing
        .option("includeHeaders", "true")
        .load()
    )


def header(name: str) -> Column:
    """The value of the last header called ``name``, as text; null where there is none."""
    mine = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(mine, F.lit(-1))["value"].cast("string")
