"""Stream time at every offset, the running maximum of event time in a partition, and the fate of every record.

Fates are plain Spark columns after or around the ordered passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.declare.columns import IS_LATE
from recount.declare.operators.nodes import (
    KEY,
    WINDOW_END,
    WINDOW_START,
    Filter,
    SelectKey,
    WindowedAggregate,
    WithFields,
)
from recount.declare.windows import TimeWindows
from recount.recompute.decoding import DecodePass, Limits
from recount.recompute.raw_log import RawLog, runs
from recount.recompute.rules.number_rules import all_starts, newest_start
from recount.recompute.rules.range_rules import RangeRules
from recount.recompute.single_flow import Flow, Step, keyless_when
from recount.recompute.spark_columns import column, named

ADVANCES, STREAM_TIME = "advances", "stream_time_ms"
_NEVER = np.iinfo(np.int64).min
COUNTED, LATE, FILTERED, NULL_KEY, DEAD_LETTERED = "counted", "late", "filtered", "null_key", "dead_lettered"
FATES = (COUNTED, LATE, FILTERED, NULL_KEY, DEAD_LETTERED)
FATE = "fate"
GROUPED_BY = "__grouped_by"
"""The column of the key that a record is grouped by."""
_PASSES, _OUT_OF_RANGE = "__passes", "__out_of_range"
_FIELD = "field."
"""Goes before the names of fields, for a field can be called ``reason`` or ``offset``."""
_RANGES = RangeRules(functions=F, column=partial(column, prefix=_FIELD))


@dataclass(frozen=True, kw_only=True)
class StreamTimePass:
    """One task's pass over its records: adds ``stream_time_ms``, at a record's own offset and including it.

    Only records with ``advances`` move it; with ``keyless_when`` those that are not bad (``reason``) and have no null
    in these columns. ``seeds`` are the partitions' stream times before the first record; where there is none and
    nothing advanced yet, the stream time is null.
    """

    seeds: Mapping[int, int | None]
    keyless_when: Collection[str] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of whole partitions in offset order, in and out."""
        reached = {p: _NEVER if seed is None else seed for p, seed in self.seeds.items()}
        last: dict[int, int] = {}
        for batch in batches:
            for partition, records in runs(batch, last):
                times = np.where(
                    self._advances(records), records.column("timestamp_ms").fill_null(0).to_numpy(), _NEVER
                )
                times[0] = max(times[0], reached.get(partition, _NEVER))
                stream_times = np.maximum.accumulate(times)
                reached[partition] = int(stream_times[-1])
                column = pa.array(stream_times, mask=stream_times == _NEVER)
                yield records.append_column(STREAM_TIME, column)

    def _advances(self, records: pa.RecordBatch) -> np.ndarray:
        if self.keyless_when is None:
            return np.asarray(records.column(ADVANCES).to_numpy(zero_copy_only=False))
        advances = records.column("reason").is_null()
        for name in self.keyless_when:
            advances = pc.and_(advances, records.column(name).is_valid())
        return np.asarray(advances.to_numpy(zero_copy_only=False))


def input_of(aggregate: str) -> str:
    """The column with what a record adds to ``aggregate``."""
    return f"__in_{aggregate}"


def judged(raw: RawLog, flow: Flow, limits: Mapping[int, Limits], stream_times: Mapping[int, int | None]) -> DataFrame:
    """One row per record of ``raw``: place, event and stream time, key, aggregate inputs, fate, reason and detail.

    A filtered record advances stream time, and so does one for which an expression is out of range; another bad one, or
    one that has no key to be grouped by, does not. A record is late when it is late for every window that holds it.
    """
    keyless = keyless_when(flow)
    decode = DecodePass(flow=flow, limits=limits, prefix=_FIELD)
    nulls = None if keyless is None else [KEY if name == flow.source.key else _FIELD + name for name in keyless]
    time = StreamTimePass(seeds=stream_times, keyless_when=nulls)
    key = named(_FIELD + flow.key).alias(GROUPED_BY)
    reason = F.coalesce("reason", _OUT_OF_RANGE).alias("reason")
    columns: list[Column | str] = ["partition", "offset", "timestamp_ms", key, reason, "detail", _PASSES]
    columns += _inputs(flow)
    if keyless is not None:
        decoded = raw.through(_with_stream_time(decode.schema), decode, time)
        timed = _stepped(decoded, flow).select(*columns, STREAM_TIME)
    else:
        is_dropped = F.col(_PASSES) & F.col(_OUT_OF_RANGE).isNull() & named(_FIELD + flow.key).isNull()
        advances = (F.col("reason").isNull() & ~is_dropped).alias(ADVANCES)
        stepped = _stepped(raw.through(decode.schema, decode), flow).select(*columns, advances)
        timed = RawLog(frame=stepped).through(_with_stream_time(stepped.schema), time).drop(ADVANCES)
    return timed.withColumn(FATE, _fate(flow)).drop(_PASSES)


