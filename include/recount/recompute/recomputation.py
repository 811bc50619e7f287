"""The recompute of a stretch of the log: what must be there, what would be with unlimited grace, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import IS_LATE, RESULT_TIME
from recount.recompute.aggregating import (
    DETAIL,
    FIRSTS,
    OFFSET,
    OUTCOME,
    PARTITION,
    REACHED_MS,
    REASON,
    digested,
    group_of,
    results,
)
from recount.recompute.columns import exact_in, named
from recount.recompute.decoding import Limits
from recount.recompute.flow import Flow
from recount.recompute.header_parsing import is_with_headers
from recount.recompute.judging import DEAD_LETTERED, FATES, judged
from recount.recompute.log import Log, Ranges
from recount.recompute.stream_time import STREAM_TIME


@dataclass(frozen=True, kw_only=True)
class PartitionTotals:
    """One source partition of the stretch: its offsets, the fate of its records, its stream time at the end."""

    partition: int
    start: int
    end: int
    records: int
    counted: int
    late: int
    filtered: int
    null_key: int
    dead_lettered: int
    stream_time_ms: int | None
    null_value: int = 0
    deduplicated: int = 0
    waiting: int = 0


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """The recomputed stretch. ``digest`` is cached: call ``release`` when done. It has ``rows`` rows, of which
    ``singles`` are about one record each: late for a window, or bad.

    ``records`` (``judging.judged``) are not: whoever asks for single ones that were on time reads the log again.
    """

    flow: Flow
    records: DataFrame
    digest: DataFrame
    totals: tuple[PartitionTotals, ...]
    rows: int
    singles: int

    @property
    def partials(self) -> DataFrame:
        """Aggregates per key, window and lateness (``aggregating.partials``)."""
        return results(self.digest.where(F.col(WINDOW_START).isNotNull()), self.flow, IS_LATE)

    @property
    def late(self) -> DataFrame:
        """One row per late (record, window), as the late ledger has it; ``margin_ms`` is how much too late."""
        rows = self.digest.where(IS_LATE)
        return rows.select(
            F.lit(self.flow.source.topic.name).alias("topic"),
            F.col(PARTITION).alias("partition"),
            F.col(OFFSET).alias("offset"),
            F.col(RESULT_TIME).alias("timestamp_ms"),
            F.col(REACHED_MS).alias(STREAM_TIME),
            named(self.flow.key).cast("string").alias("key"),
            *group_of(self.flow)[1:],
            (F.col(REACHED_MS) - self.flow.windows.grace_ms - F.col(WINDOW_END)).alias("margin_ms"),
        )

    @property
    def rejected(self) -> DataFrame:
        """One row per bad record."""
        rows = self.digest.where(F.col(OUTCOME) == DEAD_LETTERED)
        return rows.select(
            F.lit(self.flow.source.topic.name).alias("topic"),
            F.col(PARTITION).alias("partition"),
            F.col(OFFSET).alias("offset"),
            F.col(RESULT_TIME).alias("timestamp_ms"),
            F.col(REASON).alias("reason"),
            F.col(DETAIL).alias("detail"),
        )

    def release(self) -> None:
        """Give the cached digest back."""
        self.digest.unpersist()


def recompute(
    session: SparkSession,
    flow: Flow,
    log: Log,
    ranges: Ranges,
    *,
    limits: Mapping[int, Limits] | None = None,
    stream_times: Mapping[int, int | None] | None = None,
) -> Recomputation:
    """Recompute ``flow`` over ``ranges`` of its source topic, which are read once.

    ``stream_times`` are those of the partitions before the ranges (none: the ranges start with the log). ``limits``
    say which event times were absurd when they were read; without them none is.
    """
    exact_in(session)
    seeds = stream_times or {}
    topic, headers = flow.source.topic.name, is_with_headers(flow.source)
    raw = log.read(session, topic, ranges, with_key=flow.reads_record_key, with_headers=headers)
    records = judged(raw, flow, limits or {}, seeds)
    digest = digested(records, flow).persist()
    sums = [F.sum(F.when(F.col(OUTCOME) == fate, F.col(FIRSTS)).otherwise(0)).alias(fate) for fate in FATES]
    rows = digest.groupBy(F.col(PARTITION).alias("partition")).agg(
        F.sum(FIRSTS).alias("records"),
        *sums,
        F.max(REACHED_MS).alias(STREAM_TIME),
        F.count("*").alias("rows"),
        F.count(OFFSET).alias("singles"),
    )
    found = {row.partition: row.asDict() for row in rows.collect()}
    lengths = {name: sum(row.pop(name) for row in found.values()) for name in ("rows", "singles")}
    nothing = {"records": 0, **dict.fromkeys(FATES, 0)}
    totals = tuple(
        PartitionTotals(
            start=start,
            end=end,
            **found.get(partition, {**nothing, "partition": partition, STREAM_TIME: seeds.get(partition)}),
        )
        for partition, (start, end) in sorted(ranges.items())
    )
    return Recomputation(flow=flow, records=records, digest=digest, totals=totals, **lengths)
