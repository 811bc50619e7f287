"""The engine is the interpreter: on random topologies and random logs, however the log is cut and whoever restarts."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, note, reject, settings
from hypothesis import strategies as st
from tests.unit.engine.by_hand import EXACT, LATEST, LEFT, assert_law, drawn_by_hand, left, right
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import TOPICS, Comparable
from tests.unit.engine.random_topologies import drawn_topologies, drawn_topology
from tests.unit.engine.random_topology_logs import IDLE_AFTER_MS, Cut, Event, closing, logs
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.engine.topology_runs import assert_agree, by_engine, by_interpreter, comparable, row_of

from recount.declare.aggregates import count
from recount.declare.changes import describe
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, stream, table
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG, STRING
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import all_time, hopping, sliding, tumbling
from recount.engine.stage.partials import NotExpressible

BLOCK = 10
"""From here on Hypothesis varies what it has drawn: for other topologies it has to begin again."""
BLOCKS = max(1, int(os.environ.get("LAW_EXAMPLES", "60")) // BLOCK)
"""A longer run: ``LAW_EXAMPLES=5000 pytest --hypothesis-seed=1`` and the name of this file."""
law = settings(max_examples=BLOCK, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("block", range(BLOCKS))
@law
@given(data=st.data())
def test_the_engine_is_the_interpreter(block: int, data: st.DataObject) -> None:
    drawn = data.draw(drawn_topologies(block))
    try:
        TopologyEngine(drawn.topology, drawn.partitions)
    except NotExpressible:
        reject()
    cuts = data.draw(logs(drawn))
    note(describe(drawn.topology))
    idles = any(cut.later_ms for cut in cuts)
    assert_agree(drawn, by_engine(drawn, cuts), by_interpreter(drawn, cuts), idles=idles)


def test_most_drawn_topologies_are_taken_by_the_engine() -> None:
    refused = 0
    for seed in range(60):
        drawn = drawn_topology(seed)
        try:
            TopologyEngine(drawn.topology, drawn.partitions)
        except NotExpressible:
            refused += 1
    assert refused < 20


PER_WORD = LEFT.select_key(word=col("lw")).windowed_by(tumbling("10 ms", grace="5 ms")).aggregate(n=count())


COUNTED = drawn_by_hand(PER_WORD.emit_final(), EXACT, {"left": 1})


LOG = [left(1), left(9), left(30), left(2), Event("left", LogRecord(timestamp_ms=40, value=b"{"))]
"""Two records of one window, one that closes it, a late one, a bad one."""


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ([*LOG[:1], *LOG[2:]], "a lost record"),
        ([*LOG, LOG[2]], "a record counted twice"),
        ([LOG[0], left(11), *LOG[2:]], "a record in another window"),
        ([LOG[0], left(8), *LOG[2:]], "another time within the window"),
        ([LOG[0], left(9, "b"), *LOG[2:]], "a record of another key"),
        ([*LOG[:3], *LOG[4:]], "a late record less"),
        ([*LOG[:3], left(3), *LOG[4:]], "a late record of another time"),
        (LOG[:4], "a dead letter less"),
        ([*LOG, left(50, None)], "a null key more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("sink", [EXACT, LATEST], ids=["rows", "latest"])
def test_another_log_is_seen(other: Sequence[Event], what: str, sink: Comparable) -> None:
    drawn = replace(COUNTED, sinks={"out": sink})
    end = closing(drawn.partitions)
    assert_agree(drawn, by_engine(drawn, [Cut(LOG), end]), by_interpreter(drawn, [Cut(LOG), end]))
    with pytest.raises(AssertionError):
        assert_agree(drawn, by_engine(drawn, [Cut(other), end]), by_interpreter(drawn, [Cut(LOG), end]))


def test_another_revision_is_seen_and_where_only_the_latest_counts_it_is_not() -> None:
    told = by_interpreter(COUNTED, [Cut(LOG), closing(COUNTED.partitions)])
    rows = [(key, window, at_ms, revision + 1, value) for key, window, at_ms, revision, value in told.rows["out"]]
    revised = replace(told, rows={"out": rows})
    with pytest.raises(AssertionError):
        assert_agree(COUNTED, revised, told)
    assert_agree(replace(COUNTED, sinks={"out": LATEST}), revised, told)


def test_a_row_that_was_deleted_and_one_that_is_missing_are_seen_as_the_same() -> None:
    there, gone = row_of("a", (0, 10), 9, 0, {"n": 1}), row_of("a", (0, 10), 10, 1, None)
    assert comparable([there, gone], LATEST, idles=False) == comparable([], LATEST, idles=False)
    assert comparable([there], LATEST, idles=False) != comparable([], LATEST, idles=False)
    assert comparable([there, gone], EXACT, idles=False) != comparable([], EXACT, idles=False)


def test_a_topology_that_remembers_nothing_runs_and_restarts() -> None:
    drawn = drawn_by_hand(LEFT.filter(col("ln") > 0), EXACT, {"left": 1})
    assert_law(drawn, Cut([left(1)]), Cut([left(2)], restarts=True))


def test_a_null_key_above_a_join_lets_nobody_alone_who_is_met_later() -> None:
    #  left    5 a ─────── 100 without a key          the window [0, 10) of a is still open: 8 a is on time
    #  right   5 a ─ 100
    counts = PER_WORD.emit_final().select("n")
    flow = (
        stream(TOPICS["right"]).select_key(word=col("rw")).left_join(counts, before="9 ms", after="9 ms", grace="0 s")
    )
    drawn = drawn_by_hand(flow, replace(EXACT, has_bounds=False), {"left": 1, "right": 1})
    cuts = [Cut([left(5), right(5), left(100, None), right(100, "z")]), Cut([left(8)], restarts=True)]
    assert_law(drawn, *cuts)
    rows = by_engine(drawn, [*cuts, closing(drawn.partitions)]).rows["out"]
    assert [cells[0] for *_, cells in rows if cells] == [("n", "int", 2), ("n", "NoneType", None)]


def test_a_record_without_an_id_makes_nobody_late_below_the_deduplication() -> None:
    by_word = LEFT.select_key(key=col("lw")).deduplicate("lw", horizon="0 ms")
    windows = by_word.windowed_by(tumbling("10 ms", grace="0 s")).aggregate(n=count())
    drawn = drawn_by_hand(windows.emit_final(), EXACT, {"left": 1})
    assert_law(drawn, Cut([left(60, None), left(5), left(6, "b")]), Cut([left(7, "c")], restarts=True))
    assert not by_engine(drawn, [Cut([left(60, None), left(5)])]).late


@pytest.mark.parametrize("at", [[], [1], [2], [1, 2]])
def test_what_is_held_back_advances_time_with_or_without_a_key_however_the_log_is_cut(at: list[int]) -> None:
    first = LEFT.select_key(held=col(KEY)).deduplicate("held", horizon="3 ms")
    windows = first.select_key(word=col("lw")).windowed_by(tumbling("10 ms", grace="0 s")).aggregate(n=count())
    drawn = drawn_by_hand(windows.emit_final(), EXACT, {"left": 1})
    log = [left(62, None, key=b"x"), left(59, key=b"y"), left(200, key=b"z")]
    bounds = [0, *at, len(log)]
    assert_law(drawn, *(Cut(log[start:end], restarts=True) for start, end in pairwise(bounds)))


def test_what_never_closes_makes_rows_that_can_meet_whatever_is_held() -> None:
    #  left    50 z ── 10 a: its total leaves at once, with a time that everyone has passed
    totals = LEFT.select_key(word=col("lw")).aggregate(n=count()).to_stream()
    flow = stream(TOPICS["right"]).select_key(word=col("rw")).join(totals, before="9 ms", after="9 ms", grace="0 s")
    drawn = drawn_by_hand(flow, replace(EXACT, has_bounds=False), {"left": 1, "right": 1})
    assert_law(drawn, Cut([right(12), left(50, "z"), right(50, "y")]), Cut([left(10)], restarts=True))


def test_a_record_that_one_way_filters_and_another_holds_is_waiting() -> None:
    changes = stream(TOPICS["table"]).select_key(id=col(KEY)).to_table()
    held = LEFT.filter(col("ln") > 0).left_join_table(changes.select("tn"), grace="70 ms")
    sinks = [
        flow.to(Topic(name=name, key="id")) for name, flow in {"few": LEFT.filter(col("ln") < 0), "held": held}.items()
    ]
    topology = Topology(name="drawn", sinks=sinks, idle_after="60 s")
    drawn = replace(
        drawn_by_hand(held, EXACT, {"left": 1, "table": 1}), topology=topology, sinks={"few": EXACT, "held": EXACT}
    )
    assert_law(drawn, Cut([left(1)]))
    assert by_engine(drawn, [Cut([left(1)])]).fates == [{(("left", 0), "waiting"): 1}]


def test_a_timer_in_the_past_revises_windows_that_have_left() -> None:
    def remind(_: Mapping[str, object], state: KeyState) -> list[dict[str, object]]:
        state.schedule(state.timestamp_ms)
        return []

    reminded = LEFT.process(remind, on_timer=lambda at_ms, _: [{"at": at_ms}], at=LONG)
    windows = reminded.windowed_by(tumbling("10 ms", grace="0 s")).aggregate(n=count()).emit_final()
    drawn = drawn_by_hand(windows, LATEST, {"left": 1})
    assert_law(drawn, Cut([left(5), left(50, key=b"b")]), Cut([left(6)], restarts=True))


def twice(row: Mapping[str, object]) -> list[dict[str, object]]:
    """Two rows of one record."""
    return [{"turn": 0}, {"turn": 1}]


TURNS = LEFT.flat_map(twice, turn=LONG)


@pytest.mark.parametrize(
    ("flow", "order"),
    [
        (TURNS.filter(col("turn") > 0).merge(TURNS.filter(col("turn") < 1)), [0, 1]),
        (TURNS.merge(LEFT.flat_map(twice, turn=LONG)), [0, 1, 0, 1]),
        (TURNS.merge(stream(TOPICS["left"]).flat_map(twice, turn=LONG)), [0, 1, 0, 1]),
    ],
    ids=["ways that part behind the flat-map", "ways that part before it", "a topic that is read twice"],
)
def test_the_rows_of_one_record_meet_again_in_the_order_in_which_they_came_about(
    flow: RecordStream, order: list[int]
) -> None:
    def numbered(row: Mapping[str, object], state: KeyState) -> list[dict[str, object]]:
        state.remembered["n"] = state.remembered.get("n", 0) + 1
        return [{"n": state.remembered["n"], "at_turn": row["turn"]}]

    drawn = drawn_by_hand(flow.process(numbered, n=LONG, at_turn=LONG), EXACT, {"left": 1})
    assert_law(drawn, Cut([left(1)]), Cut([left(2)], restarts=True))
    rows = by_engine(drawn, [Cut([left(1)])]).rows["out"]
    assert [cell for *_, cells in rows for name, _, cell in cells if name == "at_turn"] == order


def test_a_table_that_nobody_waits_for_delays_no_timer() -> None:
    def remind(_: Mapping[str, object], state: KeyState) -> list[dict[str, object]]:
        state.schedule(7)
        return []

    totals = stream(TOPICS["table"]).windowed_by(tumbling("10 ms", grace="90 ms")).aggregate(m=count()).emit_final()
    looked_up = LEFT.left_join_table(totals.select("m").to_table(), as_of="arrival")
    reminded = looked_up.process(remind, on_timer=lambda at_ms, _: [{"at": at_ms}], at=LONG)
    drawn = drawn_by_hand(reminded, EXACT, {"left": 1, "table": 1})
    assert_law(drawn, Cut([left(1), left(8)]), Cut([left(9)], restarts=True))
    early = by_interpreter(drawn, [Cut([left(1), left(8), left(9)])])
    assert [(at_ms, cells) for _, _, at_ms, _, cells in early.rows["out"]] == [(7, (("at", "int", 7),))] * 2


@pytest.mark.parametrize("at", [[], [1], [2], [1, 2]])
def test_a_sliding_window_that_a_revision_took_the_record_of_is_gone(at: list[int]) -> None:
    #  the results of [20, 30) and [24, 34) move from 27 to 28: for a moment 27 defines [28, 34], which 28 is in
    hops = LEFT.select_key(word=col("lw")).windowed_by(hopping("10 ms", advance="4 ms", grace="70 ms"))
    moved = hops.aggregate(n=count()).emit_each_batch()
    windows = moved.windowed_by(sliding("6 ms", grace="5 ms")).aggregate(m=count()).emit_final()
    drawn = replace(drawn_by_hand(windows, LATEST, {"left": 2}), any_order=True)
    log = [left(27), left(28, partition=1), left(26)]
    bounds = [0, *at, len(log)]
    assert_law(drawn, *(Cut(log[start:end], restarts=True) for start, end in pairwise(bounds)))
    alone = by_engine(drawn, [Cut(log[:1]), Cut(log[1:]), closing(drawn.partitions)])
    assert {window for key, window, *_, value in alone.rows["out"] if key == "a" and value} == {(22, 28)}


@pytest.mark.parametrize("words", [(None, "b"), ("b", None)])
@pytest.mark.parametrize("at", [[], [1], [2]])
def test_one_row_with_a_key_is_enough_for_a_record_to_count_for_a_processor(
    words: Sequence[str], at: list[int]
) -> None:
    def remind(_: Mapping[str, object], state: KeyState) -> list[dict[str, object]]:
        state.schedule(state.timestamp_ms + 7)
        return [{"at": state.timestamp_ms}]

    both = LEFT.flat_map(lambda row: [{"w": word} for word in (words if row["lw"] == "both" else ("a",))], w=STRING)
    reminded = both.select_key(key=col("w")).process(remind, on_timer=lambda at_ms, _: [{"at": -at_ms}], at=LONG)
    drawn = drawn_by_hand(reminded, replace(EXACT, has_bounds=False), {"left": 1})
    log = [left(1), left(60, "both"), left(2)]
    cuts = [Cut(log[start:end], restarts=True) for start, end in pairwise([0, *at, len(log)])]
    assert_law(drawn, *cuts)
    told = [(key, at_ms) for key, _, at_ms, *_ in by_engine(drawn, cuts).rows["out"]]
    assert sorted(told) == [("a", 1), ("a", 2), ("a", 8), ("a", 9), ("b", 60)]


def test_what_the_end_of_a_batch_lets_go_passes_all_operators_below_with_it() -> None:
    #  left    5 ── closing: only now 5 leaves the deduplication, its total with the batch, and a window of that is due
    totals = (
        LEFT.deduplicate("lw", horizon="9 ms")
        .windowed_by(tumbling("10 ms", grace="70 ms"))
        .aggregate(n=count())
        .emit_each_batch()
    )
    finals = totals.windowed_by(tumbling("10 ms", grace="0 s")).aggregate(m=count()).emit_final()
    latest = finals.windowed_by(all_time()).aggregate(k=count()).emit_each_batch()
    drawn = drawn_by_hand(latest, replace(LATEST, has_bounds=False), {"left": 1})
    assert_law(drawn, Cut([left(5)]))


def test_an_update_that_was_held_for_an_older_one_of_another_partition_finds_its_window() -> None:
    #  partition 0    100 a ─────── 119          the update of a at 54 waits for the first one, at 100, until 120
    #  partition 1    52 x ─ 54 a ─ 119          its window [50, 60) has been over since 60 for all who came later
    updates = LEFT.select_key(word=col("lw")).to_table().emit_after("20 ms").to_stream()
    numbered = updates.with_fields(n=col("ln") * 1).select_key(number=col("n"))
    windows = numbered.windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(m=count()).emit_final()
    drawn = drawn_by_hand(windows, LATEST, {"left": 2})
    later = [Cut([left(at, "z", partition=partition) for partition in (0, 1)]) for at in (119, 140)]
    first = [left(52, "x", partition=1), left(100, "a"), left(54, "a", partition=1)]
    cuts = [Cut(first[:2]), Cut(first[2:]), later[0], Cut([left(119, "z", partition=1)]), later[1]]
    assert_law(drawn, *cuts)
    found = by_engine(drawn, cuts).rows["out"]
    assert [
        (revision, {name: cell for name, _, cell in cells}["m"])
        for _, window, _, revision, cells in found
        if window == (50, 60)
    ] == [(0, 1), (1, 2)]


def version(at: int, n: int) -> Event:
    """A change of the topic `versions`."""
    value = json.dumps({"vn": n, "vw": "a"}).encode()
    return Event("versions", LogRecord(timestamp_ms=at, key=b"a", value=value))


ASKING = {
    "records": (LEFT.select("ln"), 40),
    "first ones": (LEFT.select("lw", "ln").deduplicate("lw", horizon="0 ms"), 40),
    "pairs": (LEFT.select("ln").join(LEFT.select(m=col("ln")), before="0 ms", after="0 ms", grace="3 ms"), 40),
    "records that wait": (LEFT.select("ln"), 2),
}


@pytest.mark.parametrize("rows", ASKING)
def test_a_partition_that_was_idle_looks_back_from_where_the_others_are(rows: str) -> None:
    #  left 0   5 ── 50          versions   1 ── 2 ── 40 ── 44
    #  left 1   5 ── idle ── 6: it asks as of 51 - 8, where 40 is the newest; with a grace, as of the table's 44 - 8
    flow, found = ASKING[rows]
    grace = "200 ms" if rows == "records that wait" else None
    flow = flow.left_join_table(table(TOPICS["versions"]).select("vn"), history="8 ms", grace=grace)
    drawn = drawn_by_hand(flow, replace(EXACT, has_bounds=False), {"left": 2, "versions": 1})
    cuts = [
        Cut([version(1, 1), version(2, 2), left(5), left(5, "b", partition=1)]),
        Cut([version(40, 40), version(44, 44), left(50, "c")], later_ms=IDLE_AFTER_MS),
        Cut([left(51, "d")], restarts=True),
        Cut([left(6, "e", partition=1)], restarts=True),
    ]
    log = [*cuts, closing(drawn.partitions)]
    told, expected = by_engine(drawn, log), by_interpreter(drawn, log)
    assert (Counter(told.rows["out"]), told.late) == (Counter(expected.rows["out"]), expected.late)
    [six] = {{name: cell for name, _, cell in cells}["vn"] for *_, at, _, cells in told.rows["out"] if at == 6}
    assert six == found
    assert len(told.late) == (rows != "pairs")
