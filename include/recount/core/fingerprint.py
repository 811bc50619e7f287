"""What a declaration means, as one canonical document and its SHA-256.

Two declarations with one fingerprint give the same results from the same log. The document holds every operator with
all its parameters, whatever a new operator adds, except what is listed here as without influence on a result. It
does not depend on names of Python variables, on the order of declarations, sinks or keywords, nor on the process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from recount.core.archive import Archive
from recount.core.expressions import Call, Column, Expression, Literal
from recount.core.function_code import code_of
from recount.core.nodes import Node, Sink, Source
from recount.core.schema import FieldType
from recount.core.stateless import Foreach, Peek, Repartition, Through
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.core.windows import TimeWindows

FORMAT = 1
"""Of the document. A change of it changes every fingerprint: raise ``SEMANTICS_VERSION`` instead where rules change."""
SEMANTICS_VERSION = 1
"""Of docs/semantics.md as engine, recompute and interpreter apply it: raised when the same declaration means more,
less or something else than before."""

Document = Mapping[str, Any]

TOPOLOGY_MEANS = ("idle_after", "max_future")
_PASS = (Peek, Repartition)
"""Operators that hand every record on and change none; their parameters mean nothing to a result."""
_INPUTS = frozenset({"input", "inputs", "left", "right"})
_WITHOUT_MEANING = frozenset({"action", "word"})
_WORDS = {"WindowedAggregate": "aggregation", "WithFields": "fields", "FlatMap": "map", "SelectKey": "key"}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The document of a declaration, with its fingerprint."""

    document: Document

    @classmethod
    def of(cls, declaration: Topology | Archive) -> Declared:
        """That of a topology or an archive."""
        if isinstance(declaration, Archive):
            return cls(document={"format": FORMAT, "kind": "archive", "topic": declaration.topic.name})
        return cls(document=_topology(declaration))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON of the document."""
        return digest(self.document)


def digest(value: object) -> str:
    """SHA-256 of ``value`` as JSON without spaces, keys sorted."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def operator_numbers(topology: Topology) -> dict[Node, int]:
    """The operators that mean something, numbered inputs first, alike for every order in which sinks are declared.

    Every ``Source`` of one topic has one number.
    """
    forks = topology.forks()
    digests: dict[Node, str] = {}
    for node in topology.nodes():
        above = [digests[one] for one in node.inputs]
        digests[node] = above[0] if _is_passed(node) else digest([above, _operator(node, forks)])
    numbers: dict[Node, int] = {}
    by_topic: dict[str, int] = {}

    def number(node: Node) -> None:
        for one in node.inputs:
            if one not in numbers:
                number(one)
        if isinstance(node, Source):
            numbers[node] = by_topic.setdefault(node.topic.name, len(set(numbers.values())))
        elif not _is_passed(node):
            numbers[node] = len(set(numbers.values()))
        else:
            numbers[node] = numbers[node.inputs[0]]

    ends: tuple[Node, ...] = (*topology.sinks, *topology.actions)
    for end in sorted(ends, key=lambda node: (isinstance(node, Foreach), digests[node])):
        number(end)
    return {node: place for node, place in numbers.items() if not _is_passed(node)}


def _topology(topology: Topology) -> Document:
    numbers = operator_numbers(topology)
    forks = topology.forks()
    found: dict[int, dict[str, Any]] = {}
    for node, number in numbers.items():
        above = [numbers[_meant(one)] for one in node.inputs]
        found[number] = {**_operator(node, forks), **({"reads": above} if above else {})}
    return {
        "format": FORMAT,
        "semantics": SEMANTICS_VERSION,
        "kind": "topology",
        **{f"{name}_ms": getattr(topology, f"{name}_ms") for name in TOPOLOGY_MEANS},
        "operators": [found[number] for number in sorted(found)],
    }


