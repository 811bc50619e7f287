"""Folds, estimates, first ones and processors of the recompute: by hand, and beside the interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recount.declare.aggregates import Aggregate, Fold, fold, reduce
from recount.declare.operators.processing import KeyState
from recount.declare.schema import STRING
from recount.recompute.operators.log_aggregates import estimated, folded, folded_in_session
from recount.recompute.operators.log_processing import LONGEST_CHAIN, Made, Memory, Raised, Turn, processed, winning
from recount.reference.record_aggregates import results, sketched
from recount.reference.records import Record
from recount.runtime.errors import Terminal

TEXT = fold("n", initial=lambda: "0", adder="{}+{}".format, merger="({}&{})".format, returns=STRING)
CHAIN = reduce("n", "({}.{})".format)
timed = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([None, "a", "b", "c"])), max_size=10)


def by_the_interpreter(aggregate: Aggregate, records: Iterable[tuple[int, Any]], gap_ms: int | None) -> Any:
    made = [
        Record(row={"n": value}, timestamp_ms=at, order=("log", 0, offset), entry=None)
        for offset, (at, value) in enumerate(records)
    ]
    return results({"it": aggregate}, made, gap_ms)["it"]


def fold_of(aggregate: Aggregate) -> Fold:
    assert aggregate.fold is not None
    return aggregate.fold


@pytest.mark.parametrize("aggregate", [TEXT, CHAIN], ids=["fold", "reduce"])
@given(records=timed)
def test_a_fold_takes_the_values_in_order(aggregate: Aggregate, records: list[tuple[int, Any]]) -> None:
    found = folded(fold_of(aggregate), [value for _, value in records])
    assert found == by_the_interpreter(aggregate, records, None)


@pytest.mark.parametrize("aggregate", [TEXT, CHAIN], ids=["fold", "reduce"])
@given(records=timed)
def test_a_fold_over_a_session_merges_as_the_session_did(aggregate: Aggregate, records: list[tuple[int, Any]]) -> None:
    assert folded_in_session(fold_of(aggregate), records, 5) == by_the_interpreter(aggregate, records, 5)


@pytest.mark.parametrize("size", [0, 1, 1_023, 1_024, 5_000])
def test_the_estimate_is_that_of_the_specification(size: int) -> None:
    assert estimated(range(size)) == sketched(range(size))
    assert abs(estimated(range(size)) - size) <= 0.1 * size


@pytest.mark.parametrize(("second", "wins"), [(9, False), (10, False), (11, True)])
def test_a_duplicate_is_at_most_the_horizon_away(second: int, wins: bool) -> None:
    for by_offset in (True, False):
        assert winning([(0, (0,)), (second, (1,))], horizon_ms=10, by_offset=by_offset) == [True, wins]


def test_the_first_is_that_of_the_offsets_or_that_of_the_event_times() -> None:
    records = [(5, (0,)), (0, (1,))]
    assert winning(records, horizon_ms=10, by_offset=True) == [True, False]
    assert winning(records, horizon_ms=10, by_offset=False) == [False, True]


def test_a_duplicate_does_not_prolong_the_horizon() -> None:
    assert winning([(0, (0,)), (10, (1,)), (11, (2,))], horizon_ms=10, by_offset=True) == [True, False, True]


def test_timers_go_off_before_the_record_that_finds_their_time_reached_and_at_the_end() -> None:
    """Each record asks for a timer 5 later; the partition had reached 4, then 5, before the second and third."""

    def on_record(row: Any, state: KeyState) -> Any:
        state.schedule(row["at"] + 5)
        return [{"said": f"record {row['at']}"}]

    def on_timer(at_ms: int, state: KeyState) -> Any:
        return [{"said": f"timer {at_ms} at {state.timestamp_ms}"}]

    turns = [Turn({"at": at}, at, reached) for at, reached in ((0, None), (1, 4), (2, 5))]
    made = processed(Memory(key="k"), turns, on_record, on_timer, end_ms=6)
    found = [one.row["said"] for one in made if isinstance(one, Made)]
    assert found == ["record 0", "record 1", "timer 5 at 5", "record 2", "timer 6 at 6"]


def _left_by(on_record: Any, on_timer: Any = None) -> list[Any]:
    turns = [Turn({"at": at, "items": [at]}, at, at - 1) for at in (1, 2, 3)]
    return list(processed(Memory(key="k"), turns, on_record, on_timer, end_ms=9))


@pytest.mark.parametrize("at", [0.5, float("inf"), None, True, -1, 2**63])
def test_a_timer_that_is_no_time_raises_for_its_record_however_it_is_set(at: Any) -> None:
    def asked(_row: Any, state: KeyState) -> Any:
        state.schedule(at)
        return []

    def unasked(_row: Any, state: KeyState) -> Any:
        state.timers_ms.add(at)
        return []

    for function in (asked, unasked):
        raised = [type(one.error).__name__ for one in _left_by(function) if isinstance(one, Raised)]
        assert raised == ["ValueError" if at in (-1, 2**63) else "TypeError"] * 3


def test_a_key_whose_timers_have_no_end_is_refused_at_the_timer_that_is_one_too_many() -> None:
    def asked(_row: Any, state: KeyState) -> Any:
        state.schedule(state.timestamp_ms)
        state.fired = LONGEST_CHAIN - 3
        return []

    def again(at_ms: int, state: KeyState) -> Any:
        if at_ms < last_ms:
            state.schedule(at_ms + 1)
        return [{"said": at_ms}]

    last_ms = 3
    assert [one.row["said"] for one in _left_by(asked, again) if isinstance(one, Made)] == [1, 2, 3]
    last_ms = 6
    with pytest.raises(Terminal) as refused:
        _left_by(asked, again)
    assert "the timer at 6 ms" in str(refused.value.given)


@pytest.mark.parametrize("what", [{7: 1}, (1, 2), {1}, Decimal("1.5"), float("nan")])
def test_what_is_remembered_and_no_json_is_refused(what: Any) -> None:
    def remembering(_row: Any, state: KeyState) -> Any:
        state.remembered["what"] = what
        return []

    [first, *_] = [one.error for one in _left_by(remembering) if isinstance(one, Raised)]
    assert isinstance(first, Terminal)


def test_rows_and_states_are_their_own_whatever_the_function_goes_on_changing() -> None:
    def changing(row: Any, state: KeyState) -> Any:
        """Takes its row apart, and raises for 2: what it made of the others must not be lost."""
        seen = state.remembered.setdefault("seen", [])
        seen.extend(row["items"])
        row["items"].clear()
        if row.pop("at") == 2:
            raise ValueError("two")
        return [{"said": seen}]

    assert [one.row["said"] for one in _left_by(changing) if isinstance(one, Made)] == [[1], [1, 3]]