def windowed(records: DataFrame, windows: TimeWindows) -> DataFrame:
    """One row per aggregated record and window that holds it, with ``recount_is_late``: late for this very window.

    A record that is not aggregated keeps its row, without window and ``recount_is_late``.
    """
    is_grouped = F.col(FATE).isin(COUNTED, LATE)
    if windows.advance_ms == windows.size_ms:
        starting = records.withColumn(WINDOW_START, F.when(is_grouped, newest_start(windows, F.col("timestamp_ms"))))
    else:
        starts = all_starts(windows, F.col("timestamp_ms"), F)
        starting = records.withColumn(WINDOW_START, F.explode_outer(F.when(is_grouped, starts)))
    placed = starting.withColumn(WINDOW_END, F.col(WINDOW_START) + windows.size_ms)
    return placed.withColumn(IS_LATE, F.col(WINDOW_END) <= F.col(STREAM_TIME) - windows.grace_ms)


def _stepped(decoded: DataFrame, flow: Flow) -> DataFrame:
    fields = dict(flow.source.fields)
    rows = decoded.withColumnRenamed(KEY, _FIELD + flow.source.key).withColumn(_PASSES, F.lit(True))
    rows = rows.withColumn(_OUT_OF_RANGE, F.lit(None).cast("string"))
    for step in flow.steps:
        rows = _in_range(rows, step)
        match step:
            case Filter(predicate=predicate):
                rows = rows.withColumn(
                    _PASSES, F.col(_PASSES) & F.coalesce(column(predicate, fields, _FIELD), F.lit(False))
                )
            case WithFields(added=added):
                rows = rows.withColumns({_FIELD + name: column(tree, fields, _FIELD) for name, tree in added.items()})
            case SelectKey(key=key, by=by):
                rows = rows.withColumn(_FIELD + key, column(by, fields, _FIELD))
        fields = dict(step.fields)
    return _in_range(rows, flow.aggregate)


def _in_range(rows: DataFrame, node: Step | WindowedAggregate) -> DataFrame:
    """``rows``, those that pass marked where an expression of ``node`` is the first to be out of range."""
    reason = _RANGES.reason_of(node)
    if reason is None:
        return rows
    return rows.withColumn(_OUT_OF_RANGE, F.coalesce(_OUT_OF_RANGE, F.when(F.col(_PASSES), reason)))


def _inputs(flow: Flow) -> list[Column]:
    fields = flow.aggregate.input.fields
    return [
        column(aggregate.of, fields, _FIELD).alias(input_of(name))
        for name, aggregate in flow.aggregate.aggregates.items()
        if aggregate.of is not None
    ]


def _fate(flow: Flow) -> Column:
    newest_end = newest_start(flow.windows, F.col("timestamp_ms")) + flow.windows.size_ms
    return (
        F.when(F.col("reason").isNotNull(), DEAD_LETTERED)
        .when(~F.col(_PASSES), FILTERED)
        .when(F.col(GROUPED_BY).isNull(), NULL_KEY)
        .when(newest_end <= F.col(STREAM_TIME) - flow.windows.grace_ms, LATE)
        .otherwise(COUNTED)
    )


def _with_stream_time(schema: T.StructType) -> T.StructType:
    return T.StructType([*schema.fields, T.StructField(STREAM_TIME, T.LongType())])
