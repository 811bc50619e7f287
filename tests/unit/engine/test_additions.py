"""Item 1.4: what upgrades add to a stream at work goes on with the state, in the engine without Spark."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count
from recount.declare.changes import Additions
from recount.declare.schema import LONG, STRING, FieldType, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import tumbling
from recount.engine.exchange.graph_computation import GraphComputation

PARTITIONS = {"clicks": 1, "users": 1}


def clicking(*further: str, **fields: FieldType) -> Topology:
    """Clicks that wait for their user's tier, and how many there were; what waits has all ``fields``."""
    clicks = stream(Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG, **fields)))
    users = table(Topic(name="users", key="user", value=RecordSchema.of(tier=STRING)), versioned=True)
    known = clicks.left_join_table(users, grace="5 ms")
    counted = clicks.windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(many=count()).emit_final()
    flows = {"counted": counted, "known": known}
    also = {name: counted if name.startswith("c") else clicks for name in further}
    sinks = [flow.to(Topic(name=name, key="user"), table=name) for name, flow in {**also, **flows}.items()]
    return Topology(name="clicks", sinks=sinks)


def click(at_ms: int, **value: object) -> LogRecord:
    return LogRecord(key=b"ada", value=json.dumps(value).encode(), timestamp_ms=at_ms)


def user(at_ms: int, tier: str) -> LogRecord:
    return LogRecord(key=b"ada", value=json.dumps({"tier": tier}).encode(), timestamp_ms=at_ms)


def test_records_that_wait_windows_that_are_open_and_versions_go_on_under_the_new_declaration() -> None:
    engine = TopologyEngine(clicking(), PARTITIONS)
    engine.batch({"clicks": [click(1, n=1, m="no number"), click(2, n=2)], "users": [user(0, "tin")]})
    assert engine.emitted("known").is_empty()
    assert engine.emitted("counted").is_empty()

    added = Additions(sinks=frozenset({"all", "counted-too"}), fields={"clicks": frozenset({"m"})})
    engine.topology = clicking("all", "counted-too", m=LONG)
    engine.computation = GraphComputation(engine.topology, added)
    engine.computation.load(engine.state.lazy())
    made = engine.batch(
        {
            "clicks": [click(3, n=3, m=30), click(4, n=4, m="no number"), click(40, n=5, m=50)],
            "users": [user(40, "gold")],
        }
    )
    assert made.rejected.height == 1
    known = made.emitted["known"].sort("n").select("n", "m", "tier").rows()
    assert known == [(1, None, "tin"), (2, None, "tin"), (3, 30, "tin")]
    for name in ("counted", "counted-too"):
        assert made.emitted[name]["many"].to_list() == [3]
    assert made.emitted["all"].select("n", "m").rows() == [(3, 30), (5, 50)]


def test_without_being_told_of_the_additions_the_state_is_not_found() -> None:
    names = set()
    for number in range(8):
        topology = clicking(f"side-{number}", m=LONG)
        added = Additions(sinks=frozenset({f"side-{number}"}), fields={"clicks": frozenset({"m"})})
        assert added.taken_from(topology).topology.sinks[0].topic.name == "counted"
        told, untold = (
            {name for name, _ in GraphComputation(topology, *given)._graph.states.items()} for given in ((added,), ())
        )
        assert told == GraphComputation(clicking())._graph.states.keys()
        names.add(told == untold)
    assert False in names


def test_what_was_added_is_taken_from_a_declaration_whole() -> None:
    topology = clicking("side", m=LONG)
    former = Additions(sinks=frozenset({"side"}), fields={"clicks": frozenset({"m"})}).taken_from(topology)
    kept = [node for node in topology.nodes() if node is not topology.sinks[0]]
    assert list(former.operators) == kept
    assert [sink.fields.keys() for sink in former.topology.sinks] == [sink.fields.keys() for sink in clicking().sinks]
    assert replace(former.topology) == former.topology
