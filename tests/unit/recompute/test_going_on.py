"""Where the recompute places a record, and what it hands on: beside the interpreter and the whole log."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recount.declare.aggregates import Fold, fold
from recount.declare.expressions import col
from recount.declare.operators.processing import KeyState
from recount.declare.registry import declared
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import RecordStream, Topology, stream
from recount.declare.windows import ClosingWindows, SessionWindows, SlidingWindows
from recount.recompute.operators.carried import NotIncremental, require_incremental
from recount.recompute.operators.frontiers import NONE_DUE, BatchEnds, Reached, Wait, left_in
from recount.recompute.operators.log_aggregates import SKETCH_SIZE, Amount, Attempt, estimated, folded, sketched
from recount.recompute.operators.log_processing import Made, Memory, Remembered, Turn, processed
from recount.recompute.operators.log_sessions import Judged, Placed, in_sessions, reachable, slid
from recount.reference.record_panes import panes_of
from recount.reference.records import Entry, Record

Log = list[tuple[int, int, int]]
"""Partition, event time, and the stream time's lead over it."""
placing_logs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 25)), max_size=20)
PLACING: list[ClosingWindows] = [
    SlidingWindows(difference_ms=6, grace_ms=4),
    SlidingWindows(difference_ms=10, grace_ms=0),
    SessionWindows(gap_ms=4, grace_ms=3),
    SessionWindows(gap_ms=4, grace_ms=3, reach_ms=6),
    SessionWindows(gap_ms=4, grace_ms=0, max_duration_ms=9),
]


def judged(log: Log) -> list[Judged]:
    return [
        Judged(at, (("log", partition, offset),), ("log", partition), at + lead)
        for offset, (partition, at, lead) in enumerate(log)
    ]


def place(windows: ClosingWindows, records: list[Judged]) -> list[Placed]:
    return slid(windows, records) if isinstance(windows, SlidingWindows) else in_sessions(windows, records)  # type: ignore[arg-type]


def by_the_interpreter(windows: ClosingWindows, log: Log) -> Counter[Placed]:
    """Every record in the windows that hold it in the end, and late for those that it was late for as it came."""
    panes, placed, windows_seen, order = panes_of(windows), Counter[Placed](), set(), []
    for offset, (partition, at, lead) in enumerate(log):
        entry = Entry(topic="log", partition=partition, offset=offset, timestamp_ms=at)
        record = Record(row={}, timestamp_ms=at, order=("log", partition, offset), entry=entry)
        order.append(record)
        placement = panes.add(record, at + lead)
        windows_seen |= set(placement.changed)
        placed.update(Placed(offset, start, end, True) for start, end in placement.late)
    for start, end in windows_seen:
        placed.update(Placed(record.order[2], start, end, False) for record in panes.records((start, end)))
    return placed


@pytest.mark.parametrize("windows", PLACING, ids=str)
@settings(max_examples=80, deadline=None)
@given(log=placing_logs)
def test_every_record_is_placed_as_the_interpreter_places_it(windows: ClosingWindows, log: Log) -> None:
    assert Counter(place(windows, judged(log))) == by_the_interpreter(windows, log)


@pytest.mark.parametrize("windows", PLACING, ids=str)
@settings(max_examples=25, deadline=None)
@given(log=placing_logs, data=st.data())
def test_placing_does_not_depend_on_the_order_in_which_the_records_are_given(
    windows: ClosingWindows, log: Log, data: st.DataObject
) -> None:
    records = judged(log)
    mixed = data.draw(st.permutations(range(len(records))))

    def found(given: Sequence[Judged]) -> Counter[Any]:
        return Counter((given[one.number], *one[1:]) for one in place(windows, list(given)))

    assert found(records) == found([records[number] for number in mixed])


def test_a_derived_record_is_never_late() -> None:
    for windows in PLACING:
        assert not any(placed.is_late for placed in place(windows, [Judged(0, (0,)), Judged(99, (1,))]))


AWAKE = frozenset({("clicks", 0)})
BATCHES = [BatchEnds(ends={("clicks", 0): end}, awake=AWAKE) for end in (2, 4, 6)]
FRONTIER = Wait([10, 20, 30], 5)


@pytest.mark.parametrize(("offset", "time_ms", "batch"), [(0, 5, 0), (0, 6, 1), (4, 5, 2), (0, 26, 3)])
def test_a_record_leaves_when_it_was_read_and_the_frontier_is_far_enough(offset: int, time_ms: int, batch: int) -> None:
    assert left_in(BATCHES, [FRONTIER])("clicks", 0, offset, time_ms) == batch


@pytest.mark.parametrize(("time_ms", "batch"), [(5, 0), (6, 1), (26, 3)])
def test_a_derived_row_leaves_when_the_frontier_is_far_enough(time_ms: int, batch: int) -> None:
    assert left_in(BATCHES, [FRONTIER])(None, None, None, time_ms) == batch


