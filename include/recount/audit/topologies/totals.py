"""What became of the records of each source partition, as the recompute has it."""

from __future__ import annotations

from pyspark.sql import functions as F

from recount.audit.ledger import Ledger
from recount.recompute.graph.recomputed import Recomputed
from recount.recompute.graph.rows import PARTITION, TIME
from recount.recompute.recomputation import PartitionTotals

_COLUMNS = {
    "counted": "counted",
    "late": "late",
    "filtered": "filtered",
    "null key": "null_key",
    "null value": "null_value",
    "deduplicated": "deduplicated",
    "dead-lettered": "dead_lettered",
}


def totals_by_topic(truth: Recomputed, ledger: Ledger) -> dict[str, tuple[PartitionTotals, ...]]:
    """The totals of every partition that ``ledger`` names, those of which nothing was read included."""
    counted = truth.fates.groupBy("topic", "partition", "fate").agg(F.count("*").alias("n")).collect()
    fates: dict[tuple[str, int], dict[str, int]] = {}
    for row in counted:
        fates.setdefault((row.topic, row.partition), {})[_COLUMNS[row.fate]] = row.n
    times = {
        (topic, row[PARTITION]): row[TIME]
        for topic, entries in truth.entries.items()
        for row in entries.groupBy(PARTITION).agg(F.max(TIME).alias(TIME)).collect()
    }
    return {
        topic: tuple(
            _totals(partition, span, fates.get((topic, partition), {}), times.get((topic, partition)))
            for partition, span in ranges.items()
        )
        for topic, ranges in ledger.ranges.items()
    }


def _totals(partition: int, span: tuple[int, int], fates: dict[str, int], time_ms: int | None) -> PartitionTotals:
    return PartitionTotals(
        partition=partition,
        start=span[0],
        end=span[1],
        records=sum(fates.values()),
        stream_time_ms=time_ms,
        **{column: fates.get(column, 0) for column in _COLUMNS.values()},
    )
