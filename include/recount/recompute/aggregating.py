"""Aggregates by Spark SQL: from records to partials per key and window, and from partials to results."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.core.aggregates import Aggregate
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.recompute.columns import named, spark_type
from recount.recompute.flow import Flow
from recount.recompute.judging import DEAD_LETTERED, FATE, GROUPED_BY, IS_LATE, input_of, newest_start, windowed
from recount.recompute.stream_time import STREAM_TIME

TIMESTAMP, RECORDS = "timestamp_ms", "records"
PARTITION, OUTCOME, OFFSET, REASON, DETAIL = "__partition", "__fate", "__offset", "__reason", "__detail"
FIRSTS, REACHED_MS = "__firsts", "__reached_ms"
"""Columns of a digest; an aggregate may be called ``offset``."""


def placed(records: DataFrame, flow: Flow, **further: Column) -> DataFrame:
    """One row per record of ``records`` (``judging.judged``) and window that holds it, with what is aggregated.

    Of the records it keeps the event time, ``PARTITION`` and ``OFFSET``, and the columns ``further``.
    """
    kept = {PARTITION: F.col("partition"), OFFSET: F.col("offset"), RECORDS: F.lit(1), **further}
    inputs = [input_of(name) for name, aggregate in flow.aggregate.aggregates.items() if aggregate.of is not None]
    key = F.when(F.col(WINDOW_START).isNotNull(), F.col(GROUPED_BY)).alias(flow.key)
    columns = [value.alias(name) for name, value in kept.items()]
    return windowed(records, flow.windows).select(
        key, WINDOW_START, WINDOW_END, IS_LATE, TIMESTAMP, *columns, *map(named, inputs)
    )


def partials(placed: DataFrame, flow: Flow, *further: str) -> DataFrame:
    """Per key, window, ``is_late`` and ``further`` columns: aggregates, largest event time, number of records.

    What is on time makes the expected result (fidelity), both together the complete one (unlimited grace).
    """
    return _grouped(placed, flow, _taken_in(flow), (IS_LATE, *further))


def digested(records: DataFrame, flow: Flow) -> DataFrame:
    """All that an audit needs to know of ``records`` (``judging.judged``), in one aggregation.

    The partials of each source ``PARTITION`` and ``OUTCOME`` (fate); where a record is late for a window or was
    rejected, of that one record, which ``OFFSET`` names then. What is not aggregated has no key and no window.
    ``FIRSTS`` counts each record once however many windows hold it; ``REACHED_MS`` is the highest stream time.
    """
    is_single = F.col(IS_LATE) | (F.col(FATE) == DEAD_LETTERED)
    in_newest = F.coalesce(F.col(WINDOW_START) == newest_start(flow.windows), F.lit(True))
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
    """``parts`` merged to one row per key, window and ``further`` columns."""
    made = [_reduced(_merging(aggregate), named(name)) for name, aggregate in flow.aggregate.aggregates.items()]
    return _grouped(parts, flow, made, further)


def group_of(flow: Flow) -> list[str]:
    """The columns that identify a result."""
    return [flow.key, WINDOW_START, WINDOW_END]


def _taken_in(flow: Flow) -> list[Column]:
    return [
        _reduced(aggregate.kind, named(input_of(name)) if aggregate.of is not None else F.lit(1))
        for name, aggregate in flow.aggregate.aggregates.items()
    ]


def _grouped(rows: DataFrame, flow: Flow, made: list[Column], further: tuple[str, ...], *totals: Column) -> DataFrame:
    fields = flow.aggregate.fields
    typed = [
        value.cast(spark_type(fields[name])).alias(name)
        for name, value in zip(flow.aggregate.aggregates, made, strict=True)
    ]
    return rows.groupBy(*map(named, group_of(flow)), *further).agg(
        *typed, F.max(TIMESTAMP).alias(TIMESTAMP), F.sum(RECORDS).cast("long").alias(RECORDS), *totals
    )


def _merging(aggregate: Aggregate) -> str:
    return "sum" if aggregate.kind == "count" else aggregate.kind


def _reduced(kind: str, values: Column) -> Column:
    match kind:
        case "count":
            return F.count(values)
        case "sum":
            return F.sum(values)
        case "min":
            return F.min(values)
        case "max":
            return F.max(values)
    raise AssertionError(kind)
