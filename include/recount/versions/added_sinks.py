"""Sinks that a changed declaration adds to a stream of any shape, and whether they can begin after its last batch.

All else must be declared as before, and what lies between an operator that there was and a new sink must keep no
state: then every state goes on, every other output is the same, and what the new sinks must hold follows from the log
and from the batch after which they begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recount.audit.shape import flow_of
from recount.audit.topologies.beginnings import objection_to_beginning
from recount.core.fingerprint import Declared
from recount.core.nodes import Filter, Node, SelectKey, Sink, Source, WithFields
from recount.core.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.core.topology import Topology, Written
from recount.declarations import Enacted

_WITHOUT_STATE = (Sink, Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through)


@dataclass(frozen=True, kw_only=True)
class AddedSinks:
    """``sinks`` that ``topology`` writes to and ``former``, which is of the same operators, does not."""

    topology: Topology
    former: Topology
    sinks: tuple[Written, ...]

    @classmethod
    def of(cls, topology: Topology, enacted: Enacted) -> AddedSinks | None:
        """Those that the declaration ``enacted`` lacks; None where it differs from ``topology`` in more."""
        operators = enacted.document.get("operators", ())
        there = {one["topic"] for one in operators if one["operator"] in ("sink", "through")}
        added = {node.topic.name for node in topology.written} - there
        ends = [*(sink for sink in topology.sinks if sink.topic.name not in added), *topology.actions]
        if not added or not ends:
            return None
        former = topology.without(added)
        if Declared.of(former).fingerprint != enacted.fingerprint:
            return None
        sinks = [node for node in topology.written if node.topic.name in added]
        return cls(topology=topology, former=former, sinks=tuple(sinks))

    def objections(self) -> Iterator[str]:
        """Why they cannot begin in the midst of the stream, each with what can be done; none: they can."""
        if flow_of(self.former) is not None:
            yield (
                "a single aggregation keeps partial aggregates, a stream with a further sink what every operator"
                " remembers, and one cannot be made of the other: declare the sink as a topology of its own, which may"
                " read the topic that this one writes"
            )
            return
        known = set(self.former.nodes())
        topics = {source.topic.name for source in self.former.sources}
        for node in self.topology.nodes():
            if node not in known and not (isinstance(node, Source) and node.topic.name in topics):
                yield from _objections_to(node)
        forks = {at: number for at, number in self.topology.forks().items() if at[0] in known}
        if forks != self.former.forks():
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