def _operator(node: Node, forks: Mapping[tuple[Node, int], int]) -> dict[str, Any]:
    word = _WORDS.get(type(node).__name__, _spaced(type(node).__name__))
    ways = [_ways(node, port, forks) for port in range(len(node.inputs))]
    order = {"order": ways} if any(ways) else {}
    if isinstance(node, Foreach):
        return {"operator": "for each", **order}
    if isinstance(node, Source):
        return {"operator": "source", **_read(node.topic), "key": node.key}
    names = [one.name for one in fields(node) if one.name not in _INPUTS | _WITHOUT_MEANING]
    given = {name: _value(getattr(node, name)) for name in names if name != "topic"}
    if isinstance(node, Sink | Through):
        # its key and fields follow from what is above; they are said for who compares two documents
        made = {name: str(kind) for name, kind in node.fields.items()}
        given |= {"topic": node.topic.name, "key": node.key, "fields": made, **_encoding(node.topic)}
    elif "key" not in given:
        given["key"] = node.key
    return {"operator": word, **{name: value for name, value in given.items() if value is not None}, **order}


def _read(topic: Topic) -> dict[str, Any]:
    """Of a source's topic what decides how a record is read; its retention, replication and settings change nothing."""
    assert topic.value is not None
    declared = {
        name: f"{topic.value.told(name)}{' required' * (name in topic.value.required)}" for name in topic.value.fields
    }
    event_time = {"event_time": topic.event_time} if topic.event_time else {}
    key_form = {} if topic.key_form == "text" else {"key_form": topic.key_form}
    return {"topic": topic.name, "schema": declared, **_encoding(topic), **key_form, **event_time}


def _encoding(topic: Topic) -> dict[str, Any]:
    """Nothing for JSON, as it was before there were plain values."""
    if topic.is_of_registry:
        return {"encoding": topic.encoding}
    return {} if topic.plain_field is None else {"encoding": "plain"}


def _value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float() | Decimal():
            return [type(value).__name__.lower(), str(value)]
        case Expression():
            return _expression(value)
        case FieldType():
            return str(value)
        case TimeWindows():
            return _time_windows(value)
        case Mapping():
            return {str(name): _value(one) for name, one in value.items()}
        case tuple() | list():
            return [_value(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        held = {one.name: _value(getattr(value, one.name)) for one in fields(value)}
        kind = {} if "kind" in held else {"kind": _kind(value)}
        return {**kind, **{name: one for name, one in held.items() if one is not None}}
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return f"code {digest(code_of(value))}"
    raise AssertionError(f"a parameter of an operator that has no canonical form: {value!r}")


def _time_windows(windows: TimeWindows) -> dict[str, Any]:
    """Without an origin as it was before there were origins."""
    advance = {} if windows.advance_ms == windows.size_ms else {"advance_ms": windows.advance_ms}
    origin = {"origin_ms": windows.origin_ms} if windows.origin_ms else {}
    kind = "hopping" if advance else "tumbling"
    return {"kind": kind, "size_ms": windows.size_ms, **advance, "grace_ms": windows.grace_ms, **origin}


def _expression(tree: Expression) -> list[Any]:
    match tree:
        case Column(name):
            return ["column", name]
        case Literal(value):
            return ["constant", type(value).__name__, str(value)]
        case Call(name, arguments):
            return [name, *map(_expression, arguments)]
    raise AssertionError(tree)


def _kind(value: object) -> str:
    names = {"TimeWindows": "hopping", "SlidingWindows": "sliding", "SessionWindows": "session", "LastN": "last n"}
    return names.get(type(value).__name__, _spaced(type(value).__name__))


def _ways(node: Node, port: int, forks: Mapping[tuple[Node, int], int]) -> list[int]:
    """Where ``node`` comes among the readers of what it reads, and so on through operators that pass records on."""
    found = [forks[node, port]] if (node, port) in forks else []
    above = node.inputs[port]
    return [*found, *_ways(above, 0, forks)] if _is_passed(above) else found


def _is_passed(node: Node) -> bool:
    return isinstance(node, _PASS) and not isinstance(node, Foreach)


def _meant(node: Node) -> Node:
    while _is_passed(node):
        [node] = node.inputs
    return node


def _spaced(name: str) -> str:
    def letters() -> Iterator[str]:
        for place, letter in enumerate(name):
            yield f" {letter.lower()}" if letter.isupper() and place else letter.lower()

    return "".join(letters())
