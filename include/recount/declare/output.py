"""Output records: one encoding for every implementation, their size limit, and the age at which Kafka deletes.

The value is a JSON object with the sink's fields in declared order and no spaces; decimals are numbers written with
their full scale. Where the topic has a plain value, it is that field alone, texts without quotes; Avro is made in
``recount.formats``. Same row, same bytes: that is how two runs are compared.

A result counts by the bytes of its key and its value as they are published, before compression. Its limit is less than
the topic's ``max.message.bytes``: beside key and value the broker counts headers, and a codec can make bytes larger.

The time of a result's record is its event time. Where ``cleanup.policy`` has ``delete``, brokers delete the record
``retention.ms`` after it: results of 2013 go within five minutes from a topic that keeps seven days. Delta has them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Literal

from recount.declare.expressions import JSON_SIZE, PLAIN_SIZE, Call, Column, Expression
from recount.declare.expressions import Literal as Constant
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START, Filter, Node, SelectKey, Source, WithFields
from recount.declare.operators.processing import Deduplicate, Process
from recount.declare.operators.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.declare.operators.tables import TableFilter, ToTable, is_read_as_table
from recount.declare.schema import FieldType, with_places
from recount.declare.topics import LARGEST_RECORD, UNLIMITED_RETENTION_MS, Topic
from recount.runtime.errors import require
from recount.runtime.times import quantity, readable, told_time

Origin = Literal["stream", "backfill"]
REVISION_HEADER, ORIGIN_HEADER, WINDOW_HEADER = "recount-revision", "recount-origin", "recount-window"
SOURCE_HEADER = "recount-source"
"""Of a record that is no window's result: which records of the log it was made of, ``orders-0@12+payments-3@7``."""
VERSION_HEADER = "recount-version"
"""Of a record that a stream wrote after a reset: the stream's version, 2 or more. Revisions count within a version."""
TIME_HEADER = "recount-timestamp"
"""Of a record whose time is the epoch, 0 ms, which Kafka's clients take for now: it is in the topic at 1 ms."""
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
"""At hand, for ``json.dumps`` with settings builds one each time: with that a record costs twice as much."""
OnTooLarge = Literal["stop", "dead-letter"]
TOO_LARGE = "too-large"
"""How the reason of a record begins that was set aside because its result does not fit."""
_HEADERS, _SHARE_OF_CODEC = 1_024, 256
_LEAST = 2_048
_MOST_SHOWN = 40
_STATELESS = (Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through, Merge)
_PASS = (Source, *_STATELESS, ToTable, TableFilter)
REMEDY = "declare retention_ms=-1, or one that is longer than the data is old, and `recount topics --apply`"


