"""The map stage of a single aggregation: one task decodes a partition's records in offset order; no shuffle.

Decode, set bad records aside, keep the running maximum of event time (stream time), assign windows, judge lateness
by the stream time at the record's own offset, and reduce to mergeable partials. Four small tables leave the task, as
Arrow IPC: partials, late records, rejected records, and the partition's totals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl
import pyarrow as pa

from recount.declare.columns import STREAM_TIME, TIMESTAMP
from recount.declare.functions import message_of, reason_of
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, Filter, Node, SelectKey, Source, WithFields
from recount.engine.operators.folds import python_rows
from recount.engine.operators.set_aside import Ranges
from recount.engine.stage.partials import AggregationPlan, Partials, with_windows
from recount.engine.stage.polars_expressions import compiled, field_column
from recount.formats.record_decoder import RecordDecoder
from recount.runtime.errors import Terminal
from recount.tables.ledger import UNITS_AHEAD, YEAR_2000_MS, YEAR_MS
from recount.tables.signed_orders import SET_ASIDE

INPUT_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
IN_SECONDS = "in_seconds"
"""Whether the event time is more than a year before the record's own time, and as seconds since the year 2000."""
HEADERS = "headers"
"""A further column, where a topic has fields that are headers."""
PLACE: dict[str, pl.DataType] = {"topic": pl.String(), "partition": pl.Int32(), "offset": pl.Int64()}
REJECTED_SCHEMA: dict[str, pl.DataType] = {
    **PLACE,
    TIMESTAMP: pl.Int64(),
    "reason": pl.String(),
    "detail": pl.String(),
    "record_key": pl.Binary(),
    "record_value": pl.Binary(),
}
"""A bad record with its raw bytes; its time is the one that Kafka has, for its event time may be what is bad.

Where a function raised it is the event time.
"""
Partition = tuple[str, int]
OUTPUT_SCHEMA = "name string, ipc binary"
ArrowPass = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What one task does with the Arrow batches of its partition."""
ARROW_OUTPUT = pa.schema([("name", pa.string()), ("ipc", pa.binary())])
LATE_SCHEMA: dict[str, pl.DataType] = {
    **PLACE,
    TIMESTAMP: pl.Int64(),
    STREAM_TIME: pl.Int64(),
    "key": pl.String(),
    WINDOW_START: pl.Int64(),
    WINDOW_END: pl.Int64(),
    "margin_ms": pl.Int64(),
}
COUNTS = ("records", "counted", "late", "filtered", "null_key", "dead_lettered", IN_SECONDS)
TOTALS_SCHEMA: dict[str, pl.DataType] = {
    "topic": pl.String(),
    "partition": pl.Int32(),
    STREAM_TIME: pl.Int64(),
    **{name: pl.Int64() for name in COUNTS},
}


class Intake:
    """Takes the records of one topic: ``columns`` are the fields to decode, ``latest_ms`` the last sane event time.

    ``needs_key``: a record without a key, or with one that is no text, is bad. So is one whose offset is ``set_aside``.
    """

    def __init__(
        self,
        source: Source,
        columns: Sequence[str],
        *,
        needs_key: bool,
        latest_ms: int,
        set_aside: frozenset[int] = frozenset(),
    ) -> None:
        self._source = source
        self._needs_key = needs_key
        self._latest_ms = latest_ms
        self._set_aside = set_aside
        self._decoder = RecordDecoder(source.topic, columns)

    def take(self, batch: pa.RecordBatch) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The good records in order, and the rejected ones.

        A good one has its place, event time, raw key and value, fields, and ``IN_SECONDS``.
        """
        headers = batch.column(HEADERS).to_pylist() if self._decoder.reads_headers else ()
        decoded = self._decoder.decode(batch.column("value").to_pylist(), batch.column("key"), headers)
        frame = pl.from_arrow(batch.select(list(INPUT_COLUMNS)))
        assert isinstance(frame, pl.DataFrame)
        frame = frame.rename({"key": "record_key", "value": "record_value", TIMESTAMP: "record_timestamp_ms"})
        fields = {**decoded.columns, self._source.key: decoded.keys}
        frame = frame.with_columns(pl.Series(field_column(name), column) for name, column in fields.items())
        event_time = self._source.topic.event_time
        time = pl.col(field_column(event_time) if event_time else "record_timestamp_ms")
        frame = frame.with_columns(time.alias(TIMESTAMP))
        faults = {fault.index: (fault.reason, fault.detail) for fault in decoded.faults}
        if self._set_aside:
            ordered = frame["offset"].is_in(list(self._set_aside)).arg_true()
            faults |= dict.fromkeys(ordered.to_list(), (SET_ASIDE, "somebody ordered to set the record aside"))
        judged = self._judged(frame, faults)
        bad = judged.filter(pl.col("reason").is_not_null())
        rejected = bad.with_columns(pl.col("record_timestamp_ms").alias(TIMESTAMP)).select(list(REJECTED_SCHEMA))
        good = judged.filter(pl.col("reason").is_null()).drop("reason", "detail")
        return good.with_columns(self._in_seconds().alias(IN_SECONDS)), rejected

    def _in_seconds(self) -> pl.Expr:
        """Compare with the record's own time; where that is the event time itself, with the latest sane one."""
        has_own = self._source.topic.event_time is not None
        latest = YEAR_MS + (pl.col("record_timestamp_ms") if has_own else pl.lit(self._latest_ms))
        return (pl.col(TIMESTAMP) < latest - 2 * YEAR_MS) & (pl.col(TIMESTAMP) * 1_000).is_between(YEAR_2000_MS, latest)

    def _judged(self, frame: pl.DataFrame, faults: Mapping[int, tuple[str, str]]) -> pl.DataFrame:
        said = {
            "index": list(faults),
            "reason": [r for r, _ in faults.values()],
            "detail": [d for _, d in faults.values()],
        }
        worded = pl.DataFrame(said, schema={"index": pl.UInt32(), "reason": pl.String(), "detail": pl.String()})
        frame = frame.with_row_index().join(worded, on="index", how="left", maintain_order="left").drop("index")
        for bad, name, text in self._tests():
            hit = pl.col("reason").is_null() & bad
            frame = frame.with_columns(
                pl.when(hit).then(pl.lit(name)).otherwise(pl.col("reason")).alias("reason"),
                pl.when(hit).then(text).otherwise(pl.col("detail")).alias("detail"),
            )
        return frame

    def _tests(self) -> Iterator[tuple[pl.Expr, str, pl.Expr]]:
        """The other tests for a bad record: the test, the reason, the detail; the first that holds counts."""
        time = pl.col(TIMESTAMP)
        if self._needs_key:
            yield pl.col("record_key").is_null(), "null-key", pl.lit("the record has no key")
            yield pl.col(field_column(self._source.key)).is_null(), "undecodable", pl.lit("the key is no text")
        yield time.is_null(), "schema", pl.lit(f"event time {self._source.topic.event_time} is missing")
        yield time < 0, "negative-timestamp", pl.format("event time {} ms", time)
        yield (
            time > self._latest_ms,
            "future-timestamp",
            pl.format(f"event time {{}} ms is after {self._latest_ms} ms{{}}", time, self._unit_ahead()),
        )

    def _unit_ahead(self) -> pl.Expr:
        """In which unit an event time would lie near the record's own time, in words, if in one."""
        said = pl.lit("")
        for unit, many in UNITS_AHEAD.items():
            is_near = (pl.col(TIMESTAMP) // many - pl.col("record_timestamp_ms")).abs() <= YEAR_MS
            said = pl.when(is_near).then(pl.lit(f", it looks like {unit}")).otherwise(said)
        return said


@dataclass(frozen=True, kw_only=True)
class MapStage:
    """One batch's map stage, shipped to every task.

    ``stream_times`` are the partitions' stream times before this batch; ``latest_ms`` is the last event time that is
    not absurd: the batch's recorded time plus ``max_future``.
    """

    plan: AggregationPlan
    stream_times: Mapping[Partition, int | None]
    latest_ms: int
    set_aside: Mapping[Partition, frozenset[int]] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The task: Arrow batches of one partition in, the four tables out."""
        partition_pass: PartitionPass | None = None
        for batch in batches:
            if batch.num_rows:
                partition_pass = partition_pass or self.pass_of(partition_of(batch))
                partition_pass.feed(batch)
        if partition_pass:
            tables = partition_pass.tables()
            yield pa.record_batch([list(tables), [to_ipc(table) for table in tables.values()]], schema=ARROW_OUTPUT)

    def pass_of(self, partition: Partition) -> PartitionPass:
        """The pass over the records of ``partition``."""
        return PartitionPass(self, partition)

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The four tables without rows, to which those of the tasks are added."""
        return {
            "partials": [Partials.of(self.plan.aggregate).empty()],
            "late": [pl.DataFrame(schema=LATE_SCHEMA)],
            "rejected": [pl.DataFrame(schema=REJECTED_SCHEMA)],
            "totals": [pl.DataFrame(schema=TOTALS_SCHEMA)],
        }


class PartitionPass:
    """The ordered pass over one partition's records of one batch."""

    def __init__(self, stage: MapStage, partition: Partition) -> None:
        plan = stage.plan
        self._plan = plan
        self._partition = partition
        self._intake = Intake(
            plan.source,
            plan.columns,
            needs_key=plan.uses_record_key,
            latest_ms=stage.latest_ms,
            set_aside=stage.set_aside.get(partition, frozenset()),
        )
        self._partials = Partials.of(plan.aggregate)
        self._ranges: dict[Node, Ranges] = {step: Ranges(step) for step in (*plan.steps, plan.aggregate)}
        self._key = pl.col(field_column(self._partials.key))
        self._stream_time_ms = stage.stream_times.get(partition)
        self._counts = dict.fromkeys(COUNTS, 0)
        self._tables = stage.empty_tables()

    def feed(self, batch: pa.RecordBatch) -> None:
        """Take the next records; raises ``Terminal`` when they are not of this pass's partition."""
        if partition_of(batch) != self._partition:
            raise Terminal(
                "records of two partitions in one task",
                given=partition_of(batch),
                expected=str(self._partition),
                remedy="a fault of Recount: report it, with the log of the driver",
            )
        good, rejected = self._intake.take(batch)
        self._counts["records"] += batch.num_rows
        self._set_aside(rejected)
        if good.is_empty():
            return
        self._counts[IN_SECONDS] += int(good[IN_SECONDS].sum())
        timed = self._timed(self._stepped(good))
        windowed = with_windows(timed, self._plan.windows)
        closes_ms = pl.col(WINDOW_END) + self._plan.windows.grace_ms
        late = windowed.filter(closes_ms <= pl.col(STREAM_TIME))
        on_time = windowed.filter(closes_ms > pl.col(STREAM_TIME))
        counted = on_time["offset"].n_unique()
        self._counts["counted"] += counted
        self._counts["late"] += timed.height - counted
        if not on_time.is_empty():
            self.reduce(on_time)
        if not late.is_empty():
            self._tables["late"].append(
                late.with_columns(
                    self._key.cast(pl.String).alias("key"),
                    (pl.col(STREAM_TIME) - closes_ms).alias("margin_ms"),
                ).select(list(LATE_SCHEMA))
            )

    def reduce(self, on_time: pl.DataFrame) -> None:
        """Reduce the next records that are on time, each with the bounds of a window, to partials."""
        self._tables["partials"].append(self._partials.from_records(on_time))

    def tables(self) -> dict[str, pl.DataFrame]:
        """The four tables of this partition and batch."""
        topic, partition = self._partition
        totals = {"topic": topic, "partition": partition, STREAM_TIME: self._stream_time_ms, **self._counts}
        tables = {name: pl.concat(parts) for name, parts in self._tables.items()}
        return {
            **tables,
            "partials": self._partials.merge(tables["partials"]),
            "totals": pl.DataFrame([totals], schema=TOTALS_SCHEMA),
        }

    def _stepped(self, records: pl.DataFrame) -> pl.DataFrame:
        """The stateless steps; a filter marks what does not pass, for filtered records still advance stream time.

        So do records that are set aside because an expression, of a step or an aggregate, is out of range.
        """
        passing = [pl.lit(True).alias("__passes"), pl.lit(False).alias("__is_set_aside")]
        records = records.with_columns(passing)
        for step, ranges in self._ranges.items():
            if ranges.risky:
                records = self._in_range(step, ranges, records)
            match step:
                case Filter(predicate=predicate):
                    passes = pl.col("__passes") & compiled(predicate, step.input.fields).fill_null(False)
                    records = records.with_columns(passes.alias("__passes"))
                case WithFields(added=added):
                    records = records.with_columns(
                        [compiled(tree, step.input.fields).alias(field_column(name)) for name, tree in added.items()]
                    )
                case SelectKey(key=key, by=by):
                    records = records.with_columns(compiled(by, step.input.fields).alias(field_column(key)))
        return records

    def _in_range(self, step: Node, ranges: Ranges, records: pl.DataFrame) -> pl.DataFrame:
        """The ``records``: of those that pass, the ones for which ``step`` is out of range are marked as set aside."""
        beyond = records["__passes"] & ranges.beyond(records)
        if not beyond.any():
            return records
        bad = records.filter(beyond)
        errors = [ranges.error(row) for row in python_rows(bad, step.inputs[0].fields)]
        said = {"reason": [reason_of(step, one) for one in errors], "detail": [message_of(one) for one in errors]}
        self._set_aside(bad.with_columns(**{name: pl.Series(texts) for name, texts in said.items()}))
        marks = [pl.col("__passes") & ~beyond, pl.col("__is_set_aside") | beyond]
        return records.with_columns(marks)

    def _set_aside(self, bad: pl.DataFrame) -> None:
        self._counts["dead_lettered"] += bad.height
        self._tables["rejected"].append(bad.select(list(REJECTED_SCHEMA)))

    def _timed(self, records: pl.DataFrame) -> pl.DataFrame:
        """The records to aggregate, each with the stream time at its own offset."""
        keyless = pl.col("__passes") & self._key.is_null()
        running = pl.when(~keyless).then(pl.col(TIMESTAMP)).cum_max().forward_fill()
        records = records.with_columns(
            pl.max_horizontal(running, pl.lit(self._stream_time_ms, pl.Int64)).alias(STREAM_TIME)
        )
        self._stream_time_ms = records[STREAM_TIME][-1]
        passing = records.filter(pl.col("__passes"))
        timed = passing.filter(self._key.is_not_null())
        self._counts["filtered"] += records.filter(~pl.col("__passes") & ~pl.col("__is_set_aside")).height
        self._counts["null_key"] += passing.height - timed.height
        return timed


def partition_of(batch: pa.RecordBatch) -> Partition:
    """The partition that the records of ``batch`` are of; a task reads one."""
    return batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()


def to_ipc(table: pl.DataFrame, compression: Literal["zstd", "lz4"] = "zstd") -> bytes:
    """A table as it leaves a task: compressed, for Spark copies it half a dozen times on its way to the driver."""
    written: Any = table.write_ipc_stream(None, compression=compression)
    return bytes(written.getvalue())


def from_ipc(payload: bytes) -> pl.DataFrame:
    """The table that a task sent."""
    return pl.read_ipc_stream(payload)


def map_function(stage: ArrowPass) -> ArrowPass:
    """``stage`` as the plain function that ``mapInArrow`` wants."""
    return lambda batches: stage(batches)
