"""Copies of results of every place: committed records of the sink's topic, and rows of its Delta tables.

Records are decoded here, or in Spark's tasks. Avro and Protobuf values are read by the recompute's own reader, not by
what wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from recount.audit.compare.committed import CommittedRecord, committed_records, text_of_bytes
from recount.audit.cut.audited_ledger import Order
from recount.declare.columns import BACKFILL as BACKFILL_ID
from recount.declare.columns import BATCH, EVIDENCE, GENERATION, ORIGIN, PLACE, RESULT_TIME, REVISION
from recount.declare.operators.nodes import KEY
from recount.declare.output import ORIGIN_HEADER, REVISION_HEADER, encode_key
from recount.declare.schema import FieldType, RecordSchema
from recount.declare.topology import Written
from recount.formats.json_values import arrow_type
from recount.kafka.connection import Connection
from recount.recompute.raw_log import Ranges, headers_never_null
from recount.recompute.registry_parsing import AvroParser, ProtobufParser
from recount.recompute.rules.value_rules import Bad
from recount.recompute.single_flow import Flow
from recount.recompute.spark_columns import spark_type
from recount.tables.places import Tables

KAFKA, DELTA, LATER = "kafka", "delta", "later"
STREAM, BY_BACKFILL = "stream", "backfill"
NO_REVISION = -1
_MAX_LONG, _MAX_INT = 2**63, 2**31
_WIDE = Context(prec=100)


def copy_schema(flow: Flow) -> pa.Schema:
    """The columns of a copy: those of a result, where it is, who wrote it, as which revision."""
    told = {
        RESULT_TIME: pa.int64(),
        PLACE: pa.string(),
        ORIGIN: pa.string(),
        REVISION: pa.int32(),
        EVIDENCE: pa.string(),
    }
    return pa.schema([*((name, arrow_type(kind)) for name, kind in flow.aggregate.fields.items()), *told.items()])


def copies_in_output(tables: Tables, flow: Flow, cut: Order) -> pl.LazyFrame:
    """The rows of the sink's Delta table; those of batches after ``cut`` have the place ``LATER``."""
    told: Mapping[str, pl.Expr] = {
        PLACE: pl.when(written_after(cut)).then(pl.lit(LATER)).otherwise(pl.lit(DELTA)),
        ORIGIN: pl.lit(STREAM),
        REVISION: pl.col(REVISION).fill_null(NO_REVISION),
        EVIDENCE: pl.format(f"outputs/{flow.sink.table} batch {{}}/{{}}", _told(GENERATION), _told(BATCH)),
    }
    return as_copies(pl.scan_delta(tables.output(flow.sink.table)).with_columns(**told), flow)


def copies_in_corrections(tables: Tables, flow: Flow, backfills: Sequence[str] | None = None) -> pl.LazyFrame:
    """The rows that ``backfills`` (None: all) wrote for the sink."""
    path = tables.corrections(flow.sink.table)
    if not DeltaTable.is_deltatable(path):
        return pl.DataFrame(copy_schema(flow).empty_table()).lazy()
    told: Mapping[str, pl.Expr] = {
        PLACE: pl.lit(DELTA),
        ORIGIN: pl.lit(BY_BACKFILL),
        EVIDENCE: pl.format(f"corrections/{flow.sink.table} {{}}", _told(BACKFILL_ID)),
    }
    rows = pl.scan_delta(path)
    known = rows if backfills is None else rows.filter(pl.col(BACKFILL_ID).is_in(list(backfills)))
    return as_copies(known.with_columns(**told), flow)


def _told(name: str) -> pl.Expr:
    """A column as text, also where somebody wrote a row without it."""
    return pl.col(name).cast(pl.String).fill_null("?")


def written_after(order: Order) -> pl.Expr:
    """Whether a row was written by a batch after ``order``."""
    generation, batch = order
    same = (pl.col(GENERATION) == generation) & (pl.col(BATCH) > batch)
    return (pl.col(GENERATION) > generation) | same


def is_after(order: Order) -> Column:
    """The same for Spark."""
    generation, batch = order
    same = (F.col(GENERATION) == generation) & (F.col(BATCH) > batch)
    return (F.col(GENERATION) > generation) | same


def as_copies(rows: pl.LazyFrame, flow: Flow) -> pl.LazyFrame:
    """``rows`` in the columns of a copy, in their order and types."""
    columns = pl.DataFrame(copy_schema(flow).empty_table()).schema
    return rows.select(pl.col(name).cast(kind) for name, kind in columns.items())


def is_of_registry(written: Written) -> bool:
    """Whether values of the sink are read here."""
    return written.topic.encoding != "json"


def fields_of(value: bytes | None, written: Written) -> dict[str, Any] | None:
    """The fields of ``value`` but for the record key, null where its schema has none; None for no such value.

    Raises ``RegistryUnreachable`` and ``RegistryRefused``, for then nothing can be said of a value.
    """
    return _fields_of(value, written.topic.encoding, written.fields)


def decoded(value: Column, written: Written) -> Column:
    """``fields_of`` the bytes ``value`` as a struct of all fields."""
    encoding, fields = written.topic.encoding, dict(written.fields)
    schema = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in fields.items()])

    return F.udf(lambda one: _row(one, encoding, fields), schema)(value)