@dataclass(frozen=True, kw_only=True)
class OutputRecord:
    """A record for a sink's topic. ``revision`` 0 is the first result of its key and window; later ones are higher."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes]] = ()


def output_record(
    row: Mapping[str, Any],
    *,
    key: str,
    fields: Mapping[str, FieldType],
    timestamp_ms: int,
    revision: int,
    origin: Origin,
    is_null: bool = False,
    source: str | None = None,
    version: int = 1,
    plain: str | None = None,
    encode: Callable[[Mapping[str, Any]], bytes] | None = None,
) -> OutputRecord:
    """The record of ``row`` whose key is the field ``key``; ``timestamp_ms`` is the largest event time behind it.

    ``is_null``: a deletion, with a null value. ``source``: what it was made of, see ``SOURCE_HEADER``. ``version``: the
    stream's, see ``VERSION_HEADER``. ``plain``: the field that is the whole value, see ``Topic.plain_field``.
    ``encode``: how the fields are written where they are no JSON.
    """
    headers = [(REVISION_HEADER, b"%d" % revision), (ORIGIN_HEADER, origin.encode()), *version_header(version)]
    # a record of others can have fields of these names, and no value in them
    if WINDOW_START in fields and row[WINDOW_START] is not None and row[WINDOW_END] is not None:
        headers.append((WINDOW_HEADER, b"%d/%d" % (row[WINDOW_START], row[WINDOW_END])))
    if source is not None:
        headers.append((SOURCE_HEADER, source.encode()))
    headers += time_header(timestamp_ms)
    if is_null:
        value = None
    elif plain is not None:
        value = encode_plain(with_places(row[plain], fields[plain]))
    else:
        value = (encode or encode_value)(fields_of(row, {name: fields[name] for name in fields if name != KEY}))
    return OutputRecord(key=encode_key(row[key]), value=value, timestamp_ms=timestamp_ms, headers=tuple(headers))


def fields_of(row: Mapping[str, Any], fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """The ``fields`` of ``row``, decimals with all their places: as they are encoded."""
    return {name: with_places(row[name], kind) for name, kind in fields.items()}


def version_header(version: int) -> tuple[tuple[str, bytes], ...]:
    """The header that says the ``version`` of the stream; none for the first."""
    return () if version == 1 else ((VERSION_HEADER, b"%d" % version),)


def kafka_time_ms(timestamp_ms: int) -> int:
    """Return the time under which a record of ``timestamp_ms`` is in its topic; see ``TIME_HEADER``.

    librdkafka and those who build on it have no way to say 0: they write the time of sending instead.
    """
    return max(timestamp_ms, 1)


def time_header(timestamp_ms: int) -> tuple[tuple[str, bytes], ...]:
    """The header that a record of ``timestamp_ms`` needs to tell its time."""
    return () if timestamp_ms > 0 else ((TIME_HEADER, b"%d" % timestamp_ms),)


def encode_key(key: str | int | None) -> bytes | None:
    return None if key is None else str(key).encode()


def encode_value(row: Mapping[str, Any]) -> bytes:
    """``row`` as compact JSON with exact decimals.

    >>> encode_value({"region": "EU", "orders": 2, "revenue": Decimal("10.50")})
    b'{"region":"EU","orders":2,"revenue":10.50}'
    """
    members = (f"{_name(name)}:{_encode(value)}" for name, value in row.items())
    return ("{" + ",".join(members) + "}").encode()


def encode_plain(value: Any) -> bytes | None:
    """``value`` alone, as ``PlainValue`` reads it; a null has no text and is a null value.

    >>> encode_plain('say "hi"'), encode_plain(Decimal("10.50")), encode_plain(True)
    (b'say "hi"', b'10.50', b'true')
    """
    if value is None:
        return None
    return (value if isinstance(value, str) else _encode(value)).encode()


@cache
def _name(name: str) -> str:
    return json.dumps(name)


def _encode(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, list):
        return f"[{','.join(map(_encode, value))}]"
    return str(value) if type(value) is int else _JSON.encode(value)


@dataclass(frozen=True, eq=False)
class Fits(Call):
    """Whether the result for ``topic`` has at most ``limit`` bytes; ``fitting`` declares it."""

    topic: str
    limit: int

    @property
    def measured(self) -> Call:
        size = self.arguments[0]
        assert isinstance(size, Call)
        return size

    def __str__(self) -> str:
        return f"size for {self.topic} <= {self.limit:,} bytes"


class TooLarge(ValueError):
    """The result that ``fits`` does not let pass, which has ``size`` bytes and the key ``key``."""

    def __init__(self, fits: Fits, size: int, key: object) -> None:
        self.reason = f"{TOO_LARGE}: result for {fits.topic}, limit {fits.limit}"
        shown = repr(key) if len(repr(key)) <= _MOST_SHOWN else f"{repr(key)[:_MOST_SHOWN]}…"
        super().__init__(f"key {shown}, {size} bytes; {LARGEST_RECORD} of {fits.topic} allows for {fits.limit}")


def largest_result(largest_batch: int) -> int:
    """The most bytes of a key and its value in a topic with this ``max.message.bytes``.

    1,024 bytes go off for what the broker counts beside them, and a 256th for a codec that makes bytes larger.

    >>> largest_result(1_048_588)
    1043468
    """
    return largest_batch - _HEADERS - largest_batch // _SHARE_OF_CODEC


def fitting(above: Node, topic: Topic, on_too_large: OnTooLarge) -> Node:
    """Return what the sink to ``topic`` reads: ``above``, or those of its rows that fit.

    Raises ``InvalidDeclaration`` where ``topic`` says no limit or is not in text, or where a row can be no record's.
    """
    field = f"on_too_large of sink {topic.name}"
    require(on_too_large in ("stop", "dead-letter"), "on-too-large-unknown", given=on_too_large, field=field)
    if on_too_large == "stop":
        return above
    require(
        not topic.is_of_registry, "too-large-in-a-registry-format", given=f"encoding={topic.encoding!r}", field=field
    )
    largest = topic.configs.get(LARGEST_RECORD, "")
    require(
        largest.isdecimal() and int(largest) >= _LEAST,
        "too-large-without-a-limit",
        given=f"{LARGEST_RECORD} {largest}" if largest else f"a topic without {LARGEST_RECORD}",
        field=field,
        least=_LEAST,
        setting=LARGEST_RECORD,
    )
    _require_records(field, above)
    limit = largest_result(int(largest))
    fields = [above.key, *(name for name in above.fields if name != KEY)]
    if topic.plain_field is not None:
        fields = [above.key, topic.plain_field]
    size = Call(JSON_SIZE if topic.plain_field is None else PLAIN_SIZE, tuple(map(Column, fields)))
    fits = Fits("<=", (size, Constant(limit)), topic=topic.name, limit=limit)
    kind = TableFilter if is_read_as_table(_below(above)) else Filter
    return kind(input=above, predicate=fits)


def fits_of(node: Node) -> Fits | None:
    """Which results ``node`` lets pass, where it is the filter of a sink."""
    predicate: Expression | None = node.predicate if isinstance(node, Filter | TableFilter) else None
    return predicate if isinstance(predicate, Fits) else None


def encoded_size(tree: Call, row: Mapping[str, Any], fields: Mapping[str, FieldType]) -> int:
    """The bytes of key and value that ``tree``, a size, is about."""
    key, *value = (argument.name for argument in tree.arguments if isinstance(argument, Column))
    cells = fields_of(row, {name: fields[name] for name in value})
    encoded = encode_value(cells) if tree.operator == JSON_SIZE else encode_plain(cells[value[0]])
    return len(encode_key(row[key]) or b"") + len(encoded or b"")


def _below(node: Node) -> Node:
    """The operator above those that hand on a table's changes as they are."""
    while isinstance(node, Peek | Repartition | Through):
        node = node.input
    return node


