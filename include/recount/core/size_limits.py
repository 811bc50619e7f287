"""Results that are larger than their topic takes: the limit of a sink, and the filter that keeps to it.

A result counts by the bytes of its key and its value as they are published, before compression. Its limit is less than
the topic's ``max.message.bytes``: beside key and value the broker counts headers, and a codec can make bytes larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recount.core.changelogs import TableFilter, ToTable, is_read_as_table
from recount.core.errors import require
from recount.core.expressions import JSON_SIZE, PLAIN_SIZE, Call, Column, Expression
from recount.core.expressions import Literal as Constant
from recount.core.joins import StreamTableJoin
from recount.core.nodes import KEY, Filter, Node, SelectKey, Source, WithFields
from recount.core.output import encode_key, encode_plain, encode_value, fields_of
from recount.core.processing import Deduplicate, Process
from recount.core.schema import FieldType
from recount.core.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.core.topics import LARGEST_RECORD, Topic

OnTooLarge = Literal["stop", "dead-letter"]
TOO_LARGE = "too-large"
"""How the reason of a record begins that was set aside because its result does not fit."""
_HEADERS, _SHARE_OF_CODEC = 1_024, 256
_LEAST = 2_048
_MOST_SHOWN = 40
_STATELESS = (Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through, Merge)
_PASS = (Source, *_STATELESS, ToTable, TableFilter)


@dataclass(frozen=True, eq=False)
class Fits(Call):
    """Whether the result for ``topic`` has at most ``limit`` bytes; ``fitting`` declares it."""

    topic: str
    limit: int

    @property
    def measured(self) -> Call:
        """The number of bytes."""
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
    """What the sink to ``topic`` reads: ``above``, or those of its rows that fit.

    Raises ``InvalidDeclaration`` where ``topic`` says no limit or is not in text, or where a row can be no record's.
    """
    field = f"on_too_large of sink {topic.name}"
    require(
        on_too_large in ("stop", "dead-letter"),
        field,
        given=on_too_large,
        expected="'stop' or 'dead-letter'",
        remedy="choose whether a result that its topic does not take stops the stream or is set aside",
    )
    if on_too_large == "stop":
        return above
    require(
        not topic.is_of_registry,
        field,
        given=f"encoding={topic.encoding!r}",
        expected="JSON or a plain value, of which the declaration says the size",
        remedy="leave on_too_large out: the stream stops at a result that its topic does not take",
    )
    largest = topic.configs.get(LARGEST_RECORD, "")
    require(
        largest.isdecimal() and int(largest) >= _LEAST,
        field,
        given=f"{LARGEST_RECORD} {largest}" if largest else f"a topic without {LARGEST_RECORD}",
        expected=f"a limit that is declared, a whole number of at least {_LEAST} bytes",
        remedy=f'Topic(..., configs={{"{LARGEST_RECORD}": "1048588"}}), and apply it with `recount topics --apply`',
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
    require(
        is_of_records,
        field,
        given=str(node),
        expected="results that are each made of one record as it is read: it becomes the dead letter",
        remedy="filter long texts before, or leave on_too_large out: the stream stops at a result that is too large",
    )
    inputs: Sequence[Node] = (node.left,) if isinstance(node, StreamTableJoin) else node.inputs
    for above in inputs:
        _require_records(field, above)
