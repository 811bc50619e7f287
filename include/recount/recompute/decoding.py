"""From raw bytes to declared fields, and what makes a record bad: the first reason that holds counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from recount.declare.operators.nodes import KEY, Source
from recount.declare.plain_values import PlainValue
from recount.declare.schema import RecordSchema
from recount.recompute.parsing import Parsed, Parser
from recount.recompute.raw_log import runs
from recount.recompute.registry_parsing import AvroParser, HeaderParser, ProtobufParser, fetched_schema, is_with_headers
from recount.recompute.rules.value_rules import (
    Bad,
    as_values,
    base64_of,
    has_key_fields,
    headers_named,
    keys_named,
    scalar_of,
    text_of,
    within_one_field,
    within_one_field_of,
)
from recount.recompute.spark_columns import spark_type

NO_LIMIT_MS = 2**63 - 1
_BY_ENCODING: dict[str, type[Parser] | type[AvroParser] | type[ProtobufParser]] = {
    "json": Parser,
    "avro": AvroParser,
    "protobuf": ProtobufParser,
}
IS_NULL = "__is_null"
"""The column that says whether a record's value is null, a tombstone."""


class PlainParser:
    """Parses the plain values of one topic; see ``scalar_of``."""

    def __init__(self, declared: PlainValue) -> None:
        self._name, self._kind = declared.name, declared.kind

    def parsed(self, values: Sequence[bytes | None]) -> Parsed:
        """All of ``values``; one that is None is no bad one."""
        cells: list[Any] = [None] * len(values)
        bad = {}
        for index, value in enumerate(values):
            try:
                cells[index] = None if value is None else scalar_of(value, self._kind)
            except Bad as fault:
                bad[index] = fault.reason, fault.detail
        return Parsed({self._name: pa.array(cells, to_arrow_type(spark_type(self._kind)))}, bad)


_Parser = Parser | PlainParser | AvroParser | ProtobufParser


class Reading(Protocol):
    """The decoded part of a topic, and whether a record without a key is bad."""

    @property
    def source(self) -> Source:
        """The topic."""

    @property
    def columns_read(self) -> Sequence[str]:
        """The fields of the value that are needed."""

    @property
    def needs_record_key(self) -> bool:
        """Whether a record without a key is bad."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The latest event time that is not absurd, per offset: ``latest_ms[i]`` from offset ``starts[i]`` on.

    It follows from the recorded time of the batch that read the offset. Beside ``set_aside``, the offsets that somebody
    has ordered to set aside, it is the one input that is not in the log.
    """

    starts: Sequence[int]
    latest_ms: Sequence[int]
    set_aside: frozenset[int] = frozenset()

    def at(self, offsets: np.ndarray) -> np.ndarray:
        """The limit of each of ``offsets``; there is none below the first start."""
        index = np.searchsorted(np.asarray(self.starts), offsets, side="right")
        return np.asarray([NO_LIMIT_MS, *self.latest_ms])[index]


