"""The records of one topic as tasks take them in: decoded, the bad ones set aside; and how tables leave tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import polars as pl
import pyarrow as pa

from recount.declare.columns import STREAM_TIME, TIMESTAMP
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, Source
from recount.engine.stage.polars_expressions import field_column
from recount.formats.record_decoder import RecordDecoder
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


@dataclass(eq=False)
class Intake:
    """Takes the records of one topic: ``columns`` are the fields to decode, ``latest_ms`` the last sane event time.

    ``needs_key``: a record without a key, or with one that is no text, is bad. So is one whose offset is ``set_aside``.
    """

    source: Source
    columns: Sequence[str]
    _: KW_ONLY
    needs_key: bool
    latest_ms: int
    set_aside: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._decoder = RecordDecoder(self.source.topic, self.columns)

    def take(self, batch: pa.RecordBatch) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The good records in order, and the rejected ones.

        A good one has its place, event time, raw key and value, fields, and ``IN_SECONDS``.
        """
        headers = batch.column(HEADERS).to_pylist() if self._decoder.reads_headers else ()
        decoded = self._decoder.decode(batch.column("value").to_pylist(), batch.column("key"), headers)
        frame = pl.from_arrow(batch.select(list(INPUT_COLUMNS)))
        assert isinstance(frame, pl.DataFrame)
        frame = frame.rename({"key": "record_key", "value": "record_value", TIMESTAMP: "record_timestamp_ms"})
        fields = {**decoded.columns, self.source.key: decoded.keys}
        frame = frame.with_columns(pl.Series(field_column(name), column) for name, column in fields.items())
        event_time = self.source.topic.event_time
        time = pl.col(field_column(event_time) if event_time else "record_timestamp_ms")
        frame = frame.with_columns(time.alias(TIMESTAMP))
        faults = {fault.index: (fault.reason, fault.detail) for fault in decoded.faults}
        if self.set_aside:
            ordered = frame["offset"].is_in(list(self.set_aside)).arg_true()
            faults |= dict.fromkeys(ordered.to_list(), (SET_ASIDE, "somebody ordered to set the record aside"))
        judged = self._judged(frame, faults)
        bad = judged.filter(pl.col("reason").is_not_null())
        rejected = bad.with_columns(pl.col("record_timestamp_ms").alias(TIMESTAMP)).select(list(REJECTED_SCHEMA))
        good = judged.filter(pl.col("reason").is_null()).drop("reason", "detail")
        return good.with_columns(self._in_seconds().alias(IN_SECONDS)), rejected

    def _in_seconds(self) -> pl.Expr:
        """Compare with the record's own time; where that is the event time itself, with the latest sane one."""
        has_own = self.source.topic.event_time is not None
        latest = YEAR_MS + (pl.col("record_timestamp_ms") if has_own else pl.lit(self.latest_ms))
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
        if self.needs_key:
            yield pl.col("record_key").is_null(), "null-key", pl.lit("the record has no key")
            yield pl.col(field_column(self.source.key)).is_null(), "undecodable", pl.lit("the key is no text")
        yield time.is_null(), "schema", pl.lit(f"event time {self.source.topic.event_time} is missing")
        yield time < 0, "negative-timestamp", pl.format("event time {} ms", time)
        yield (
            time > self.latest_ms,
            "future-timestamp",
            pl.format(f"event time {{}} ms is after {self.latest_ms} ms{{}}", time, self._unit_ahead()),
        )

    def _unit_ahead(self) -> pl.Expr:
        """In which unit an event time would lie near the record's own time, in words, if in one."""
        said = pl.lit("")
        for unit, many in UNITS_AHEAD.items():
            is_near = (pl.col(TIMESTAMP) // many - pl.col("record_timestamp_ms")).abs() <= YEAR_MS
            said = pl.when(is_near).then(pl.lit(f", it looks like {unit}")).otherwise(said)
        return said


def partition_of(batch: pa.RecordBatch) -> Partition:
    """The partition that the records of ``batch`` are of; a task reads one."""
    return batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()


def to_ipc(table: pl.DataFrame, compression: Literal["zstd", "lz4"] = "zstd") -> bytes:
    """A table as it leaves a task: compressed, for Spark copies it half a dozen times on its way to the driver."""
    written: Any = table.write_ipc_stream(None, compression=compression)
    return bytes(written.getvalue())


def from_ipc(payload: bytes) -> pl.DataFrame:
    return pl.read_ipc_stream(payload)


def map_function(stage: ArrowPass) -> ArrowPass:
    """``stage`` as the plain function that ``mapInArrow`` wants."""
    return lambda batches: stage(batches)
