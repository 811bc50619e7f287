"""The recompute of a stretch of the log: what must be there, what would be with unlimited grace, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.recompute.aggregating import IS_LATE, group_of, partials
from recount.recompute.columns import named
from recount.recompute.decoding import Limits
from recount.recompute.flow import Flow
from recount.recompute.judging import DEAD_LETTERED, FATE, FATES, judged, windowed
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


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """The recomputed stretch. ``records`` is cached: call ``release`` when done."""

    flow: Flow
    records: DataFrame
    totals: tuple[PartitionTotals, ...]

    @property
    def partials(self) -> DataFrame:
        """Aggregates per key, window and lateness (``aggregating.partials``)."""
        return partials(windowed(self.records, self.flow.windows), self.flow)

    @property
    def late(self) -> DataFrame:
        """One row per late (record, window), as the late ledger has it; ``margin_ms`` is how much too late."""
        windows = self.flow.windows
        rows = windowed(self.records, windows).where(IS_LATE)
        return rows.select(
            F.lit(self.flow.source.topic.name).alias("topic"),
            "partition",
            "offset",
            "timestamp_ms",
            STREAM_TIME,
            named(self.flow.key).cast("string").alias("key"),
            *group_of(self.flow)[1:],
            (F.col(STREAM_TIME) - windows.grace_ms - F.col("window_end")).alias("margin_ms"),
        )

    @property
    def rejected(self) -> DataFrame:
        """One row per bad record."""
        rows = self.records.where(F.col(FATE) == DEAD_LETTERED)
        topic = F.lit(self.flow.source.topic.name).alias("topic")
        return rows.select(topic, "partition", "offset", "timestamp_ms", "reason", "detail")

    def release(self) -> None:
        """Give the cached records back."""
        self.records.unpersist()


def recompute(
    session: SparkSession,
    flow: Flow,
    log: Log,
    ranges: Ranges,
    *,
    limits: Mapping[int, Limits] | None = None,
    stream_times: Mapping[int, int | None] | None = None,
) -> Recomputation:
    """Recompute ``flow`` over ``ranges`` of its source topic.

    ``stream_times`` are those of the partitions before the ranges (none: the ranges start with the log). ``limits``
    say which event times were absurd when they were read; without them none is.
    """
    seeds = stream_times or {}
    raw = log.read(session, flow.source.topic.name, ranges)
    records = judged(raw, flow, limits or {}, seeds).persist()
    sums = [F.count("*").alias("records"), *(F.count_if(F.col(FATE) == fate).alias(fate) for fate in FATES)]
    rows = records.groupBy("partition").agg(*sums, F.max(STREAM_TIME).alias(STREAM_TIME)).collect()
    found = {row.partition: row.asDict() for row in rows}
    nothing = {"records": 0, **dict.fromkeys(FATES, 0)}
    totals = tuple(
        PartitionTotals(
            start=start,
            end=end,
            **found.get(partition, {**nothing, "partition": partition, STREAM_TIME: seeds.get(partition)}),
        )
        for partition, (start, end) in sorted(ranges.items())
    )
    return Recomputation(flow=flow, records=records, totals=totals)
