"""A function of the topology that raises: its record is set aside, or where there is none the stream fails by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.unit.engine.by_hand import EXACT, LEFT, drawn_by_hand, fed, left, rows, run
from tests.unit.engine.random_topology_logs import Cut
from tests.unit.engine.topology_runs import by_engine, by_interpreter

from recount.declare.aggregates import count, fold, reduce
from recount.declare.expressions import coalesce, col
from recount.declare.flow import RecordStream
from recount.declare.functions import FunctionFailed, message_of, reason_of
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG
from recount.declare.windows import SessionWindows, SlidingWindows, Windows, last_n, tumbling
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


def test_a_record_for_which_a_function_raises_is_set_aside_with_its_raw_bytes() -> None:
    computed = run(MAPPED, LOG).computed[-1]
    assert computed.rejected.sort("offset").rows() == [
        ("left", 0, 1, 2, REASON, "integer division or modulo by zero", b"zero", LOG[1].record.value),
        ("left", 0, 2, 3, REASON, "integer division or modulo by zero", b"a", LOG[2].record.value),
    ]
    assert computed.emitted["out"]["n"].to_list() == [5, 10]
    proof = computed.after.partitions["left", 0]
    assert (proof.records, proof.counted, proof.dead_lettered, proof.filtered) == (4, 2, 2, 0)


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


def test_a_timer_that_raises_fails_the_stream_and_names_key_and_time() -> None:
    flow = LEFT.process(counted, on_timer=lambda at_ms, _state: [{"n": 1 // (at_ms - 8)}], n=LONG)
    log = [left(1), left(90)]
    drawn = drawn_by_hand(flow, EXACT, {"left": 1})
    with pytest.raises(FunctionFailed) as failed:
        run(flow, log).computed[-1]
    assert failed.value.place == "the timer 8 of key 'a'"
    with pytest.raises(FunctionFailed):
        by_interpreter(drawn, [Cut(log)])


@pytest.mark.parametrize(
    ("function", "kind"), [(out_of_memory, FunctionFailed), (refused, Terminal)], ids=["memory", "our own error"]
)
def test_what_is_no_fault_of_the_record_fails_the_stream(function: Callable[[Row], Row], kind: type[Exception]) -> None:
    drawn = drawn_by_hand(LEFT.map(function, n=LONG), EXACT, {"left": 1})
    for by in (by_engine, by_interpreter):
        with pytest.raises(kind):
            by(drawn, [Cut([left(1)])])


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
        (PAIRED.flat_map(raising, n=LONG), f"a derived row: key 'a', made of left-0@0+left-0@0, time {ONE_MS}"),
        (HELD.flat_map(raising, n=LONG), "left-0@0"),
    ],
    ids=["a window's result", "a pair", "a record that was held back"],
)
def test_where_no_record_is_at_hand_the_stream_fails_by_name(flow: RecordStream, what: str) -> None:
    log = [left(1), left(90, "b")]
    with pytest.raises(FunctionFailed) as failed:
        run(flow, log)
    assert failed.value.place == what
    assert "ValueError: not today" in failed.value.what
    assert "flat-map to n" in str(failed.value.given)
    drawn = drawn_by_hand(flow, EXACT, {"left": 1})
    with pytest.raises(FunctionFailed):
        by_interpreter(drawn, [Cut(log)])


def inverses(total: int, n: int) -> int:
    """Raises for 0, and for 5 once the total has reached 10."""
    return total + 10 // (n if total < 10 else n - 5)


INVERSES = fold("ln", initial=int, adder=inverses, merger=lambda one, other: one + other, returns=LONG)
KEYED = LEFT.select_key(id=coalesce(col("lw"), "a"))
LOG_OF_FOLDS = [left(at, n=n) for at, n in enumerate([2, 0, 1, 5, 10])]


def test_a_record_for_which_a_fold_raises_is_set_aside_and_passed_over_by_this_fold_alone() -> None:
    windows = KEYED.windowed_by(tumbling("10 ms", grace="0 s"))
    engine = run(windows.aggregate(n=INVERSES, all=count()).emit_final(), LOG_OF_FOLDS)
    [first] = engine.computed
    #  2: 5    0 raises    1: 15    5 raises, for 10 is reached    10: 17
    assert first.rejected["offset"].to_list() == [1, 3]
    [reason] = first.rejected["reason"].unique()
    assert reason.startswith("function-raised: ZeroDivisionError in n = fold(ln), all = count() per id, tumbling 10 ms")
    proof = first.after.partitions["left", 0]
    assert (proof.counted, proof.dead_lettered) == (3, 2)
    assert rows(fed(engine, [left(90)]), "n", "all") == [(17, 5)]


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
        run(flow, [left(1, n=2), left(2, n=0)])
    assert failed.value.place == "left-0@1"
    assert "ZeroDivisionError" in failed.value.what


def test_a_fold_that_raises_only_among_values_of_several_partitions_fails_the_stream_and_names_the_record() -> None:
    flow = KEYED.aggregate(n=reduce("ln", lambda one, other: one + 10 // other))
    with pytest.raises(FunctionFailed) as failed:
        run(flow, [left(1, n=2), left(2, n=0, partition=1)], left=2)
    assert failed.value.place == "left-1@0"