@dataclass(frozen=True, kw_only=True)
class DecodePass:
    """One task's pass over its records: their fields, key, event time, and ``reason``, ``detail`` of bad ones.

    ``timestamp_ms`` of a bad record is the one that Kafka has: its event time may be what is bad about it. ``prefix``
    goes before the names of the fields, so that any field can be called ``reason``. A field of ``read_since`` was read
    from these offsets on, by partition (none: from its first): of records before it is null, whatever they have there.
    """

    flow: Reading
    limits: Mapping[int, Limits]
    prefix: str = ""
    read_since: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def schema(self) -> T.StructType:
        """The columns that leave the pass."""
        columns = {
            "partition": T.IntegerType(),
            "offset": T.LongType(),
            "timestamp_ms": T.LongType(),
            KEY: T.StringType(),
            "reason": T.StringType(),
            "detail": T.StringType(),
            IS_NULL: T.BooleanType(),
            **{self.prefix + name: spark_type(self._value.fields[name]) for name in self.flow.columns_read},
        }
        return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of whole partitions in offset order, in and out."""
        last: dict[int, int] = {}
        parsers: dict[frozenset[str], _Parser] = {}
        source = self.flow.source
        of_keys = KeyParser(source, self.flow.columns_read) if has_key_fields(source) else None
        for batch in batches:
            for partition, records in runs(batch, last):
                for unread, stretch in self._stretches(partition, records):
                    parser = parsers.setdefault(unread, self._parser(unread))
                    parsed = parser.parsed(stretch.column("value").to_pylist())
                    if is_with_headers(source):
                        parsed = self._headers(unread).added(parsed, stretch)
                    raw_keys = stretch.column("key")
                    if of_keys is not None:
                        parsed, keys = of_keys.added(parsed, raw_keys.to_pylist())
                    else:
                        keys = _in_base64(raw_keys) if source.topic.key_form == "bytes" else _texts(raw_keys)
                    yield self._decoded(parsed, keys, self.limits.get(partition), stretch)

    def _stretches(self, partition: int, records: pa.RecordBatch) -> Iterator[tuple[frozenset[str], pa.RecordBatch]]:
        """``records`` cut where another field begins to be read, with the fields that were not read yet."""
        firsts = {name: since.get(partition, 0) for name, since in self.read_since.items()}
        offsets = records.column("offset").to_numpy()
        cuts = sorted({0, records.num_rows, *np.searchsorted(offsets, list(firsts.values())).tolist()})
        for start, end in pairwise(cuts):
            unread = frozenset(name for name, first in firsts.items() if offsets[start] < first)
            yield unread, records.slice(start, end - start)

    def _parser(self, unread: frozenset[str]) -> _Parser:
        if isinstance(self._value, PlainValue):
            return PlainParser(self._value)
        elsewhere = {*headers_named(self._value), *keys_named(self._value)}
        kept = _without(self._value, unread | elsewhere)
        wanted = [name for name in self.flow.columns_read if name in kept.fields]
        return _BY_ENCODING[self.flow.source.topic.encoding](kept, wanted)

    def _headers(self, unread: frozenset[str]) -> HeaderParser:
        assert isinstance(self._value, RecordSchema)
        return HeaderParser(_without(self._value, unread), self.flow.columns_read)

    @property
    def _value(self) -> RecordSchema | PlainValue:
        assert self.flow.source.topic.value is not None
        return self.flow.source.topic.value

    def _decoded(
        self, parsed: Parsed, keys: pa.Array, limits: Limits | None, records: pa.RecordBatch
    ) -> pa.RecordBatch:
        event_time = self.flow.source.topic.event_time
        times = parsed.columns[event_time] if event_time else records.column("timestamp_ms")
        raw_keys = records.column("key")
        faults = dict(parsed.bad)

        def reject(bad: np.ndarray, reason: str, detail: str) -> None:
            for index in np.flatnonzero(bad).tolist():
                faults.setdefault(index, (reason, detail))

        if self.flow.needs_record_key:
            reject(_nulls(raw_keys), "null-key", "the record has no key")
            reject(_nulls(keys), "undecodable", "the key is no text")
        milliseconds = times.fill_null(0).to_numpy(zero_copy_only=False)
        reject(_nulls(times), "schema", f"event time {event_time} is missing")
        reject(milliseconds < 0, "negative-timestamp", "event time is before the epoch")
        if limits:
            latest_ms = limits.at(records.column("offset").to_numpy())
            reject(milliseconds > latest_ms, "future-timestamp", "event time is too far in the future")
            if limits.set_aside:
                ordered = np.isin(records.column("offset").to_numpy(), list(limits.set_aside))
                # by order, whatever else is wrong with the record
                faults |= dict.fromkeys(np.flatnonzero(ordered).tolist(), ("set-aside", "somebody ordered it"))
        if event_time and faults:
            bad = pa.array([index in faults for index in range(records.num_rows)])
            times = pc.if_else(bad, records.column("timestamp_ms"), times)
        said = [faults.get(index, (None, None)) for index in range(records.num_rows)] if faults else []
        reasons, details = ([text[part] for text in said] or [None] * records.num_rows for part in (0, 1))
        return pa.record_batch(
            [
                records.column("partition"),
                records.column("offset"),
                times,
                keys,
                pa.array(reasons, pa.string()),
                pa.array(details, pa.string()),
                records.column("value").is_null(),
                *(parsed.columns.get(name, self._nothing(name, records)) for name in self.flow.columns_read),
            ],
            names=[field.name for field in self.schema],
        )

    def _nothing(self, name: str, records: pa.RecordBatch) -> pa.Array:
        return pa.nulls(records.num_rows, to_arrow_type(spark_type(self._value.fields[name])))


def _without(schema: RecordSchema, names: frozenset[str]) -> RecordSchema:
    fields = {name: kind for name, kind in schema.fields.items() if name not in names}
    return replace(schema, fields=fields, required=schema.required & fields.keys())


def _texts(keys: pa.Array) -> pa.Array:
    """Keys as text, null where they are not UTF-8."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(key) for key in keys.to_pylist()], pa.string())


def _in_base64(keys: pa.Array) -> pa.Array:
    return pa.array([None if key is None else base64_of(key) for key in keys.to_pylist()], pa.string())


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else str(key, "utf-8")
    except UnicodeDecodeError:
        return None


def _nulls(values: pa.Array) -> np.ndarray:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool)


class KeyParser:
    """Reads the keys of a ``source`` with fields of them; ``wanted`` limits what is returned, never what is checked."""

    def __init__(self, source: Source, wanted: Sequence[str]) -> None:
        assert isinstance(source.topic.value, RecordSchema)
        self._schema = as_values(source.topic.value)
        self._wanted = [name for name in self._schema.fields if name in wanted]
        self._parser = _parser(source.topic.key_form, self._schema)

    def added(self, parsed: Parsed, keys: Sequence[bytes | None]) -> tuple[Parsed, pa.Array]:
        """``parsed``, the values of the records, with their ``keys``, and those as rows have them."""
        found = self._parser.parsed(keys)
        needed = next((name for name in self._schema.fields if name in self._schema.required), None)
        bad = {**found.bad}
        if needed is not None:
            bad |= {index: ("schema", f"no {needed}: no key") for index, key in enumerate(keys) if key is None}
        cells = {name: column.to_pylist() for name, column in found.columns.items()}
        texts = [text_of({name: column[index] for name, column in cells.items()}) for index in range(len(keys))]
        more = {name: found.columns[name] for name in self._wanted}
        return Parsed({**parsed.columns, **more}, {**bad, **parsed.bad}), pa.array(texts, pa.string())


def _parser(form: str, schema: RecordSchema) -> Parser | AvroParser | ProtobufParser:
    names = list(schema.fields)
    if form == "avro":
        return AvroParser(within_one_field(schema), names, lambda number: within_one_field_of(fetched_schema(number)))
    return ProtobufParser(schema, names) if form == "protobuf" else Parser(schema, names)
