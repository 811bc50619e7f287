"""Records that a sink's topic holds: their places, the order of batches, and their values as the sink declares them.

A value must be one that a stream writes. Avro and Protobuf values are read by the recompute's own reader, not by what
wrote them; JSON values and plain ones are written again, and must come out as they are.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Self

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from recount.audit.compare.committed import CommittedRecord, text_of_bytes
from recount.audit.cut.audited_ledger import Order
from recount.declare.columns import BATCH, GENERATION
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.output import (
    ORIGIN_HEADER,
    REVISION_HEADER,
    SOURCE_HEADER,
    WINDOW_HEADER,
    encode_plain,
    encode_value,
)
from recount.declare.plain_values import PlainValue
from recount.declare.schema import FieldType, RecordSchema
from recount.declare.topology import Written
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.registry_parsing import AvroParser, ProtobufParser
from recount.recompute.rules.value_rules import Bad
from recount.recompute.spark_columns import spark_type

KAFKA, DELTA, LATER = "kafka", "delta", "later"
BY_BACKFILL = "backfill"
NO_REVISION = -1
AT, DELETES, ORIGIN, NUMBER, PLACE, OF_BACKFILL = (
    "__at_ms",
    "__is_null",
    "__origin",
    "__revision",
    "__place",
    "of_backfill",
)
"""Columns of published rows behind their fields; ``OF_BACKFILL``: whether the record says to be of a backfill."""
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def written_after(order: Order) -> pl.Expr:
    """Whether a row was written by a batch after ``order``."""
    generation, batch = order
    same = (pl.col(GENERATION) == generation) & (pl.col(BATCH) > batch)
    return (pl.col(GENERATION) > generation) | same


def is_after(order: Order) -> Column:
    """The same for frames."""
    generation, batch = order
    same = (F.col(GENERATION) == generation) & (F.col(BATCH) > batch)
    return (F.col(GENERATION) > generation) | same


@dataclass(frozen=True, kw_only=True)
class PublishedRows:
    """Rows that records of the sink's ``topic`` say, with its ``fields`` and ``key``.

    A record without our headers, or whose record key is not that of its value, has ``NO_REVISION``. The fields of a
    value that no stream writes are null, and the row deletes nothing.
    """

    topic: str
    key: str
    fields: Mapping[str, FieldType]
    written: Mapping[str, FieldType]
    encoding: str
    plain: PlainValue | None

    @classmethod
    def of(cls, written: Written, fields: Mapping[str, FieldType]) -> Self:
        topic = written.topic
        plain = topic.value if isinstance(topic.value, PlainValue) else None
        return cls(
            topic=topic.name,
            key=written.key,
            fields=dict(fields),
            written=dict(written.fields),
            encoding=topic.encoding,
            plain=plain,
        )

    @property
    def schema(self) -> pa.Schema:
        fields = [(name, to_arrow_type(spark_type(kind))) for name, kind in self.fields.items()]
        told = [(AT, pa.int64()), (DELETES, pa.bool_()), (ORIGIN, pa.string()), (NUMBER, pa.int32())]
        return pa.schema([*fields, *told, (PLACE, pa.string()), (OF_BACKFILL, pa.bool_())])

    def __call__(self, record: CommittedRecord) -> tuple[Any, ...]:
        key = text_of_bytes(record.key)
        said = {} if record.value is None else self._decoded(record.value) or {}
        found = {name: said.get(name) for name in self.fields}
        if KEY in found:
            found[KEY] = key
        if found.get(self.key) is None and self.key in found:
            found[self.key] = _as_key(key, self.fields[self.key])
        if WINDOW_START in found or WINDOW_END in found:
            bounds = (record.header(WINDOW_HEADER) or "").split("/")
            for bound, text in zip((WINDOW_START, WINDOW_END), bounds, strict=False):
                if bound in found and found[bound] is None:
                    found[bound] = _whole(text, 64)
        own = found[self.key]
        has_own_key = key == (None if own is None else str(own)) and (record.key is None) == (key is None)
        revision = _whole(record.header(REVISION_HEADER), 32)
        return (
            *found.values(),
            record.event_time_ms,
            record.value is None,
            record.header(SOURCE_HEADER),
            revision if has_own_key and revision is not None else NO_REVISION,
            f"{self.topic}-{record.partition}@{record.offset}",
            record.header(ORIGIN_HEADER) == BY_BACKFILL,
        )

    def _decoded(self, value: bytes) -> Mapping[str, Any] | None:
        if self.encoding != "json":
            return fields_of(value, self.encoding, self.written)
        if self.plain is not None:
            return {self.plain.name: plain_of(value, self.plain)}
        return json_of(value, self.written)


def json_of(value: bytes, fields: Mapping[str, FieldType]) -> dict[str, Any] | None:
    """The fields of the bytes ``value``; None where they are not what ``encode_value`` makes of a row of ``fields``.

    Some may be missing: they are from before these were declared.
    """
    try:
        row = {name: one for name, one in typed_row(_read(value.decode()), fields).items() if name != KEY}
        is_ours = encode_value({name: row[name] for name in fields if name in row}) == value
    except (ValueError, KeyError, AttributeError, RecursionError, InvalidOperation, OverflowError):
        return None
    return row if is_ours else None


def kept_rows(text: str, fields: Mapping[str, FieldType]) -> list[tuple[dict[str, Any] | None, int]]:
    """The rows, each with its time, of which an audit has kept ``text``, see ``kept_for_backfills``."""
    said = _read(text)
    return [(one["row"] and typed_row(one["row"], fields), int(one["at_ms"])) for one in said]


def typed_row(said: Any, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """The members of a JSON object as ``fields`` hold them; ``ValueError`` or ``KeyError`` for what they do not."""
    return {name: _typed(one, fields[name]) for name, one in said.items()}


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


_read = json.JSONDecoder(parse_float=_Number, parse_int=_Number).decode


def _typed(said: Any, kind: FieldType) -> Any:
    """``said`` as ``kind`` holds it; what it does not hold as it is raises ``ValueError`` or is encoded otherwise."""
    if said is None:
        return None
    if kind.element is not None:
        return [_typed(one, kind.element) for one in _of(list, said)]
    match kind.kind:
        case "string" if not isinstance(said, _Number):
            text: str = _of(str, said)
            text.encode()
            return text
        case "boolean":
            return _of(bool, said)
        case "long":
            number = int(_of(_Number, said))
            if -(2**63) <= number < 2**63:
                return number
        case "double":
            return float(said if isinstance(said, float) else _of(_Number, said))
        case "decimal":
            made = Decimal(_of(_Number, said))
            if made.as_tuple().exponent == -kind.scale and len(made.as_tuple().digits) <= kind.precision:
                return made
    raise ValueError(said)


def _of(expected: type, said: Any) -> Any:
    if not isinstance(said, expected):
        raise ValueError(said)
    return said


def plain_of(value: bytes, declared: PlainValue) -> Any:
    """The bytes ``value`` as the type of ``declared`` holds them; None where ``encode_plain`` makes no such bytes."""
    kind = declared.kind
    try:
        text = value.decode()
        if kind.kind == "boolean":
            return {"true": True, "false": False}.get(text)
        if kind.kind == "string":
            return text
        said = _typed(_Number(text), kind) if _NUMBER.fullmatch(text) else None
    except (ValueError, InvalidOperation):
        return None
    return said if encode_plain(said) == value else None


def _as_key(text: str | None, kind: FieldType) -> str | int | None:
    return text if kind.kind == "string" else _whole(text, 64)


def _whole(text: str | None, bits: int) -> int | None:
    if text is None or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def fields_of(value: bytes, encoding: str, fields: Mapping[str, FieldType]) -> dict[str, Any] | None:
    """The ``fields`` of ``value`` but for the record key, null where its schema has none; None for no such value.

    Raises ``RegistryUnreachable`` and ``RegistryRefused``, for then nothing can be said of a value.
    """
    try:
        return _parser(encoding, tuple((name, kind) for name, kind in fields.items() if name != KEY)).fields_of(value)
    except Bad:
        return None


@lru_cache(maxsize=64)
def _parser(encoding: str, fields: tuple[tuple[str, FieldType], ...]) -> AvroParser | ProtobufParser:
    schema = RecordSchema(fields=dict(fields))
    return AvroParser(schema, [], of_sink=True) if encoding == "avro" else ProtobufParser(schema, [], of_sink=True)