GAP, GRACE = 5, 3
CLICKS = Topic(name="clicks", key="click_id", value=RecordSchema.of(user=STRING, page=STRING))
TEXT = fold("n", initial=lambda: "0", adder="{}+{}".format, merger="({}&{})".format, returns=STRING)
times = st.lists(st.integers(0, 60), max_size=12)


@given(st.lists(st.sampled_from([None, "a", "b"])), st.lists(st.sampled_from([None, "a", "b"])))
def test_a_fold_goes_on_from_what_it_amounted_to(first: list[str | None], second: list[str | None]) -> None:
    the_fold = _fold()
    assert folded(the_fold, second, Amount(folded(the_fold, first))) == folded(the_fold, [*first, *second])


@pytest.mark.parametrize(("first", "second"), [(range(900), range(800, 1_000)), (range(5_000), range(4_000, 9_000))])
def test_an_estimate_goes_on_from_few_values(first: range, second: range) -> None:
    kept = sketched(first)
    assert len(kept) <= SKETCH_SIZE
    assert estimated({*kept, *second}) == estimated({*first, *second})


def test_an_attempt_that_raises_falls_back_to_what_was_before() -> None:
    def adder(so_far: list[str], value: str) -> list[str]:
        so_far.append(value)
        if value == "bad":
            raise ValueError(value)
        return so_far

    attempt = Attempt(Fold(initial=list, adder=adder, merger=adder, returns=None), None, Amount(["before"]))
    attempt.add(0, "one")
    with pytest.raises(ValueError, match="bad"):
        attempt.add(1, "bad")
    assert attempt.amount == ["before", "one"]


@given(times, times, st.integers(0, 70))
def test_a_processor_goes_on_from_what_it_remembered(first: list[int], second: list[int], reached_ms: int) -> None:
    """Timers up to the cut have gone off by then, which is before the next record: its partition was further."""
    turns = [_turn(at, None) for at in first]
    later = [_turn(at, reached_ms) for at in second]
    whole, _ = _made(Memory(key="k"), [*turns, *later], 100)
    before, memory = _made(Memory(key="k"), turns, reached_ms)
    told = json.loads(json.dumps({"remembered": memory.remembered, "timers_ms": sorted(memory.timers_ms)}))
    again = Memory(key="k", remembered=told["remembered"], timers_ms=set(told["timers_ms"]))
    after, _ = _made(again, later, 100)
    assert before + after == whole


@pytest.mark.parametrize(("end", "is_kept"), [(74, False), (75, True)])
def test_a_session_is_kept_as_long_as_a_record_can_merge_it(end: int, is_kept: bool) -> None:
    """Reach 12. At 100 a record at 80 is on time in a session up to 92, and at most a gap from one that ends at 75."""
    assert ((70, end) in reachable(_sessions(), [(70, end), (92, 99)], 100)) is is_kept


@pytest.mark.parametrize(("end", "is_kept"), [(66, False), (67, True)])
def test_a_session_that_is_cut_is_kept_for_the_longest_duration_more(end: int, is_kept: bool) -> None:
    assert ((60, end) in reachable(_sessions(20), [(60, end), (70, 99)], 100)) is is_kept


def test_records_lead_back_no_further_than_their_reach() -> None:
    """At 100 the record of 92 is on time by itself, 87 with it, 82 and 80 with these; 79 could be no more."""
    records = [_record(at, number, 100) for number, at in enumerate((92, 87, 82, 80, 79))]
    placed = {(records[one.number].timestamp_ms, one.start, one.end, one.is_late) for one in _in_sessions(records)}
    assert placed == {(at, 80, 92, False) for at in (92, 87, 82, 80)} | {(79, 79, 79, True)}


def test_sessions_that_are_cut_are_kept_from_where_no_partition_has_one_that_began_before() -> None:
    """Longest 9. Together they are cut at 60, 70, 80, ..., those of partition 1 at 65, 75, 85, ...: all are kept."""
    records = [_record(at, at, None, partition=int(at > 60)) for at in range(60, 101, 5)]
    spans = [(at, at + 5) for at in range(60, 100, 10)] + [(100, 100)]
    assert reachable(_sessions(9), spans, 100, records[:1]) == {(80, 85), (90, 95), (100, 100)}
    assert reachable(_sessions(9), spans, 100, records) == set(spans)


@pytest.mark.parametrize("seed", range(60))
def test_sessions_that_are_cut_are_those_of_the_whole_log_whatever_partitions_records_are_in(seed: int) -> None:
    dice, reached_ms = random.Random(seed), 100
    windows, times_ms = _sessions(9), dict[int, int]()

    def read(number: int, at_ms: int, partition: int, floor_ms: int = 0) -> Judged:
        times_ms[partition] = max(at_ms, floor_ms, times_ms.get(partition, 0))
        return _record(at_ms, number, times_ms[partition], partition)

    dense = sorted((at + dice.randrange(4), at) for at in dice.choices(range(100), k=60))
    records = [read(number, at_ms, dice.randrange(2)) for number, (_, at_ms) in enumerate(dense)]
    placed = [one for one in in_sessions(windows, records) if not one.is_late]
    accepted = [records[one.number]._replace(stream_time_ms=None) for one in placed]
    kept = reachable(windows, sorted({(one.start, one.end) for one in placed}), reached_ms, accepted)
    stayed = [record for record, one in zip(accepted, placed, strict=True) if (one.start, one.end) in kept]
    new = [read(60 + number, dice.randrange(75, 125), dice.randrange(2), reached_ms) for number in range(8)]
    assert _placed([*stayed, *new], new, windows) == _placed([*records, *new], new, windows)


