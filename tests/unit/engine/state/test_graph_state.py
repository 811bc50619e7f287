"""The state of a graph is read back from its rows, also under a declaration to which an upgrade has added something."""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest
from tests.unit.engine.engine import NOW_MS, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count
from recount.declare.changes import Additions
from recount.declare.columns import BATCH, GENERATION
from recount.declare.expressions import col
from recount.declare.fingerprint import Declared
from recount.declare.schema import LONG, STRING, FieldType, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session, tumbling
from recount.engine.exchange.graph_computation import GraphComputation
from recount.engine.operators.batch_graph import Graph
from recount.engine.state.graph_state import GraphState, is_much, since_snapshot
from recount.engine.state.keyed_rows import KeyedRows
from recount.runtime.errors import Terminal

SCHEMA: dict[str, pl.DataType] = {"key": pl.String(), "n": pl.Int64()}


def counts() -> KeyedRows:
    return KeyedRows(SCHEMA, ["key"])


def rows(first: int, end: int, n: int) -> pl.DataFrame:
    return pl.DataFrame([(f"k{key}", n) for key in range(first, end)], SCHEMA, orient="row")


def written(state: GraphState, batch: int) -> pl.DataFrame:
    order = [pl.lit(0, pl.Int32).alias(GENERATION), pl.lit(batch, pl.Int64).alias(BATCH)]
    return state.changes(whole=is_much(state.written, 1_000)).with_columns(order)


def test_a_start_reads_what_was_written_since_the_last_snapshot_and_has_all() -> None:
    kept = counts()
    state = GraphState({"counts": kept}, frozenset())
    batches = []
    for batch in range(40):
        kept.put(rows(0, 1_000, batch))
        if batch == 20:
            kept.remove(rows(0, 10, batch))
        batches.append(written(state, batch))
    table = pl.concat(batches)
    needed = since_snapshot(table.lazy())
    assert needed[BATCH].min() > 0, "40,000 rows were written of 1,000 that are held"
    assert needed.height < table.height / 2
    found = counts()
    GraphState({"counts": found}, frozenset()).load(needed)
    assert found.rows.sort("key").equals(kept.rows.sort("key"))


def test_the_state_of_another_topology_is_refused_by_name() -> None:
    kept = counts()
    kept.put(rows(0, 1, 1))
    table = written(GraphState({"old": kept}, frozenset()), 0)
    with pytest.raises(Terminal, match="old"):
        GraphState({"counts": counts()}, frozenset()).load(since_snapshot(table.lazy()))


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
    return {name: getattr(node, "windows", None) for name, (node, _) in Graph(topology).owners.items()}


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


def test_a_closed_window_goes_on_from_the_results_of_the_sink_that_was_there_before() -> None:
    clicks = stream(Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG)))
    counted = clicks.windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(many=count()).emit_final()
    sinks = [counted.to(Topic(name=name, key="user"), table=name) for name in ("first", "further")]
    engine = TopologyEngine(Topology(name="clicks", sinks=sinks[:1]), {"clicks": 2})
    engine.batch({"clicks": [click(1), replace(click(1), partition=1)]})
    engine.batch({"clicks": [click(100)]}, now_ms=NOW_MS + 600_000)
    engine.topology = Topology(name="clicks", sinks=sinks)
    engine.computation = GraphComputation(engine.topology, Additions(sinks=frozenset({"further"})))
    engine.computation.load(engine.state.lazy())
    for made in engine.computed:
        made.emitted["further"] = made.emitted["first"].clear()  # type: ignore[index]
    made = engine.batch({"clicks": [replace(click(2), partition=1)]}, now_ms=NOW_MS + 600_000)
    for rows in made.emitted.values():
        assert rows.select("many", "recount_revision").rows() == [(3, 1)]
