"""Every kind of operator goes on as if a key had never been there, once the rows of the key are gone from its state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from tests.unit.engine.engine import NOW_MS, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count, total
from recount.declare.columns import ORIGIN, RESULT_TIME, REVISION
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import last_n, session, sliding, tumbling
from recount.engine.stage.intake import from_ipc
from recount.engine.state.graph_state import ROWS
from recount.lifecycle.held_rows import HeldKey, Holding
from recount.tables.places import Tables

VISITS = Topic(name="visits", key="who", value=RecordSchema.of(fee=LONG, room=LONG))
PATIENTS = Topic(name="patients", key="who", value=RecordSchema.of(tier=STRING, credit=LONG))
OUT = Topic(name="out", key="who")
ZOE, NOAH = "zoe's", "noah"
MINUTE_MS = 60_000
Log = Mapping[str, list[LogRecord]]


def counted(visit: Mapping[str, Any], state: KeyState) -> Iterator[Mapping[str, Any]]:
    """Counts the visits, and says so again much later."""
    state.remembered["n"] = state.remembered.get("n", 0) + 1
    state.schedule(state.timestamp_ms + MINUTE_MS)
    yield {"n": state.remembered["n"]}


def again(at_ms: int, state: KeyState) -> Iterator[Mapping[str, Any]]:
    yield {"n": -state.remembered["n"]}


def by_windows(windows: Any, how: str = "emit_final") -> Callable[[], RecordStream]:
    return lambda: getattr(stream(VISITS).windowed_by(windows).aggregate(n=count(), fees=total("fee")), how)()


FLOWS: Mapping[str, Callable[[], RecordStream | Table]] = {
    "sessions": by_windows(session("1 min", grace="1 min")),
    "cut sessions": by_windows(session("1 min", grace="1 min", max_duration="3 min")),
    "each record's sessions": by_windows(session("1 min", grace="1 min"), "emit_each_record"),
    "sliding windows": by_windows(sliding("1 min", grace="1 min")),
    "last n": by_windows(last_n(2), "emit_each_batch"),
    "windows each record": by_windows(tumbling("3 min", grace="1 min"), "emit_each_record"),
    "totals": lambda: stream(VISITS).aggregate(n=count(), fees=total("fee")),
    "held totals": lambda: stream(VISITS).aggregate(n=count(), fees=total("fee")).emit_after("1 min"),
    "in order": lambda: stream(VISITS).in_order(grace="1 min"),
    "first by key": lambda: stream(VISITS).deduplicate("__key", horizon="5 min"),
    "first by event time": lambda: stream(VISITS).select_key(who=col("__key")).deduplicate("who", horizon="1 min"),
    "processor": lambda: stream(VISITS).process(counted, on_timer=again, n=LONG),
    "join": lambda: stream(VISITS).outer_join(stream(PATIENTS), before="2 min", after="2 min", grace="1 min"),
    "lookup": lambda: stream(VISITS).left_join_table(table(PATIENTS), grace="2 min"),
    "lookup as of arrival": lambda: stream(VISITS).join_table(table(PATIENTS), as_of="arrival"),
    "table": lambda: table(PATIENTS).filter(col("credit") > 0),
    "tables": lambda: table(PATIENTS).outer_join(stream(VISITS).to_table(versioned=True)),
    "groups": lambda: table(PATIENTS).group_by(tier=col("tier")).aggregate(n=count(), credit=total("credit")),
}


def record(who: str, minute: float, value: Mapping[str, Any]) -> LogRecord:
    return LogRecord(timestamp_ms=round(minute * MINUTE_MS), key=who.encode(), value=json.dumps(value).encode())


def a_day(begins: float, who: tuple[str, ...], credit: int) -> Log:
    """Everybody is admitted and comes three times; somebody else comes at last, whom nobody waits for."""
    visits, patients = [], []
    for one in who:
        patients.append(record(one, begins, {"tier": "tin", "credit": credit}))
        visits += [record(one, begins + at, {"fee": 7, "room": 4}) for at in (0.5, 1, 4)]
    visits.append(record("last", begins + 5, {"fee": 1, "room": 1}))
    patients.append(record("last", begins + 5, {"tier": "lead", "credit": 1}))
    return {"visits": visits, "patients": patients}


def read(topology: Topology, log: Log) -> Log:
    names = {source.topic.name for source in topology.sources}
    return {name: records for name, records in log.items() if name in names}


def held(tables: Tables, topology: Topology, key: str) -> HeldKey:
    return HeldKey(tables=tables, topology=topology, audit=None, key=key)


def state_of(key: HeldKey) -> list[Holding]:
    return [one for one in key.holdings() if one.name == "state"]


@pytest.mark.parametrize("flow", FLOWS)
def test_the_stream_goes_on_as_if_the_key_had_never_been_there(tmp_path: Path, flow: str) -> None:
    topology = Topology(name="ward", sinks=[FLOWS[flow]().to(OUT, table="out")])
    names = {source.topic.name: 1 for source in topology.sources}
    forgetful, innocent = TopologyEngine(topology, names), TopologyEngine(topology, names)
    forgetful.batch(read(topology, a_day(0, (ZOE, NOAH), 1)))
    innocent.batch(read(topology, a_day(0, (NOAH,), 1)))
    tables = Tables(str(tmp_path))
    write_deltalake(tables.state("ward"), forgetful.state)
    rows = held(tables, topology, ZOE)
    assert rows.counts()["state"]
    for one in state_of(rows):
        one.remove()
    assert rows.counts() == {}
    assert not list(rows.hindrances())
    forgetful.state = pl.read_delta(tables.state("ward")).select(forgetful.state.columns)
    assert not any(ZOE in from_ipc(blob).write_json() for blob in forgetful.state[ROWS])
    for engine in (forgetful, innocent):
        engine.restart()
        engine.batch(read(topology, a_day(4, (ZOE, NOAH), 2)), NOW_MS + 1)
        engine.batch(read(topology, a_day(20, ("eve",), 3)), NOW_MS + 2)
    for made, expected in zip(forgetful.computed[1:], innocent.computed[1:], strict=True):
        # offsets are others, and a group counts its changes
        left_out = [ORIGIN, *([REVISION, RESULT_TIME] if flow == "groups" else [])]
        sides = [one.emitted["out"].drop(left_out) for one in (made, expected)]
        assert sides[0].sort(pl.all()).equals(sides[1].sort(pl.all()))


def test_a_group_and_the_key_of_a_table_by_which_others_look_up_are_not_erased(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    groups = Topology(name="ward", sinks=[FLOWS["groups"]().to(OUT, table="out")])
    rooms = Topic(name="rooms", key="who", value=RecordSchema.of(floor=STRING))
    by_tier = stream(PATIENTS).left_join_table(table(rooms), by=col("tier"), as_of="arrival")
    for name, topology in (
        ("groups", groups),
        ("lookups", Topology(name="ward", sinks=[by_tier.to(OUT, table="out")])),
    ):
        engine = TopologyEngine(topology, {source.topic.name: 1 for source in topology.sources})
        log = {**a_day(0, (ZOE, NOAH), 1), "rooms": [record("tin", 1, {"floor": "2"})]}
        engine.batch(read(topology, log))
        write_deltalake(tables.state("ward"), engine.state, mode="overwrite")
        found = {key: list(held(tables, topology, key).hindrances()) for key in ("tin", ZOE)}
        assert (len(found["tin"]), found[ZOE]) == (1, []), name
