"""Topologies and the differences between two declarations in words, a Mermaid diagram, and former declarations.

Differences come from the documents of ``fingerprint``: ``window size of the aggregation: 1 h -> 2 h``. A former
declaration is that of a stream before upgrades added to it.

>>> from recount.declare.expressions import col
>>> from recount.declare.schema import LONG, RecordSchema
>>> from recount.declare.topics import Topic
>>> from recount.declare.topology import stream
>>> orders = Topic(name="orders", key="order_id", value=RecordSchema.of(amount=LONG))
>>> high = Topic(name="high-value-orders", key="order_id")
>>> print(describe(Topology(name="routing", sinks=[stream(orders).filter(col("amount") > 100).to(high)])))
stream routing
  1. source orders
  2. filter (amount > 100)  <- 1
  3. sink high-value-orders, table high_value_orders  <- 2
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import SequenceMatcher
from typing import Any

from recount.declare.expressions import ARITHMETIC, COMPARISONS
from recount.declare.fingerprint import Document
from recount.declare.operators.nodes import Node, Sink, Source
from recount.declare.operators.stateless import Through
from recount.declare.plain_values import PlainValue
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.runtime.errors import InvalidDeclaration, require
from recount.runtime.times import readable

_INFIX = (*COMPARISONS, *ARITHMETIC, "/", "and", "or")
_ABSENT = object()
_NAMES = {
    "windows.size_ms": "window size",
    "windows.advance_ms": "window advance",
    "windows.origin_ms": "window origin",
    "windows.grace_ms": "grace",
    "windows.gap_ms": "session gap",
    "windows.difference_ms": "window difference",
    "windows.max_duration_ms": "longest session",
    "windows.reach_ms": "reach",
    "windows.kind": "kind of window",
    "emission.kind": "emission",
    "semantics": "version of the semantics",
    "reads": "input",
}
_INPUTS = ("input", "inputs", "left", "right")
_ESCAPED = {'"': "#quot;", "<": "#lt;", ">": "#gt;"}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference: ``path`` within the operator called ``of`` (of the whole declaration: ""), before and after.

    ``old`` or ``new`` None: there was or is none.
    """

    of: str
    operator: str
    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        name = _NAMES.get(self.path) or self.path.replace("_ms", "").replace("_", " ").replace(".", " ")
        what = " of the ".join(part for part in (name, self.of) if part)
        if self.old is None:
            return f"{what}: added{_said(self)}"
        if self.new is None:
            return f"{what}: removed{_said(self)}"
        return f"{what}: {_text(self.path, self.old)} -> {_text(self.path, self.new)}"


def changes(old: Document, new: Document) -> list[Change]:
    found = list(_changed("", "", _without(old, "operators"), _without(new, "operators")))
    before, after = old.get("operators", []), new.get("operators", [])
    labels = [[_label(operators, one) for one in operators] for operators in (before, after)]
    old_kinds, new_kinds = ([_kind(one) for one in operators] for operators in (before, after))
    for tag, i, until_i, j, until_j in SequenceMatcher(None, old_kinds, new_kinds, autojunk=False).get_opcodes():
        if tag == "equal":
            for one, other, label in zip(before[i:until_i], after[j:until_j], labels[1][j:until_j], strict=True):
                found += _changed(label, one["operator"], _own(one), _own(other))
            continue
        found += [_whole(before[n], labels[0][n], is_old=True) for n in range(i, until_i)]
        found += [_whole(after[n], labels[1][n], is_old=False) for n in range(j, until_j)]
    if not found and old != new:
        found.append(Change(of="", operator="", path="connections of the operators", old="others", new="these"))
    return found


def _whole(operator: Mapping[str, Any], label: str, *, is_old: bool) -> Change:
    own = {name: _text(name, value) for name, value in _own(operator).items()}
    said = ", ".join(f"{name} {value}" for name, value in own.items())
    return Change(
        of="", operator=operator["operator"], path=label, old=said if is_old else None, new=None if is_old else said
    )


def _changed(of: str, operator: str, old: Any, new: Any, path: str = "") -> Iterator[Change]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{path}.{name}" if path else name
            yield from _changed(of, operator, old.get(name, _ABSENT), new.get(name, _ABSENT), inner)
    elif old != new:
        yield Change(
            of=of,
            operator=operator,
            path=path,
            old=None if old is _ABSENT else old,
            new=None if new is _ABSENT else new,
        )


def _kind(operator: Mapping[str, Any]) -> str:
    """Return the name by which an operator is found again: the topics and tables by their names."""
    named = operator.get("topic") if operator["operator"] in ("source", "sink", "through") else None
    return f"{operator['operator']} {named}" if named else operator["operator"]


def _label(operators: Sequence[Mapping[str, Any]], one: Mapping[str, Any]) -> str:
    by = operators[one["reads"][0]].get("key") if one["operator"] == "aggregation" else None
    return f"aggregation by {'the record key' if by == '__key' else by}" if by else _kind(one)


