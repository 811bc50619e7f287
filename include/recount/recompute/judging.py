"""Every record of the log with its fate, by plain Spark columns around two ordered passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.core.nodes import WINDOW_END, WINDOW_START, Filter, SelectKey, WithFields
from recount.core.windows import TimeWindows
from recount.recompute.columns import column, named
from recount.recompute.decoding import DecodePass, Limits
from recount.recompute.flow import Flow
from recount.recompute.stream_time import ADVANCES, STREAM_TIME, StreamTimePass

COUNTED, LATE, FILTERED, NULL_KEY, DEAD_LETTERED = "counted", "late", "filtered", "null_key", "dead_lettered"
FATES = (COUNTED, LATE, FILTERED, NULL_KEY, DEAD_LETTERED)
FATE = "fate"
_PASSES = "__passes"


def input_of(aggregate: str) -> str:
    """The column with what a record adds to ``aggregate``."""
    return f"__in_{aggregate}"


def judged(
    raw: DataFrame, flow: Flow, limits: Mapping[int, Limits], stream_times: Mapping[int, int | None]
) -> DataFrame:
    """One row per record of ``raw``: place, event and stream time, key, aggregate inputs, fate, reason and detail.

    A filtered record advances stream time; one that is dead-lettered or has no key to be grouped by does not. A
    record is late when it is late for every window that holds it.
    """
    decode = DecodePass(flow=flow, limits=limits)
    rows = _stepped(raw.mapInArrow(_pass(decode), decode.schema), flow)
    keyless = F.col(_PASSES) & named(flow.key).isNull()
    ordered = rows.select(
        "partition",
        "offset",
        "timestamp_ms",
        named(flow.key),
        "reason",
        "detail",
        F.col(_PASSES),
        (F.col("reason").isNull() & ~keyless).alias(ADVANCES),
        *_inputs(flow),
    )
    schema = T.StructType([*ordered.schema.fields, T.StructField(STREAM_TIME, T.LongType())])
    timed = ordered.mapInArrow(_pass(StreamTimePass(seeds=stream_times)), schema)
    return timed.withColumn(FATE, _fate(flow)).drop(_PASSES, ADVANCES)


def windowed(records: DataFrame, windows: TimeWindows) -> DataFrame:
    """One row per aggregated record and window that holds it, with ``is_late``: late for this very window."""
    grouped = records.where(F.col(FATE).isin(COUNTED, LATE))
    newest = F.col("timestamp_ms") - F.col("timestamp_ms") % windows.advance_ms
    if windows.advance_ms == windows.size_ms:
        starting = grouped.withColumn(WINDOW_START, newest)
    else:
        reach = F.greatest(F.lit(0), F.col("timestamp_ms") - windows.size_ms + windows.advance_ms)
        oldest = reach - reach % windows.advance_ms
        starting = grouped.withColumn(WINDOW_START, F.explode(F.sequence(oldest, newest, F.lit(windows.advance_ms))))
    placed = starting.withColumn(WINDOW_END, F.col(WINDOW_START) + windows.size_ms)
    return placed.withColumn("is_late", F.col(WINDOW_END) <= F.col(STREAM_TIME) - windows.grace_ms)


def _stepped(decoded: DataFrame, flow: Flow) -> DataFrame:
    fields = dict(flow.source.fields)
    rows = decoded.withColumn(_PASSES, F.lit(True))
    for step in flow.steps:
        match step:
            case Filter(predicate=predicate):
                rows = rows.withColumn(_PASSES, F.col(_PASSES) & F.coalesce(column(predicate, fields), F.lit(False)))
            case WithFields(added=added):
                rows = rows.withColumns({name: column(tree, fields) for name, tree in added.items()})
            case SelectKey(key=key, by=by):
                rows = rows.withColumn(key, column(by, fields))
        fields = dict(step.fields)
    return rows


def _inputs(flow: Flow) -> list[Column]:
    fields = flow.aggregate.input.fields
    return [
        column(aggregate.of, fields).alias(input_of(name))
        for name, aggregate in flow.aggregate.aggregates.items()
        if aggregate.of is not None
    ]


def _fate(flow: Flow) -> Column:
    windows = flow.windows
    time = F.col("timestamp_ms")
    newest_end = time - time % windows.advance_ms + windows.size_ms
    return (
        F.when(F.col("reason").isNotNull(), DEAD_LETTERED)
        .when(~F.col(_PASSES), FILTERED)
        .when(named(flow.key).isNull(), NULL_KEY)
        .when(newest_end <= F.col(STREAM_TIME) - windows.grace_ms, LATE)
        .otherwise(COUNTED)
    )


def _pass(one: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """``one`` as the plain function that ``mapInArrow`` wants."""
    return lambda batches: one(batches)