def _require_records(field: str, node: Node) -> None:
    """Refuse rows that are no record's, or whose record an earlier batch has read: there is none to set aside."""
    is_of_records = (
        isinstance(node, _PASS)
        or (isinstance(node, StreamTableJoin) and node.grace_ms is None)
        or (isinstance(node, Deduplicate) and node.partitioned)
        or (isinstance(node, Process) and node.on_timer is None)
    )
    require(is_of_records, "too-large-of-changing-results", given=str(node), field=field)
    inputs: Sequence[Node] = (node.left,) if isinstance(node, StreamTableJoin) else node.inputs
    for above in inputs:
        _require_records(field, above)


def kept_for_ms(topic: Topic) -> int | None:
    """How long after its time a record of ``topic`` is deleted; None where none is, by its age."""
    is_kept = topic.cleanup_policy == "compact" or topic.retention_ms == UNLIMITED_RETENTION_MS
    return None if is_kept else topic.retention_ms


def oldest_kept_ms(topic: Topic, now_ms: int) -> int | None:
    """The time before which brokers delete records of ``topic`` at ``now_ms``; None where they delete none."""
    kept_ms = kept_for_ms(topic)
    return None if kept_ms is None else now_ms - kept_ms


def deleted_at_once(topic: Topic, results: int, of: int, first_ms: int) -> str:
    """The warning: so many ``results`` ``of`` all, the oldest at ``first_ms``, were too old for ``topic``."""
    return (
        f"{results:,} of {quantity(of, 'result')} in {topic.name} were older than its retention when they were written"
        f" ({readable(topic.retention_ms)}; the first is of {told_time(first_ms)}): Kafka deletes them; {REMEDY}"
    )


def will_be_deleted(topic: Topic, source: str, first_ms: int) -> str:
    """The warning before a start: ``source`` has records from ``first_ms`` on, whose results ``topic`` cannot keep."""
    return (
        f"{source} has records of {told_time(first_ms)}, and {topic.name} keeps results for "
        f"{readable(topic.retention_ms)} after their event time: Kafka would delete theirs at once; {REMEDY}"
    )