def _row(value: bytearray | None, encoding: str, fields: Mapping[str, FieldType]) -> tuple[Any, ...] | None:
    said = None if value is None else _fields_of(bytes(value), encoding, fields)
    return None if said is None else tuple(said.get(name) for name in fields)


def _fields_of(value: bytes | None, encoding: str, fields: Mapping[str, FieldType]) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return _parser(encoding, tuple((name, kind) for name, kind in fields.items() if name != KEY)).fields_of(value)
    except Bad:
        return None


@lru_cache(maxsize=64)
def _parser(encoding: str, fields: tuple[tuple[str, FieldType], ...]) -> AvroParser | ProtobufParser:
    schema = RecordSchema(fields=dict(fields))
    return AvroParser(schema, [], of_sink=True) if encoding == "avro" else ProtobufParser(schema, [], of_sink=True)


def copies_of(records: Iterable[CommittedRecord], flow: Flow) -> pa.Table:
    """The copies that ``records`` of the sink's topic are (``copy_schema``), with their offset as evidence.

    A value that is no result of this sink has nulls; a record without our headers, or under another key than its
    result's, has ``NO_REVISION``.
    """
    return pa.Table.from_pylist([_copy(record, flow) for record in records], schema=copy_schema(flow))


def copies_by_spark(session: SparkSession, connection: Connection, flow: Flow, ranges: Ranges) -> DataFrame:
    """The copies in ``ranges`` of the sink's topic."""
    columns = from_arrow_schema(copy_schema(flow))
    records = committed_records(session, connection, flow.sink.topic.name, ranges)
    if records is None:
        return session.createDataFrame([], columns)
    timestamp_ms = F.unix_millis("timestamp").alias("timestamp_ms")

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from copies_of(map(_of_row, batch.to_pylist()), flow).to_batches()

    rows = records.select("partition", "offset", timestamp_ms, "key", "value", headers_never_null())
    return rows.mapInArrow(decoded, columns)


def _of_row(row: dict[str, Any]) -> CommittedRecord:
    headers = tuple((header["key"], header["value"]) for header in row.pop("headers"))
    return CommittedRecord(**row, headers=headers)


def _copy(record: CommittedRecord, flow: Flow) -> dict[str, Any]:
    result = _result(record.value, flow)
    if flow.key == KEY:
        result[KEY] = text_of_bytes(record.key)
    has_own_key = record.key == encode_key(result[flow.key])
    return {
        **result,
        RESULT_TIME: record.event_time_ms,
        PLACE: KAFKA,
        ORIGIN: BY_BACKFILL if record.header(ORIGIN_HEADER) == BY_BACKFILL else STREAM,
        REVISION: _revision(record.header(REVISION_HEADER)) if has_own_key else NO_REVISION,
        EVIDENCE: f"{flow.sink.topic.name}-{record.partition}@{record.offset}",
    }


def _result(value: bytes | None, flow: Flow) -> dict[str, Any]:
    """The fields of the aggregate; None for each that ``value`` has not, or not as one of its type."""
    fields = flow.aggregate.fields
    if is_of_registry(flow.sink):
        return {**dict.fromkeys(fields), **(fields_of(value, flow.sink) or {})}
    said = _document(value)
    return {name: _value(said.get(name), kind) for name, kind in fields.items()}


def _document(value: bytes | None) -> dict[str, Any]:
    """The JSON object in ``value``; empty where it holds none."""
    try:
        said = json.loads(value or b"", parse_float=Decimal)
    except (ValueError, RecursionError, InvalidOperation):
        return {}
    return said if isinstance(said, dict) else {}


def _value(said: Any, kind: FieldType) -> Any:
    """``said`` as a value of ``kind``; None where it is none, to the last digit."""
    if isinstance(said, bool) or kind.kind == "boolean":
        return said if isinstance(said, bool) and kind.kind == "boolean" else None
    match kind.kind:
        case "string" if isinstance(said, str):
            return text_of_bytes(said.encode(errors="surrogatepass"))
        case "long" if isinstance(said, int) and -_MAX_LONG <= said < _MAX_LONG:
            return said
        case "double" if isinstance(said, int | float | Decimal):
            return _double(said)
        case "decimal" if isinstance(said, int | Decimal):
            return _decimal(Decimal(said), kind)
    return None


def _double(said: float | Decimal) -> float | None:
    try:
        return float(said)
    except OverflowError:
        return None


def _decimal(said: Decimal, kind: FieldType) -> Decimal | None:
    """``said`` with the decimal places of ``kind``; None where it has more.

    Arrow is not asked: of a decimal with many places it reads beyond its tables, and makes another number or ends the
    process.
    """
    try:
        made = said.quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
    except InvalidOperation:
        return None
    return made if made == said and made.copy_abs() < 10 ** (kind.precision - kind.scale) else None


def _revision(said: str | None) -> int:
    try:
        revision = int(said or "")
    except ValueError:
        return NO_REVISION
    return revision if 0 <= revision < _MAX_INT else NO_REVISION
