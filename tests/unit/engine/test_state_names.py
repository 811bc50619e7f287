"""Item 1.4: declarations of one fingerprint find each other's state."""

from __future__ import annotations

from dataclasses import replace

from recount.declare.aggregates import count
from recount.declare.changes import Additions
from recount.declare.expressions import col
from recount.declare.fingerprint import Declared
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import session
from recount.engine.operators.batch_graph import Graph

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG))


def clicks(*gaps: str, peeking: bool = False) -> Topology:
    flow = stream(CLICKS).peek(print) if peeking else stream(CLICKS)
    sinks = {
        gap: flow.windowed_by(session(gap, grace="0 s"))
        .aggregate(n=count())
        .emit_final()
        .to(Topic(name=f"by-{gap.replace(' ', '-')}", key="user"))
        for gap in gaps
    }
    return Topology(name="clicks", sinks=list(sinks.values()))


def gap_by_state(topology: Topology) -> dict[str, object]:
    """The windows of the operator that each state belongs to."""
    graph = Graph(topology)
    owners = {id(rows): node for node, operator in graph._operators.items() for rows in operator.states.values()}
    return {
        name: getattr(owners[id(rows)], "windows", None) for name, rows in graph.states.items() if id(rows) in owners
    }


def test_sinks_in_another_order_and_operators_that_pass_records_on_leave_the_state_where_it_is() -> None:
    declared = clicks("1 s", "2 s")
    for other in (clicks("2 s", "1 s"), clicks("1 s", "2 s", peeking=True)):
        assert Declared.of(other).fingerprint == Declared.of(declared).fingerprint
        assert gap_by_state(other) == gap_by_state(declared)
    assert len(set(gap_by_state(declared).values())) == 2


def test_a_sink_that_is_added_leaves_the_state_where_it_is_wherever_the_document_puts_it() -> None:
    declared = clicks("1 s", "2 s")
    moved = 0
    for number in range(8):
        further = stream(CLICKS).filter(col("n") > number).to(Topic(name=f"above-{number}", key="user"))
        both = replace(declared, sinks=[further, *declared.sinks])
        moved += Graph(both).states.keys() != Graph(declared).states.keys()
        assert list(Graph(both, added=Additions(sinks=frozenset({further.topic.name}))).states) == list(
            Graph(declared).states
        )
    assert moved, "the names would have changed without being told"
