"""Item 1.6: whatever a user's fields, keys and aggregates are called, the engine runs them as the interpreter does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine
from tests.user_names import USER_NAMES

from recount.declare.aggregates import count, total
from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session, tumbling
from recount.engine.commit.output_records import output_records, record_columns

VALUE = RecordSchema(fields={"id": STRING, **dict.fromkeys(USER_NAMES, LONG)})
LEFT = Topic(name="left", key="id", value=VALUE, partitions=1)
RIGHT = Topic(name="right", key="id", value=RecordSchema.of(city=STRING), partitions=1)
OUT = Topic(name="out", key="id")
GIVEN = {"id": "a", **{name: number for number, name in enumerate(USER_NAMES)}}


def record(timestamp_ms: int, value: object) -> LogRecord:
    return LogRecord(timestamp_ms=timestamp_ms, key=b"a", value=json.dumps(value).encode())


@pytest.mark.parametrize("key", USER_NAMES[::4])
def test_the_key_and_the_aggregates_of_a_window_can_have_any_name(key: str) -> None:
    aggregates = {name: total(name) for name in USER_NAMES if name != key}
    windows = stream(LEFT).select_key(**{key: col(key)}).windowed_by(tumbling("1 s", grace="0 s"))
    topology = Topology(name="named", sinks=[windows.aggregate(**aggregates).emit_final().to(OUT)])
    engine = TopologyEngine(topology, {"left": 1})
    engine.batch({"left": [record(1, GIVEN), record(2, GIVEN)]})
    engine.batch({"left": [record(3, GIVEN), record(2_000, {**GIVEN, key: -1})]})
    emitted = engine.emitted("out")
    [row] = emitted.drop(IS_NULL, ORIGIN).to_dicts()
    values = {name: 3 * GIVEN[name] for name in aggregates}
    assert row == {key: GIVEN[key], "window_start": 0, "window_end": 1_000, **values, RESULT_TIME: 3, REVISION: 0}
    [sent] = output_records(topology.sinks[0], record_columns(topology.sinks[0], emitted))
    assert json.loads(sent.value or b"") == {key: GIVEN[key], "window_start": 0, "window_end": 1_000, **values}


def test_the_fields_of_joins_sessions_and_tables_can_have_any_name() -> None:
    orders = stream(LEFT)
    keyed = orders.select_key(revision=col("revision")).windowed_by(session("1 s", grace="0 s"))
    others = {name: count() for name in USER_NAMES if name != "revision"}
    flows = {
        "joined": orders.join(stream(RIGHT), before="1 s", after="1 s", grace="0 s"),
        "looked_up": orders.left_join_table(table(RIGHT)),
        "sessions": keyed.aggregate(**others).emit_each_batch(),
        "groups": table(LEFT).group_by(origin=col("origin")).aggregate(batch=count(), key=total("key")),
    }
    topology = Topology(name="named", sinks=[flow.to(replace(OUT, name=name)) for name, flow in flows.items()])
    engine = TopologyEngine(topology, {"left": 1, "right": 1})
    engine.batch({"left": [record(1, GIVEN)], "right": [record(1, {"city": "Rome"})]})
    [joined], [looked_up], [sessions], [groups] = (engine.emitted(name).to_dicts() for name in flows)
    for row in (joined, looked_up):
        assert {name: row[name] for name in GIVEN} == GIVEN
    assert (joined["city"], joined[ORIGIN], joined[RESULT_TIME]) == ("Rome", "left-0@0+right-0@0", 1)
    assert sessions["revision"] == GIVEN["revision"] and all(sessions[name] == 1 for name in others)
    assert (groups["origin"], groups["batch"], groups["key"]) == (GIVEN["origin"], 1, GIVEN["key"])
