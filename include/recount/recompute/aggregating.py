"""Aggregates by Spark SQL: from records to partials per key and window, and from partials to results."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.core.aggregates import Aggregate
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.recompute.columns import named, spark_type
from recount.recompute.flow import Flow
from recount.recompute.judging import input_of

TIMESTAMP, RECORDS, IS_LATE = "timestamp_ms", "records", "is_late"


def partials(windowed: DataFrame, flow: Flow, *further: str) -> DataFrame:
    """Per key, window, ``is_late`` and ``further`` columns: aggregates, largest event time, number of records.

    What is on time makes the expected result (fidelity), both together the complete one (unlimited grace).
    """
    made = [
        _reduced(aggregate.kind, named(input_of(name)) if aggregate.of is not None else F.lit(1))
        for name, aggregate in flow.aggregate.aggregates.items()
    ]
    return _grouped(windowed.withColumn(RECORDS, F.lit(1)), flow, made, (IS_LATE, *further))


def results(parts: DataFrame, flow: Flow, *further: str) -> DataFrame:
    """``parts`` merged to one row per key, window and ``further`` columns."""
    made = [_reduced(_merging(aggregate), named(name)) for name, aggregate in flow.aggregate.aggregates.items()]
    return _grouped(parts, flow, made, further)


def group_of(flow: Flow) -> list[str]:
    """The columns that identify a result."""
    return [flow.key, WINDOW_START, WINDOW_END]


def _grouped(rows: DataFrame, flow: Flow, made: list[Column], further: tuple[str, ...]) -> DataFrame:
    fields = flow.aggregate.fields
    typed = [
        value.cast(spark_type(fields[name])).alias(name)
        for name, value in zip(flow.aggregate.aggregates, made, strict=True)
    ]
    return rows.groupBy(*map(named, group_of(flow)), *further).agg(
        *typed, F.max(TIMESTAMP).alias(TIMESTAMP), F.sum(RECORDS).cast("long").alias(RECORDS)
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
