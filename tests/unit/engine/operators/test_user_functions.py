"""A function of the topology that raises: its record is set aside, or where there is none the stream fails by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.engine.by_hand import EXACT, LATEST, LEFT, assert_law, drawn_by_hand, left
from tests.unit.engine.operators.feeding import LEFT as TOPIC
from tests.unit.engine.operators.feeding import Event, fed, interpreted, keyed, topology
from tests.unit.engine.random_flows import Comparable
from tests.unit.engine.random_topology_logs import Cut
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.engine.topology_runs import by_interpreter

from recount.declare.aggregates import Aggregate, count, fold, reduce
from recount.declare.expressions import coalesce, col
from recount.declare.flow import RecordStream, Table
from recount.declare.functions import FunctionFailed, message_of, reason_of
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import SessionWindows, SlidingWindows, Windows, hopping, last_n, tumbling
from recount.runtime.errors import Terminal

Row = Mapping[str, Any]


def halved(row: Row) -> list[dict[str, int]]:
    """Raises for 0, and for 5 after it has made a row."""
    made = [{"n": 10 // row["ln"]}]
    return [*made, *(1 // 0 for _ in range(row["ln"] == 5))]


def out_of_memory(_row: Row) -> Row:
    raise MemoryError("no more")


def refused(_row: Row) -> Row:
    raise Terminal("not a fault of the record", given="x", expected="y", remedy="z")


MAPPED = LEFT.flat_map(halved, n=LONG)
ONE_MS = "1970-01-01 00:00:00.001"
WINDOWED = LEFT.windowed_by(tumbling("10 ms", grace="0 s")).aggregate(ln=count()).emit_final()
LOG = [left(1, n=2), left(2, n=0, key=b"zero"), left(3, n=5), left(4, n=1)]
REASON = "function-raised: ZeroDivisionError in flat-map to n"


def engine_of(flow: RecordStream, **changed: Any) -> TopologyEngine:
    declared = Topology(name="t", sinks=[flow.to(Topic(name="out", key="id"))], **changed)
    return TopologyEngine(declared, {source.topic.name: 1 for source in declared.sources})


def test_a_record_for_which_a_function_raises_is_set_aside_with_its_raw_bytes() -> None:
    computed = engine_of(MAPPED).batch({"left": [one.record for one in LOG]})
    assert computed.rejected.sort("offset").rows() == [
        ("left", 0, 1, 2, REASON, "integer division or modulo by zero", b"zero", LOG[1].record.value),
        ("left", 0, 2, 3, REASON, "integer division or modulo by zero", b"a", LOG[2].record.value),
    ]
    assert computed.emitted["out"]["n"].to_list() == [5, 10]
    proof = computed.after.partitions["left", 0]
    assert (proof.records, proof.counted, proof.dead_lettered, proof.filtered) == (4, 2, 2, 0)


def test_its_time_has_been_read_and_counts() -> None:
    computed = engine_of(MAPPED).batch({"left": [left(1, n=1).record, left(90, n=0).record]})
    assert computed.after.partitions["left", 0].stream_time_ms == 90


@pytest.mark.parametrize(
    "flow",
    [
        MAPPED,
        MAPPED.merge(LEFT.with_fields(n=col("ln")).select("n")),
        LEFT.filter(col("ln") < 5).flat_map(halved, n=LONG),
        LEFT.deduplicate(KEY, horizon="5 ms").flat_map(halved, n=LONG),
        MAPPED.windowed_by(tumbling("10 ms", grace="0 s")).aggregate(n=count()).emit_final(),
    ],
    ids=["alone", "used on another way", "behind a filter", "behind the first by offset", "above a window"],
)
def test_the_engine_sets_aside_what_the_interpreter_does_however_often_it_restarts(flow: RecordStream) -> None:
    drawn = drawn_by_hand(flow, EXACT, {"left": 1})
    assert_law(drawn, Cut(LOG[:2]), Cut(LOG[2:], restarts=True))


def test_of_several_functions_that_raise_for_a_record_one_letter_tells() -> None:
    both = MAPPED.merge(LEFT.map(lambda row: {"n": {}[row["ln"]]}, n=LONG))
    found = engine_of(both).batch({"left": [left(1, n=0).record]})
    assert found.rejected["reason"].to_list() == ["function-raised: KeyError in map to n"]
    assert_law(drawn_by_hand(both, EXACT, {"left": 1}), Cut(LOG))


def test_the_letter_is_compared_by_operator_and_error_and_never_by_the_message() -> None:
    assert reason_of("map to n", ValueError("<object at 0x7f>")) == "function-raised: ValueError in map to n"
    assert message_of(ValueError("a\ud800" + "b" * 300)) == "a?" + "b" * 198


def counted(row: Row, state: KeyState) -> Iterator[Row]:
    """Counts, reminds and says so; then raises for 0, all of which must be forgotten."""
    state.remembered.setdefault("seen", []).append(row["ln"])
    state.schedule(state.timestamp_ms + (7 if row["ln"] else 1))
    yield {"n": sum(state.remembered["seen"])}
    yield {"n": 10 // row["ln"]}


def reminded(at_ms: int, state: KeyState) -> Iterator[Row]:
    """A timer changes the state as well: of the record after it, what it did stays."""
    state.remembered["seen"].append(100)
    yield {"n": at_ms}


PROCESSED = LEFT.process(counted, on_timer=reminded, n=LONG)


def test_a_record_for_which_a_processor_raises_has_changed_nothing() -> None:
    engine = engine_of(LEFT.process(counted, n=LONG))
    computed = engine.batch({"left": [left(at, n=n).record for at, n in enumerate([1, 0, 2, 0, 0, 5])]})
    assert computed.emitted["out"]["n"].to_list() == [1, 10, 3, 5, 8, 2]
    assert computed.rejected["offset"].to_list() == [1, 3, 4]
    assert computed.rejected["reason"].unique().to_list() == [
        "function-raised: ZeroDivisionError in process each __key to n"
    ]
    proof = computed.after.partitions["left", 0]
    assert (proof.counted, proof.dead_lettered) == (3, 3)


@pytest.mark.parametrize("at", [[], [1], [2], [1, 2, 3, 4, 5, 6]])
def test_its_timers_are_not_set_and_those_before_it_stay_however_the_log_is_cut(at: Sequence[int]) -> None:
    #  1 a sets 8      9 raises: 8 went off before it, 10 is never set      20: 16 and 17 went off before it
    log = [left(1), left(9), left(10, n=0), left(11, n=2), left(12, n=0, key=b"b"), left(20, n=0), left(30)]
    bounds = [0, *at, len(log)]
    assert_law(
        drawn_by_hand(PROCESSED, EXACT, {"left": 1}),
        *(Cut(log[start:end], restarts=True) for start, end in pairwise(bounds)),
    )


def test_a_timer_that_raises_fails_the_stream_and_names_key_and_time() -> None:
    flow = LEFT.process(counted, on_timer=lambda at_ms, _state: [{"n": 1 // (at_ms - 8)}], n=LONG)
    log = [left(1), left(90)]
    drawn = drawn_by_hand(flow, EXACT, {"left": 1})
    with pytest.raises(FunctionFailed) as failed:
        engine_of(flow).batch({"left": [one.record for one in log]})
    assert failed.value.place == "the timer 8 of key 'a'"
    with pytest.raises(FunctionFailed):
        by_interpreter(drawn, [Cut(log)])


def test_a_topology_that_fails_on_bad_records_says_which_function_raised() -> None:
    declared = topology(keyed(TOPIC).map(lambda row: {"n": 1 // row["l"]}, n=LONG))
    strict = Topology(name="t", sinks=declared.sinks, on_bad_record="fail")
    with pytest.raises(Terminal) as failed:
        interpreted(strict, [Event(1, "a", {"l": 0})])
    assert "left-0@0: function-raised: ZeroDivisionError in map to n" in str(failed.value.given)


@pytest.mark.parametrize(
    ("function", "kind"), [(out_of_memory, FunctionFailed), (refused, Terminal)], ids=["memory", "our own error"]
)
def test_what_is_no_fault_of_the_record_fails_the_stream(function: Callable[[Row], Row], kind: type[Exception]) -> None:
    flow = topology(keyed(TOPIC).map(function, n=LONG))
    for run in (lambda: fed(flow, [[Event(1, "a", {"l": 0})]]), lambda: interpreted(flow, [Event(1, "a", {"l": 0})])):
        with pytest.raises(kind):
            run()


def raising(_row: Row) -> list[Row]:
    raise ValueError("not today")


PAIRED = LEFT.select("ln").join(LEFT.select(n=col("ln")), before="0 ms", after="0 ms", grace="0 ms")
HELD = LEFT.deduplicate("lw", horizon="5 ms")


@pytest.mark.parametrize(
    ("flow", "what"),
    [
        (
            WINDOWED.flat_map(raising, n=LONG),
            f"a derived row: key 'a', window 1970-01-01 00:00:00 to 00:00:00.010, time {ONE_MS}",
        ),
        (
            PAIRED.flat_map(raising, n=LONG),
            f"a derived row: key 'a', made of left-0@0+left-0@0, time {ONE_MS}",
        ),
        (HELD.flat_map(raising, n=LONG), "left-0@0"),
    ],
    ids=["a window's result", "a pair", "a record that was held back"],
)
def test_where_no_record_is_at_hand_the_stream_fails_by_name(flow: RecordStream, what: str) -> None:
    log = {"left": [left(1).record, left(90, "b").record]}
    with pytest.raises(FunctionFailed) as failed:
        engine_of(flow).batch(log)
    assert failed.value.place == what
    assert "ValueError: not today" in failed.value.what
    assert "flat-map to n" in str(failed.value.given)
    drawn = drawn_by_hand(flow, EXACT, {"left": 1})
    with pytest.raises(FunctionFailed):
        by_interpreter(drawn, [Cut([left(1), left(90, "b")])])


REVISED = Comparable(exactness="revised", with_times=True, has_bounds=True)


def inverses(total: int, n: int) -> int:
    """Raises for 0, and for 5 once the total has reached 10."""
    return total + 10 // (n if total < 10 else n - 5)


INVERSES = fold("ln", initial=int, adder=inverses, merger=lambda one, other: one + other, returns=LONG)
KEYED = LEFT.select_key(id=coalesce(col("lw"), "a"))
LOG_OF_FOLDS = [
    *(left(at, n=n) for at, n in enumerate([2, 0, 1, 5, 10])),
    *(left(at, n=n, partition=1) for at, n in enumerate([1, 0, 5, 10, 2])),
]


def test_a_record_for_which_a_fold_raises_is_set_aside_and_passed_over_by_this_fold_alone() -> None:
    engine = engine_of(
        KEYED.windowed_by(tumbling("10 ms", grace="0 s")).aggregate(n=INVERSES, all=count()).emit_final()
    )
    first = engine.batch({"left": [event.record for event in LOG_OF_FOLDS[:5]]})
    #  2: 5    0 raises    1: 15    5 raises, for 10 is reached    10: 17
    assert first.rejected["offset"].to_list() == [1, 3]
    [reason] = first.rejected["reason"].unique()
    assert reason.startswith("function-raised: ZeroDivisionError in n = fold(ln), all = count() per id, tumbling 10 ms")
    proof = first.after.partitions["left", 0]
    assert (proof.counted, proof.dead_lettered) == (3, 2)
    second = engine.batch({"left": [left(90).record]})
    assert second.emitted["out"].select("n", "all").rows() == [(17, 5)]


def flows_with(numbers: Aggregate) -> dict[str, tuple[RecordStream | Table, Comparable]]:
    tumbling_ms = KEYED.windowed_by(tumbling("10 ms", grace="0 s"))
    hopping_ms = KEYED.windowed_by(hopping("4 ms", advance="2 ms", grace="90 ms"))
    sessions = KEYED.windowed_by(SessionWindows(gap_ms=2, grace_ms=90))
    return {
        "tumbling": (tumbling_ms.aggregate(n=numbers, all=count()).emit_final(), EXACT),
        "hopping": (hopping_ms.aggregate(n=numbers).emit_final(), EXACT),
        "sessions": (sessions.aggregate(n=numbers).emit_final(), REVISED),
        "of all time": (KEYED.aggregate(n=numbers), replace(LATEST, has_bounds=False)),
        "of some records": (tumbling_ms.aggregate(n=numbers.only(col("lb"))).emit_each_batch(), REVISED),
    }


@pytest.mark.parametrize("at", [[], [1], [4, 6], [1, 2, 3, 4, 5, 6, 7, 8, 9]])
@pytest.mark.parametrize("kind", flows_with(INVERSES))
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_fold_passes_over_the_same_records_however_the_log_is_cut(
    kind: str, partitions: int, at: Sequence[int]
) -> None:
    """With two partitions whether it raises is a matter of the value alone."""
    alone = fold("ln", initial=int, adder=lambda total, n: total + 10 // n, merger=min, returns=LONG)
    flow, sink = flows_with(INVERSES if partitions == 1 else alone)[kind]
    log = (
        LOG_OF_FOLDS
        if partitions == 2
        else [replace(one, record=replace(one.record, partition=0)) for one in LOG_OF_FOLDS]
    )
    bounds = [0, *at, len(log)]
    cuts = [Cut(log[start:end], restarts=True) for start, end in pairwise(bounds)]
    assert_law(drawn_by_hand(flow, sink, {"left": partitions}), *cuts)


def test_what_a_fold_had_begun_to_change_when_it_raised_is_undone() -> None:
    def listed(seen: list[int], n: int) -> list[int]:
        seen.append(n)
        return [*seen, 1 // n][:-1]

    numbers = fold("ln", initial=list, adder=listed, merger=lambda one, other: one + other, returns=list_of(LONG))
    flow = KEYED.windowed_by(tumbling("10 ms", grace="0 s")).aggregate(n=numbers).emit_final()
    engine = engine_of(flow)
    engine.batch({"left": [left(at, n=n).record for at, n in enumerate([1, 0, 2, 0])]})
    assert engine.batch({"left": [left(90).record]}).emitted["out"]["n"].to_list() == [[1, 2]]


NOT_TRIED = fold("ln", initial=int, adder=lambda total, n: total + 10 // n, merger=max, returns=LONG)


@pytest.mark.parametrize(
    "windows",
    [SlidingWindows(difference_ms=5, grace_ms=0), last_n(2), SessionWindows(gap_ms=5, grace_ms=0, max_duration_ms=9)],
    ids=["sliding", "last n", "sessions that are cut"],
)
def test_where_a_window_is_known_only_later_a_fold_that_raises_fails_the_stream_and_names_the_record(
    windows: Windows,
) -> None:
    flow = KEYED.windowed_by(windows).aggregate(n=NOT_TRIED).emit_each_batch()
    with pytest.raises(FunctionFailed) as failed:
        engine_of(flow).batch({"left": [left(1, n=2).record, left(2, n=0).record]})
    assert failed.value.place == "left-0@1"
    assert "ZeroDivisionError" in failed.value.what


def test_a_fold_that_raises_only_among_values_of_several_partitions_fails_the_stream_and_names_the_record() -> None:
    flow = KEYED.aggregate(n=reduce("ln", lambda one, other: one + 10 // other))
    engine = TopologyEngine(Topology(name="t", sinks=[flow.to(Topic(name="out", key="id"))]), {"left": 2})
    with pytest.raises(FunctionFailed) as failed:
        engine.batch({"left": [left(1, n=2).record, left(2, n=0, partition=1).record]})
    assert failed.value.place == "left-1@0"


def test_an_action_that_raises_fails_the_stream_and_names_the_record() -> None:
    with pytest.raises(FunctionFailed) as failed:
        fed(topology(keyed(TOPIC).peek(raising)), [[Event(1, "a", {"l": 2})]])
    assert failed.value.place == "left-0@0"
