"""What became of the records of each source partition, as the recompute has it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import functions as F

from recount.audit.ledger import Ledger
from recount.recompute.graph.recomputed import Recomputed
from recount.recompute.graph.rows import PARTITION, TIME
from recount.recompute.recomputation import PartitionTotals

_COLUMNS = {
    "counted": "counted",
    "late": "late",
    "filtered": "filtered",
    "waiting": "waiting",
    "null key": "null_key",
    "null value": "null_value",
    "deduplicated": "deduplicated",
    "dead-lettered": "dead_lettered",
}

_At = tuple[str, int]


def totals_by_topic(
    truth: Recomputed, ledger: Ledger, before_ms: Mapping[_At, int | None]
) -> dict[str, tuple[PartitionTotals, ...]]:
    """The totals of every partition that ``ledger`` names, those of which nothing was read included.

    ``before_ms`` are the stream times of topics' partitions before the batches of ``ledger``.
    """
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
            _totals(partition, span, fates.get((topic, partition), {}), _latest(times, before_ms, (topic, partition)))
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


def _latest(times: Mapping[_At, int], before_ms: Mapping[_At, int | None], at: _At) -> int | None:
    known = [time_ms for time_ms in (times.get(at), before_ms.get(at)) if time_ms is not None]
    return max(known, default=None)