@given(st.lists(st.integers(0, 100), max_size=12), st.lists(st.integers(0, 40), max_size=6), st.integers(0, 100))
def test_sessions_with_what_is_kept_are_those_of_the_whole_log(
    first: list[int], later: list[int], clock_ms: int
) -> None:
    """Of records of one partition; those that come later are judged by the stream time that was reached, or more."""
    reached_ms = max([clock_ms, *first])
    records = [_record(at, number, max(first[: number + 1])) for number, at in enumerate(first)]
    placed = [one for one in in_sessions(_sessions(), records) if not one.is_late]
    spans = sorted({(one.start, one.end) for one in placed})
    kept = reachable(_sessions(), spans, reached_ms)
    stayed = [records[one.number]._replace(stream_time_ms=None) for one in placed if (one.start, one.end) in kept]
    new = [
        _record(
            reached_ms + at - 20,
            len(first) + number,
            max([reached_ms, *(reached_ms + t - 20 for t in later[: number + 1])]),
        )
        for number, at in enumerate(later)
    ]
    whole = _placed([*records, *new], new)
    assert _placed([*stayed, *new], new) == whole


def test_where_time_stands_is_told_in_plain_values() -> None:
    stood = Reached(last_ms=7, stream_times={("a", 1): 9, ("a", 0): 7})
    again = Reached.from_json(json.loads(json.dumps(stood.to_json())))
    assert (again.last_ms, again.stream_times) == (7, {("a", 0): 7, ("a", 1): 9})
    assert Reached.nowhere().last_ms == NONE_DUE


def test_a_fold_of_all_time_over_several_partitions_cannot_go_on() -> None:
    """It takes the values of one partition after those of another, which no value of it can be continued by."""
    by_user = stream(CLICKS).select_key(user=col("user"))
    with pytest.raises(NotIncremental, match="fold"):
        require_incremental(_text_of(by_user).nodes())


def test_a_fold_of_all_time_over_records_in_order_goes_on() -> None:
    require_incremental(_text_of(stream(CLICKS)).nodes())
    require_incremental(_text_of(stream(CLICKS).in_order(grace="1 s").select_key(user=col("user"))).nodes())


def test_every_declared_stream_goes_on() -> None:
    for topology in declared().topologies.values():
        require_incremental(topology.nodes())


def _text_of(clicks: RecordStream) -> Topology:
    text = clicks.aggregate(pages=replace(TEXT, of=col("page")))
    return Topology(name="texts", sinks=[text.to(Topic(name="texts", key="user"))])


def _fold() -> Fold:
    assert TEXT.fold is not None
    return TEXT.fold


def _sessions(longest_ms: int | None = None) -> SessionWindows:
    reach_ms = 12 if longest_ms is None else longest_ms
    return SessionWindows(gap_ms=GAP, grace_ms=GRACE, max_duration_ms=longest_ms, reach_ms=reach_ms)


def _in_sessions(records: Sequence[Judged]) -> list[Placed]:
    return in_sessions(_sessions(), list(records))


def _record(at_ms: int, number: int, stream_time_ms: int | None, partition: int = 0) -> Judged:
    return Judged(at_ms, (partition, number), ("clicks", partition), stream_time_ms)


def _placed(
    records: Sequence[Judged], asked: Sequence[Judged], windows: SessionWindows | None = None
) -> set[tuple[object, ...]]:
    """What becomes of the records that are asked for, and with whom they are."""
    found = in_sessions(windows or _sessions(), list(records))
    orders = {one.order for one in asked}
    return {
        (records[one.number].order, None if one.is_late else (one.start, one.end))
        for one in found
        if records[one.number].order in orders
    }


def _turn(at_ms: int, reached_ms: int | None) -> Turn:
    return Turn({"at": at_ms}, at_ms, reached_ms)


def _made(memory: Memory, turns: Sequence[Turn], end_ms: int) -> tuple[list[Any], Memory]:
    def on_record(row: Any, state: KeyState) -> Any:
        state.remembered["n"] = state.remembered.get("n", 0) + row["at"]
        state.schedule(row["at"] + 5)
        return [{"said": f"record {state.remembered['n']}"}]

    def on_timer(at_ms: int, state: KeyState) -> Any:
        state.remembered["n"] += 1
        return [{"said": f"timer {at_ms} {state.remembered['n']}"}]

    found = list(processed(memory, turns, on_record, on_timer, end_ms=end_ms))
    [left] = [one.state for one in found if isinstance(one, Remembered)]
    return [one.row["said"] for one in found if isinstance(one, Made)], left
