"""Logs on which engine and interpreter once differed, or could: each is cut at these places, and restarted there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.unit.engine.by_hand import EXACT, LATEST, LEFT, assert_law, change, drawn_by_hand, left, right, rows, run
from tests.unit.engine.random_flows import TOPICS, Comparable
from tests.unit.engine.random_topology_logs import Cut, Event, closing
from tests.unit.engine.topology_runs import by_engine

from recount.declare.aggregates import count, distinct, reduce
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, cogroup, stream
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG, STRING
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import Windows, all_time, hopping, session, sliding, tumbling

Row = Mapping[str, Any]
ROWS, ROW_PER_KEY = replace(EXACT, has_bounds=False), replace(LATEST, has_bounds=False)
TENS, NEAR = tumbling("10 ms", grace="0 s"), {"before": "2 ms", "after": "2 ms", "grace": "0 s"}
BY_WORD = LEFT.select_key(word=col("lw"))
RIGHT = stream(TOPICS["right"]).select_key(word=col("rw"))
KEYED = LEFT.select_key(key=col(KEY))
FIRST, FLAGGED = KEYED.deduplicate("lw", horizon="3 ms"), KEYED.filter(col("lb"))
WAITING = KEYED.left_join_table(KEYED.to_table(versioned=True).select(rn=col("ln")), grace="20 ms").select("ln", "lw")


def counted(flow: RecordStream, windows: Windows = TENS) -> RecordStream:
    return flow.windowed_by(windows).aggregate(n=count()).emit_final()


def reminding(after_ms: int) -> RecordStream:
    """A processor that says of each record when it was, and of each timer minus when that was."""

    def remind(_: Row, state: KeyState) -> list[Row]:
        state.schedule(state.timestamp_ms + after_ms)
        return [{"at": state.timestamp_ms}]

    return LEFT.process(remind, on_timer=lambda at_ms, _: [{"at": -at_ms}], at=LONG)


def numbered(flow: RecordStream) -> RecordStream:
    def number(row: Row, state: KeyState) -> list[Row]:
        state.remembered["n"] = state.remembered.get("n", 0) + 1
        return [{"n": state.remembered["n"], "at_turn": row["turn"]}]

    return flow.process(number, n=LONG, at_turn=LONG)


def twice(_: Row) -> list[Row]:
    """Two rows of one record."""
    return [{"turn": 0}, {"turn": 1}]


TURNS = LEFT.flat_map(twice, turn=LONG)


def of_words(*words: str | None) -> RecordStream:
    """A record of the word "both" becomes a row for each of ``words``."""
    return LEFT.flat_map(lambda row: [{"w": w} for w in (words if row["lw"] == "both" else ("a",))], w=STRING)


def waiting(windows: Windows) -> RecordStream:
    return counted(LEFT.left_join_table(stream(TOPICS["versions"]).to_table(versioned=True), grace="0 s"), windows)


@dataclass(frozen=True)
class Case:
    """A flow, what of its rows is compared, and a log in batches; ``any_order``: however that is cut."""

    flow: RecordStream | Table
    sink: Comparable
    batches: Sequence[Sequence[Event]]
    partitions: Mapping[str, int] = field(default_factory=lambda: {"left": 1})
    any_order: bool = False


#  60 has no id: it makes nobody late for the deduplication, but for those whom it meets on the other path
OWN_TOPIC = [left(60, None), left(5, n=2), left(9, "b", partition=1), left(6, n=3, flag=False), left(80), left(70, "c")]
#  left    5 ── 9 ── 13 ── 17 ── 7    in the order of the log 7 is in a session that lasts to 17; alone it is late
OVERTAKEN, TABLE_IS_AHEAD = [left(at) for at in (5, 9, 13, 17, 7)], [change(90, 1, topic="versions", key=b"x")]
LATER = [[left(at, "z", partition=partition) for partition in (0, 1)] for at in (119, 140)]
CASES: Mapping[str, Case] = {
    #  left    5 a ─────── 100 without a key          the window [0, 10) of a is still open: 8 a is on time
    #  right   5 a ─ 100
    "a null key above a join lets nobody alone who is met later": Case(
        RIGHT.left_join(
            counted(BY_WORD, tumbling("10 ms", grace="5 ms")).select("n"), before="9 ms", after="9 ms", grace="0 s"
        ),
        ROWS,
        [[left(5), right(5), left(100, None), right(100, "z")], [left(8)]],
        {"left": 1, "right": 1},
    ),
    "a record without an id makes nobody late below the deduplication": Case(
        counted(BY_WORD.deduplicate("lw", horizon="0 ms")),
        EXACT,
        [[left(60, None), left(5), left(6, "b")], [left(7, "c")]],
    ),
    "what is held back advances time with or without a key": Case(
        counted(LEFT.select_key(held=col(KEY)).deduplicate("held", horizon="3 ms").select_key(word=col("lw"))),
        EXACT,
        [[left(62, None, key=b"x"), left(59, key=b"y"), left(200, key=b"z")]],
    ),
    #  left    50 z ── 10 a: its total leaves at once, with a time that everyone has passed
    "what never closes makes rows that can meet whatever is held": Case(
        RIGHT.join(BY_WORD.aggregate(n=count()).to_stream(), before="9 ms", after="9 ms", grace="0 s"),
        ROWS,
        [[right(12), left(50, "z"), right(50, "y")], [left(10)]],
        {"left": 1, "right": 1},
    ),
    "a timer in the past revises windows that have left": Case(
        counted(reminding(0)), LATEST, [[left(5), left(50, key=b"b")], [left(6)]]
    ),
    "ways that part behind a flat-map meet again": Case(
        numbered(TURNS.filter(col("turn") > 0).merge(TURNS.filter(col("turn") < 1))), EXACT, [[left(1)], [left(2)]]
    ),
    "ways that part before it": Case(
        numbered(TURNS.merge(LEFT.flat_map(twice, turn=LONG))), EXACT, [[left(1)], [left(2)]]
    ),
    "a topic that is read twice": Case(
        numbered(TURNS.merge(stream(TOPICS["left"]).flat_map(twice, turn=LONG))), EXACT, [[left(1)], [left(2)]]
    ),
    #  the results of [20, 30) and [24, 34) move from 27 to 28: for a moment 27 defines [28, 34], which 28 is in
    "a sliding window that a revision took the record of is gone": Case(
        BY_WORD.windowed_by(hopping("10 ms", advance="4 ms", grace="70 ms"))
        .aggregate(n=count())
        .emit_each_batch()
        .windowed_by(sliding("6 ms", grace="5 ms"))
        .aggregate(m=count())
        .emit_final(),
        LATEST,
        [[left(27), left(28, partition=1), left(26)]],
        {"left": 2},
        any_order=True,
    ),
    **{
        f"one row with a key of {words} is enough to count for a processor": Case(
            numbered(of_words(*words).select_key(key=col("w")).with_fields(turn=1)),
            ROWS,
            [[left(1), left(60, "both"), left(2)]],
        )
        for words in ((None, "b"), ("b", None))
    },
    #  left    5 ── closing: only now 5 leaves the deduplication, its total with the batch, and a window of that is due
    "what the end of a batch lets go passes all operators below with it": Case(
        counted(
            LEFT.deduplicate("lw", horizon="9 ms")
            .windowed_by(tumbling("10 ms", grace="70 ms"))
            .aggregate(n=count())
            .emit_each_batch()
        )
        .windowed_by(all_time())
        .aggregate(k=count())
        .emit_each_batch(),
        ROW_PER_KEY,
        [[left(5)]],
    ),
    #  partition 0    100 a ─────── 119          the update of a at 54 waits for the first one, at 100, until 120
    #  partition 1    52 x ─ 54 a ─ 119          its window [50, 60) has been over since 60 for all who came later
    "an update that was held for an older one of another partition finds its window": Case(
        counted(
            BY_WORD.to_table().emit_after("20 ms").to_stream().with_fields(n=col("ln") * 1).select_key(number=col("n"))
        ),
        LATEST,
        [
            [left(52, "x", partition=1), left(100, "a")],
            [left(54, "a", partition=1)],
            LATER[0],
            [left(119, "z", partition=1)],
            LATER[1],
        ],
        {"left": 2},
    ),
    **{
        f"a stream that is held back meets its own topic: {name}": Case(flow, sink, [OWN_TOPIC], {"left": 2}, True)
        for name, flow, sink in (
            ("merge", counted(FIRST.merge(FLAGGED)), EXACT),
            ("cogroup", counted(cogroup(one=FIRST, other=FLAGGED), session("3 ms", grace="0 s")), EXACT),
            ("join", FIRST.join(FLAGGED.select(rn=col("ln")), **NEAR), ROWS),
            ("join, the other way round", FLAGGED.left_join(FIRST.select(rn=col("ln")), **NEAR), ROWS),
            ("table of the own topic", counted(WAITING), EXACT),
            ("both", counted(WAITING.merge(FIRST), sliding("6 ms", grace="0 s")), EXACT),
            ("held twice", FIRST.merge(FLAGGED).deduplicate("ln", horizon="9 ms"), ROWS),
        )
    },
    **{
        f"who overtook a row that was held back does not show: {windows}, {number}": Case(
            waiting(windows), EXACT, batches, {"left": 1, "versions": 1}
        )
        for windows in (session("4 ms", grace="0 s"), sliding("4 ms", grace="0 s"))
        for number, batches in enumerate(([TABLE_IS_AHEAD, OVERTAKEN], [OVERTAKEN, TABLE_IS_AHEAD]))
    },
    "an update that was held back is judged as it was read": Case(
        counted(LEFT.to_table().emit_after("20 ms").to_stream()),
        EXACT,
        [[left(50, key=b"x"), left(1, key=b"y"), left(60, key=b"z")]],
        any_order=True,
    ),
    "a fold of all time takes the rows of timers that go off behind later records, and records beside them": Case(
        reminding(5)
        .merge(LEFT.select(at=col("ln")))
        .aggregate(sums=reduce("at", lambda one, other: 10 * one + other))
        .to_stream(),
        ROW_PER_KEY,
        [[left(1), left(30, n=2)], [left(31, n=3)]],
    ),
    "windows below records in order judge them by the stream time of their own partition": Case(
        counted(LEFT.in_order(grace="20 ms").select_key(word=col("lw")), tumbling("10 ms", grace="5 ms")),
        EXACT,
        [[left(1), left(14), left(2), left(15)], [left(3), left(60), left(60, partition=1)]],
        {"left": 2},
    ),
    "a record that has left its order waits for a table": Case(
        KEYED.in_order(grace="2 ms").left_join_table(
            stream(TOPICS["versions"]).to_table(versioned=True), grace="70 ms"
        ),
        ROWS,
        [[left(1), left(9)]],
        {"left": 1, "versions": 1},
    ),
    "records of keys that come together from several parts": Case(
        counted(KEYED, sliding("9 ms", grace="9 ms")), EXACT, [[left(at, key=b"abcd"[at : at + 1]) for at in range(4)]]
    ),
    "one record is counted twice and another not at all": Case(
        of_words().select_key(id=col("w")).to_table(), ROWS, [[left(1, "both"), left(2)]]
    ),
    "a topology that remembers nothing restarts": Case(LEFT.filter(col("ln") > 0), ROWS, [[left(1)], [left(2)]]),
}


@pytest.mark.parametrize("is_cut", [False, True], ids=["its batches", "a batch for each record"])
@pytest.mark.parametrize("name", CASES)
def test_engine_and_interpreter_agree_on_this_log(name: str, is_cut: bool) -> None:
    case = CASES[name]
    drawn = replace(drawn_by_hand(case.flow, case.sink, case.partitions), any_order=case.any_order)
    log = [one for batch in case.batches for one in batch]
    assert_law(drawn, *(Cut([one], restarts=True) for one in log) if is_cut else map(Cut, case.batches))


def test_whoever_was_not_held_back_is_judged_by_all_records_where_held_back_ones_arrive() -> None:
    engine = run(counted(FIRST.merge(FLAGGED)), [left(60, None, flag=False), left(5)], closing({"left": 1}))
    assert rows(engine, "key", "window_start", "n")[:1] == [("a", 0, 1)]
    assert engine.late.select("stream_time_ms", "margin_ms").rows() == [(60, 50)]


def test_a_record_that_one_way_filters_and_another_holds_is_waiting() -> None:
    changes = stream(TOPICS["table"]).select_key(id=col(KEY)).to_table()
    held = LEFT.filter(col("ln") > 0).left_join_table(changes.select("tn"), grace="70 ms")
    flows = {"few": LEFT.filter(col("ln") < 0), "held": held}
    topology = Topology(name="drawn", sinks=[flow.to(Topic(name=name, key="id")) for name, flow in flows.items()])
    drawn = drawn_by_hand(held, EXACT, {"left": 1, "table": 1})
    drawn = replace(drawn, topology=topology, sinks=dict.fromkeys(flows, EXACT))
    assert_law(drawn, Cut([left(1)]))
    assert by_engine(drawn, [Cut([left(1)])]).fates == [{(("left", 0), "waiting"): 1}]


@pytest.mark.parametrize("size", [1_023, 1_024, 1_025, 3_000])
def test_a_sketch_estimates_with_the_interpreters_hashes(size: int) -> None:
    words = LEFT.select_key(id="all").aggregate(words=distinct("lw", sketch=True))
    log = [left(number, f"word {number}", partition=number % 2) for number in range(size)]
    drawn = drawn_by_hand(words, ROW_PER_KEY, {"left": 2})
    assert_law(drawn, Cut(log[:1_000]), Cut(log[1_000:], restarts=True))
