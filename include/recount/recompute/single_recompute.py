"""The recompute of a single aggregation by Spark SQL: due results, those of unlimited grace, and late records.

Aggregates go from records to partials per key and window, and from partials to results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.declare.aggregates import Aggregate
from recount.declare.columns import BEYOND, IS_LATE, RECORDS, RESULT_TIME
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.schema import FieldType
from recount.recompute.decoding import Limits
from recount.recompute.raw_log import Log, Ranges
from recount.recompute.registry_parsing import is_with_headers
from recount.recompute.rules.number_rules import (
    WIDE,
    Total,
    as_long,
    beyond_type,
    exact_sum,
    finished,
    is_carried_apart,
    newest_start,
    total_of,
)
from recount.recompute.single_flow import Flow
from recount.recompute.spark_columns import exact_in, named, spark_type
from recount.recompute.stream_times import (
    DEAD_LETTERED,
    FATE,
    FATES,
    GROUPED_BY,
    STREAM_TIME,
    input_of,
    judged,
    windowed,
)

PARTITION, OUTCOME, OFFSET, REASON, DETAIL = "__partition", "__fate", "__offset", "__reason", "__detail"
FIRSTS, REACHED_MS = "__firsts", "__reached_ms"
"""Columns of a digest; an aggregate may be called ``offset``."""


def placed(records: DataFrame, flow: Flow, **further: Column) -> DataFrame:
    """One row per record of ``records`` (``stream_times.judged``) and window that holds it, with what is aggregated.

    Of the records it keeps the event time, ``PARTITION`` and ``OFFSET``, and the columns ``further``.
    """
    kept = {PARTITION: F.col("partition"), OFFSET: F.col("offset"), RECORDS: F.lit(1), **further}
    inputs = [input_of(name) for name, aggregate in flow.aggregate.aggregates.items() if aggregate.of is not None]
    key = F.when(F.col(WINDOW_START).isNotNull(), F.col(GROUPED_BY)).alias(flow.key)
    columns = [value.alias(name) for name, value in kept.items()]
    return windowed(records, flow.windows).select(
        key, WINDOW_START, WINDOW_END, IS_LATE, F.col("timestamp_ms").alias(RESULT_TIME), *columns, *map(named, inputs)
    )


def partials(placed: DataFrame, flow: Flow, *further: str) -> DataFrame:
    """Per key, window, ``recount_is_late`` and ``further`` columns: aggregates, largest event time, number of records.

    What is on time makes the expected result (fidelity), both together the complete one (unlimited grace).
    """
    return _grouped(placed, flow, _taken_in(flow), (IS_LATE, *further))


def digested(records: DataFrame, flow: Flow) -> DataFrame:
    """All that an audit needs to know of ``records`` (``stream_times.judged``), in one aggregation.

    The partials of each source ``PARTITION`` and ``OUTCOME`` (fate); where a record is late for a window or was
    rejected, of that one record, which ``OFFSET`` names then. What is not aggregated has no key and no window.
    ``FIRSTS`` counts each record once however many windows hold it; ``REACHED_MS`` is the highest stream time.
    """
    is_single = F.col(IS_LATE) | (F.col(FATE) == DEAD_LETTERED)
    in_newest = F.coalesce(F.col(WINDOW_START) == newest_start(flow.windows, F.col("timestamp_ms")), F.lit(True))
    told_apart = {
        OUTCOME: F.col(FATE),
        OFFSET: F.when(is_single, F.col("offset")),
        REASON: F.col("reason"),
        DETAIL: F.col("detail"),
    }
    rows = placed(records, flow, **told_apart, **{FIRSTS: in_newest.cast("int"), REACHED_MS: F.col(STREAM_TIME)})
    totals = [F.sum(FIRSTS).alias(FIRSTS), F.max(REACHED_MS).alias(REACHED_MS)]
    return _grouped(rows, flow, _taken_in(flow), (IS_LATE, PARTITION, *told_apart), *totals)


def results(parts: DataFrame, flow: Flow, *further: str) -> DataFrame:
    """``parts`` merged to one row per key, window and ``further`` columns; a sum can have something ``BEYOND`` it."""
    made = [one for name, aggregate in _aggregates(flow) for one in _merged(name, aggregate, parts, flow)]
    return _grouped(parts, flow, made, further)


def declared(rows: DataFrame, flow: Flow) -> DataFrame:
    """``results`` in their declared types; an error where a sum does not fit into its own."""
    narrow = {name: as_long(named(name)) for name, aggregate in _aggregates(flow) if _is_wide(aggregate, flow, name)}
    for name in sums_apart(flow):
        narrow[name] = finished(Total(named(name), named(BEYOND + name)), flow.aggregate.fields[name])
    return rows.withColumns(narrow).drop(*(BEYOND + name for name in sums_apart(flow))) if narrow else rows


def sums_apart(flow: Flow) -> list[str]:
    """The sums that can have something ``BEYOND`` their own column."""
    found = [name for name, aggregate in _aggregates(flow) if aggregate.kind == "sum"]
    return [name for name in found if is_carried_apart(flow.given_type(name))]


def group_of(flow: Flow) -> list[str]:
    """The columns that identify a result."""
    return [flow.key, WINDOW_START, WINDOW_END]


def _taken_in(flow: Flow) -> list[Column]:
    made = []
    for name, aggregate in flow.aggregate.aggregates.items():
        values, kind = named(input_of(name)) if aggregate.of is not None else F.lit(1), flow.aggregate.fields[name]
        if name in sums_apart(flow):
            made += _apart(name, Total(values, F.lit(None).cast(beyond_type(kind))), kind)
        else:
            made.append(_typed(name, aggregate, _reduced(aggregate.kind, values, kind), flow))
    return made


def _apart(name: str, values: Total, kind: FieldType) -> list[Column]:
    made = total_of(values, kind)
    return [made.total.cast(spark_type(kind)).alias(name), made.beyond.alias(BEYOND + name)]


def _typed(name: str, aggregate: Aggregate, value: Column, flow: Flow) -> Column:
    kind = WIDE if _is_wide(aggregate, flow, name) else spark_type(flow.aggregate.fields[name])
    return value.cast(kind).alias(name)


def _grouped(rows: DataFrame, flow: Flow, made: list[Column], further: tuple[str, ...], *totals: Column) -> DataFrame:
    return rows.groupBy(*map(named, group_of(flow)), *further).agg(
        *made, F.max(RESULT_TIME).alias(RESULT_TIME), F.sum(RECORDS).cast("long").alias(RECORDS), *totals
    )


def _aggregates(flow: Flow) -> list[tuple[str, Aggregate]]:
    return list(flow.aggregate.aggregates.items())


def _is_wide(aggregate: Aggregate, flow: Flow, name: str) -> bool:
    return aggregate.kind == "sum" and flow.aggregate.fields[name].kind == "long"


def _merged(name: str, aggregate: Aggregate, parts: DataFrame, flow: Flow) -> list[Column]:
    """Merge parts; sums of LONG are decimals by then. Parts kept by an earlier release have nothing ``BEYOND``."""
    values, kind = named(name), flow.aggregate.fields[name]
    if name in sums_apart(flow):
        beyond = named(BEYOND + name) if BEYOND + name in parts.columns else F.lit(None).cast(beyond_type(kind))
        return _apart(name, Total(values, beyond), kind)
    if aggregate.kind == "count":
        made = F.sum(values)
    elif aggregate.kind == "sum":
        made = exact_sum(values, FieldType(kind="decimal", precision=38, scale=kind.scale))
    else:
        made = _reduced(aggregate.kind, values, kind)
    return [_typed(name, aggregate, made, flow)]


def _reduced(kind: str, values: Column, of: FieldType) -> Column:
    match kind:
        case "count":
            return F.count(values)
        case "sum":
            return exact_sum(values, of)
        case "min":
            return F.min(values)
        case "max":
            return F.max(values)
    raise AssertionError(kind)


@dataclass(frozen=True, kw_only=True)
class PartitionTotals:
    """One source partition of the interval: its offsets, the fate of its records, its stream time at the end."""

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
    """The recomputed interval. ``digest`` is cached: call ``release`` when done. It has ``rows`` rows, of which
    ``singles`` are about one record each: late for a window, or bad.

    ``records`` (``stream_times.judged``) are not: a reader of single ones that were on time reads the log again.
    """

    flow: Flow
    records: DataFrame
    digest: DataFrame
    totals: tuple[PartitionTotals, ...]
    rows: int
    singles: int

    @property
    def partials(self) -> DataFrame:
        """Aggregates per key, window and lateness (``partials``)."""
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
