"""What upgrades have added to the declaration of a stream at work, and that declaration without it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from recount.core.errors import InvalidDeclaration, require
from recount.core.nodes import Node, Source
from recount.core.plain_values import PlainValue
from recount.core.topics import Topic
from recount.core.topology import Topology

_INPUTS = ("input", "inputs", "left", "right")


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
                made[node] = replace(node, topic=_without(node.topic, self.fields.get(node.topic.name, ())))
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


def _without(topic: Topic, names: Collection[str]) -> Topic:
    if not names:
        return topic
    assert topic.value is not None, "checked by Source"
    if isinstance(topic.value, PlainValue):
        raise InvalidDeclaration(
            f"topic {topic.name}",
            given=f"a plain value without {', '.join(names)}",
            expected="its one field, to which none can have been added",
            remedy="a plain value that is new or has another name is another declaration: reset the stream",
        )
    require(
        not set(names) & set(topic.key_fields),
        f"topic {topic.name}",
        given=f"a key without {', '.join(names)}",
        expected="the same fields of the key: rows have their key from all of them",
        remedy="a key with another field is another declaration: reset the stream",
    )
    kept = {name: kind for name, kind in topic.value.fields.items() if name not in names}
    return replace(topic, value=replace(topic.value, fields=kept, required=topic.value.required & kept.keys()))
