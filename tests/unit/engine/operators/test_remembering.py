"""Tables, held updates, first ones, order and processors by hand: what leaves when, and what is forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engine.by_hand import EXACT, LEFT, change, drawn_by_hand, fed, held, left, rows, run
from tests.unit.engine.random_flows import TOPICS
from tests.unit.engine.random_topology_logs import Cut
from tests.unit.engine.topology_runs import by_engine

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, stream, table
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling
from recount.engine.operators.batch_processing import NotExpressible
from recount.runtime.errors import InvalidDeclaration, Terminal

Row = Mapping[str, Any]
TABLE, VERSIONS = (stream(TOPICS[name]).to_table(versioned=name == "versions") for name in ("table", "versions"))


def test_deletions_are_remembered_only_where_an_older_change_could_undo_them() -> None:
    current = TABLE.select("tn").outer_join(stream(TOPICS["versions"]).to_table().select("vn"))
    versioned = TABLE.select("tn").outer_join(VERSIONS.select("vn"))
    gone = [[change(5, 1), change(9, None)], [change(7, 2)]]
    assert held(run(current, gone[0]))[-1]["left"] == 0
    assert rows(run(current, *gone), "tn")[-1] == (2,)
    of_versions = [[replace(one, topic="versions") for one in batch] for batch in gone]
    assert rows(run(versioned, *of_versions), "recount_is_null")[-1] == (True,)


HELD = LEFT.to_table().emit_after("10 ms")


def test_an_update_leaves_when_the_frontier_has_passed_the_first_one_held_by_the_limit() -> None:
    engine = run(HELD, [left(5, n=1), left(14, n=2), left(14, key=b"b", partition=1)], left=2)
    assert rows(engine, "ln") == []
    fed(engine, [left(15, key=b"c"), left(15, key=b"c", partition=1)])
    assert rows(engine, KEY, "ln") == [("a", 2)]


def test_the_oldest_leaves_early_where_more_rows_are_held_than_may_be() -> None:
    engine = run(LEFT.to_table().emit_after("10 ms", max_rows=1), [left(7), left(6, key=b"b"), left(8, key=b"c")])
    assert [key for (key,) in rows(engine, KEY)] == ["b", "a"]
    assert held(engine)[-1]["held"] == 1


FIRST = {
    "by offset": LEFT.deduplicate(KEY, horizon="8 ms"),
    "by event time": LEFT.select_key(k=col("lw")).deduplicate("lw", horizon="8 ms"),
}


@pytest.mark.parametrize("name", FIRST)
def test_winners_are_forgotten_when_no_duplicate_can_be_on_time(name: str) -> None:
    log = [left(10 * at, n=at) for at in range(40)]
    engine = run(FIRST[name], log, [left(10_000, "z", key=b"z")], [])
    assert held(engine)[0]["winners"] <= 2 and held(engine)[0]["waiting"] <= 2


def test_a_winner_is_remembered_while_the_last_duplicate_can_be_on_time() -> None:
    engine = run(FIRST["by offset"], [left(10), left(0, key=b"z", partition=1)], [left(26, key=b"b")], left=2)
    fed(engine, [left(26, key=b"c", partition=1), left(18)])
    assert engine.clock.partitions["left", 0].deduplicated == 1
    assert held(engine)[0]["winners"] == 3
    assert held(fed(engine, [left(27, key=b"b"), left(27, key=b"c", partition=1)]))[0]["winners"] == 2


def in_order(grace: str) -> RecordStream:
    return LEFT.in_order(grace=grace)


@pytest.mark.parametrize(
    "flow",
    [
        LEFT.windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(n=count()).emit_final(),
        LEFT.join(stream(TOPICS["right"]), before="1 ms", after="1 ms", grace="0 ms"),
        LEFT.deduplicate("lw", horizon="1 ms"),
        in_order("1 ms"),
        LEFT.left_join_table(table(TOPICS["table"]), grace="1 ms"),
        LEFT.process(lambda _, __: [], on_timer=lambda _, __: [], n=LONG),
    ],
)
def test_rows_without_a_place_in_the_log_are_not_brought_in_order(flow: RecordStream) -> None:
    with pytest.raises(InvalidDeclaration, match="put in_order before that"):
        Topology(name="refused", sinks=[flow.in_order(grace="1 ms").to(Topic(name="out", key="id"))])


def test_timers_below_records_in_order_are_refused() -> None:
    flow = in_order("1 ms").filter(col("lb")).process(lambda _, __: [], on_timer=lambda _, __: [], n=LONG)
    with pytest.raises(InvalidDeclaration, match="on_timer"):
        Topology(name="refused", sinks=[flow.to(Topic(name="out", key="id"))])


def reminding(row: Row, state: KeyState) -> Iterable[Row]:
    state.remembered["n"] = row["ln"]
    return ()


def test_a_key_in_two_partitions_must_go_through_a_topic_first() -> None:
    with pytest.raises(Terminal, match="repartition through a topic first"):
        run(LEFT.process(reminding, n=LONG), [left(0)], [left(0, partition=1)], left=2)


def test_a_key_of_which_nothing_is_remembered_is_forgotten() -> None:
    quiet = LEFT.process(lambda row, _: [{"n": row["ln"]}], n=LONG)
    assert held(run(quiet, [left(0), left(0, key=b"b")])) == [{"keys": 0}]


def test_what_was_held_back_or_derived_cannot_be_processed() -> None:
    with pytest.raises(NotExpressible):
        run(LEFT.deduplicate("lw", horizon="8 ms").process(reminding, n=LONG))


def test_an_action_sees_every_record_once_and_ends_the_flow() -> None:
    seen: list[Any] = []
    sink = LEFT.filter(col("ln") > 8).to(Topic(name="out", key="id"))
    action = LEFT.filter(col("ln") > 1).foreach(lambda row: seen.append(row["ln"]))
    drawn = replace(
        drawn_by_hand(LEFT, EXACT, {"left": 1}), topology=Topology(name="t", sinks=[sink], actions=[action])
    )
    said = by_engine(drawn, [Cut([left(0, n=1), left(1, n=2)]), Cut([left(2, n=3)])])
    assert seen == [2, 3]
    assert said.fates == [{(("left", 0), "counted"): 1, (("left", 0), "filtered"): 1}, {(("left", 0), "counted"): 1}]