def _own(operator: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only follows from the operators above."""
    left_out = {"operator", "reads"} | ({"fields", "key"} if operator["operator"] in ("sink", "through") else set())
    return {name: value for name, value in operator.items() if name not in left_out}


def _without(document: Document, name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}


def _said(change: Change) -> str:
    text = _text(change.path, change.new if change.old is None else change.old)
    return f" ({text})" if text else ""


def _text(path: str, value: Any) -> str:
    if path.endswith("_ms") and isinstance(value, int):
        return readable(value)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return _expression(value)
    if isinstance(value, list):
        return ", ".join(_text("", one) for one in value)
    if isinstance(value, Mapping):
        if "of" in value or value.get("kind") == "count":
            only = f" only {_text('', value['where'])}" if "where" in value else ""
            return f"{value['kind']}({_text('', value['of']) if 'of' in value else ''}){only}"
        return ", ".join(f"{name} {_text(name, one)}" for name, one in value.items())
    if isinstance(value, str) and value.startswith("code "):
        return value[:13]
    return str(value)


def _expression(tree: Sequence[Any]) -> str:
    match tree:
        case ["column", name]:
            return str(name)
        case ["constant", "str", value]:
            return repr(value)
        case ["constant", _, value]:
            return str(value)
        case [name, left, right] if name in _INFIX:
            return f"({_text('', left)} {name} {_text('', right)})"
        case [name, *arguments]:
            return f"{name}({', '.join(_text('', one) for one in arguments)})"
    return str(tree)


@dataclass(frozen=True, kw_only=True)
class Additions:
    """``sinks``, by their topics, and ``fields`` of the topics that are read."""

    sinks: frozenset[str] = frozenset()
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def taken_from(self, topology: Topology) -> Former:
        """``topology`` as it was before; raises ``InvalidDeclaration`` where what there was needs a field."""
        kept = topology.without(self.sinks)
        if not self.fields:
            return Former(topology=kept, operators={node: node for node in kept.nodes()})
        made: dict[Node, Any] = {}
        for node in kept.nodes():
            if isinstance(node, Source):
                made[node] = replace(node, topic=_without_columns(node.topic, self.fields.get(node.topic.name, ())))
                continue
            names = [one.name for one in fields(node) if one.name in _INPUTS]
            made[node] = replace(node, **{name: _former(getattr(node, name), made) for name in names})
        former = replace(kept, sinks=[made[one] for one in kept.sinks], actions=[made[one] for one in kept.actions])
        return Former(topology=former, operators=made)


@dataclass(frozen=True, kw_only=True)
class Former:
    """A topology before additions, and its ``operators`` by those that have taken their place."""

    topology: Topology
    operators: Mapping[Node, Node]


NOTHING_ADDED = Additions()


def _former(inputs: Any, made: Mapping[Node, Any]) -> Any:
    return tuple(made[one] for one in inputs) if isinstance(inputs, tuple) else made[inputs]


def _without_columns(topic: Topic, names: Collection[str]) -> Topic:
    if not names:
        return topic
    assert topic.value is not None, "checked by Source"
    if isinstance(topic.value, PlainValue):
        raise InvalidDeclaration.of(
            "changed-plain-value", given=f"a plain value without {', '.join(names)}", name=topic.name
        )
    require(
        not set(names) & set(topic.key_fields),
        "changed-key-fields",
        given=f"a key without {', '.join(names)}",
        name=topic.name,
    )
    kept = {name: kind for name, kind in topic.value.fields.items() if name not in names}
    return replace(topic, value=replace(topic.value, fields=kept, required=topic.value.required & kept.keys()))


def describe(topology: Topology) -> str:
    """Every operator on a line of its own, numbered, with the numbers of those it reads."""
    numbers = _numbered(topology)
    lines = [f"stream {topology.name}"]
    for node, number in numbers.items():
        above = ", ".join(str(numbers[one]) for one in node.inputs)
        lines.append(f"  {number}. {node}" + (f"  <- {above}" if above else ""))
    return "\n".join(lines)


def mermaid(topology: Topology) -> str:
    """The same as a Mermaid flowchart; topics are cylinders, so that several diagrams can be read together."""
    numbers = _numbered(topology)
    lines = ["flowchart TD", f"  %% stream {topology.name}"]
    for node, number in numbers.items():
        opening, closing = ("[(", ")]") if isinstance(node, Source | Sink | Through) else ("[", "]")
        lines.append(f'  n{number}{opening}"{_escaped(str(node))}"{closing}')
        lines.extend(f"  n{numbers[above]} --> n{number}" for above in node.inputs)
    return "\n".join(lines)


def _numbered(topology: Topology) -> dict[Node, int]:
    return {node: number for number, node in enumerate(topology.nodes(), start=1)}


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(character, character) for character in text)
