"""What a changed declaration adds to a stream of any shape, and whether the stream can go on with it: sinks, fields.

All else must be declared as before. Between an operator that there was and a new sink nothing may keep state: then
every state goes on, every other output is the same, and what the new sinks must hold follows from the log and from the
batch after which they begin. A further field of a source is null in all that was read before, as it was read then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from recount.audit.shape import flow_of
from recount.audit.topologies.objections import objection_to_beginning
from recount.core.additions import NOTHING_ADDED, Additions, Former
from recount.core.errors import InvalidDeclaration
from recount.core.fingerprint import Declared
from recount.core.nodes import Filter, Node, SelectKey, Sink, Source, WithFields
from recount.core.plain_values import PlainValue
from recount.core.processing import Process
from recount.core.schema import FieldType, RecordSchema
from recount.core.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.core.topology import Topology, Written
from recount.declarations import Enacted

_WITHOUT_STATE = (Sink, Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through)


@dataclass(frozen=True, kw_only=True)
class Extension:
    """What ``topology`` has and the declaration in force, ``former``, has not: ``sinks``, and ``fields`` by topic."""

    topology: Topology
    former: Former
    sinks: tuple[Written, ...]
    fields: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, topology: Topology, enacted: Enacted) -> Extension | None:
        """What the declaration ``enacted`` lacks; None where it differs from ``topology`` in more, or in nothing."""
        operators = enacted.document.get("operators", ())
        there = {one["topic"] for one in operators if one["operator"] in ("sink", "through")}
        sinks = [node for node in topology.written if node.topic.name not in there]
        read = {one["topic"]: one["schema"].keys() for one in operators if one["operator"] == "source"}
        found = {
            source.topic.name: frozenset(_schema(source).fields) - read[source.topic.name]
            for source in topology.sources
            if source.topic.name in read
        }
        fields = {topic: names for topic, names in found.items() if names}
        added = Additions(sinks=frozenset(node.topic.name for node in sinks), fields=fields)
        try:
            former = added.taken_from(topology)
        except InvalidDeclaration:
            return None
        if added == NOTHING_ADDED or Declared.of(former.topology).fingerprint != enacted.fingerprint:
            return None
        return cls(topology=topology, former=former, sinks=tuple(sinks), fields=fields)

    @property
    def further_columns(self) -> dict[str, dict[str, FieldType]]:
        """By table the fields that come to sinks that there were."""
        columns = {
            node.table: {name: kind for name, kind in node.fields.items() if name not in before.fields}
            for node, before in self.former.operators.items()
            if isinstance(node, Sink | Through)
        }
        return {table: further for table, further in columns.items() if further}

    def objections(self) -> Iterator[str]:
        """Why the stream cannot go on with it, each with what can be done; none: it can."""
        if flow_of(self.former.topology) is not None:
            yield (
                "a single aggregation keeps partial aggregates, a stream with a further sink what every operator"
                " remembers, and one cannot be made of the other: declare the sink as a topology of its own, which may"
                " read the topic that this one writes"
            )
            return
        yield from self._objections_to_fields()
        yield from self._objections_to_sinks()

    def _objections_to_fields(self) -> Iterator[str]:
        for source in self.topology.sources:
            for name in sorted(self.fields.get(source.topic.name, frozenset()) & _schema(source).required):
                yield f"{source}: records without the field {name} were taken before: let it not be required"
        for node, before in self.former.operators.items():
            if isinstance(node, FlatMap | Process) and node.input.fields != before.inputs[0].fields:
                yield (
                    f"{node}: its Python function would be given records without the field and with it, and no audit"
                    " could tell which: select the fields that it needs before it"
                )

    def _objections_to_sinks(self) -> Iterator[str]:
        known = self.former.operators.keys()
        topics = {source.topic.name for source in self.former.topology.sources}
        for node in self.topology.nodes():
            if node not in known and not (isinstance(node, Source) and node.topic.name in topics):
                yield from _objections_to(node)
        stands_for = self.former.operators
        forks = {(stands_for[at], port): n for (at, port), n in self.topology.forks().items() if at in stands_for}
        if forks != self.former.topology.forks():
            yield (
                "rows that meet again in a merge go by the order of all readers, which the new sink changes: let it"
                " read another operator, or declare it as a topology of its own"
            )
        for sink in self.sinks:
            objection = objection_to_beginning(sink)
            if objection is not None:
                yield objection


def _objections_to(node: Node) -> Iterator[str]:
    if isinstance(node, Source):
        yield f"{node}: a topic that was not read before has a past of its own: declare a topology of its own"
    elif isinstance(node, Merge):
        yield f"{node}: a merge of its own needs all that its inputs have left: declare a topology of its own"
    elif not isinstance(node, _WITHOUT_STATE):
        yield (
            f"{node}: it would begin without what the stream has read before: let the new sink read the operator that"
            " there is (the very object, not another like it), or declare a topology of its own"
        )


def _schema(source: Source) -> RecordSchema | PlainValue:
    assert source.topic.value is not None, "checked by Source"
    return source.topic.value
