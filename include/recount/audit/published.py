"""The committed records of the sink's topic, decoded to copies of results: here, or in Spark's tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from recount.audit import published_values
from recount.audit.committed import CommittedRecord, committed_records, text_of_bytes
from recount.audit.copies import BACKFILL, KAFKA, NO_REVISION, STREAM, copy_schema
from recount.core.nodes import KEY
from recount.core.output import ORIGIN_HEADER, REVISION_HEADER, encode_key
from recount.core.own_columns import EVIDENCE, ORIGIN, PLACE, RESULT_TIME, REVISION
from recount.core.schema import FieldType
from recount.kafka.connection import Connection
from recount.recompute.flow import Flow
from recount.recompute.log import Ranges, headers_never_null

_MAX_LONG, _MAX_INT = 2**63, 2**31
_WIDE = Context(prec=100)


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
        ORIGIN: BACKFILL if record.header(ORIGIN_HEADER) == BACKFILL else STREAM,
        REVISION: _revision(record.header(REVISION_HEADER)) if has_own_key else NO_REVISION,
        EVIDENCE: f"{flow.sink.topic.name}-{record.partition}@{record.offset}",
    }


def _result(value: bytes | None, flow: Flow) -> dict[str, Any]:
    """The fields of the aggregate; None for each that ``value`` has not, or not as one of its type."""
    fields = flow.aggregate.fields
    if published_values.is_of_registry(flow.sink):
        return {**dict.fromkeys(fields), **(published_values.fields_of(value, flow.sink) or {})}
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
