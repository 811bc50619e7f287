"""What functions share and leave behind: the unit-test driver isolates and refuses what the engine does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import pytest
from tests.unit.engine.by_hand import EXACT, LEFT, assert_law, drawn_by_hand, left
from tests.unit.engine.random_topology_logs import Cut
from tests.unit.engine.topology_runs import Told, by_engine, by_interpreter

from recount.declare.flow import RecordStream
from recount.declare.functions import FunctionFailed
from recount.declare.operators.processing import KeyState
from recount.declare.schema import DOUBLE, LONG, decimal

Row = dict[str, Any]


class Mood(StrEnum):
    """A text that is more than a text."""

    GOOD = "good"


TEMPLATE: dict[str, int] = {}
"""What all keys of a careless processor begin with."""


def another_key(_row: Row, state: KeyState) -> Iterable[Row]:
    """Makes its rows those of another key."""
    state.key = "b"
    return [{"n": 1}]


def beside_the_state(_row: Row, state: KeyState) -> Iterable[Row]:
    """Keeps what no restart would find."""
    state.count = getattr(state, "count", 0) + 1  # type: ignore[attr-defined]
    return [{"n": state.count}]  # type: ignore[attr-defined]


def from_a_template(_row: Row, state: KeyState) -> Iterable[Row]:
    """Lets all keys begin with one dict."""
    state.remembered = state.remembered or TEMPLATE
    found = [{"n": state.remembered.get("n", 0)}]
    state.remembered = {"n": found[0]["n"] + 1}
    return found


def by_default(_row: Row, state: KeyState) -> Iterable[Row]:
    """Expects of JSON what JSON does not keep: the second record finds a plain dict."""
    state.remembered.setdefault("by", defaultdict(int))[str(len(state.remembered))] += 1
    state.remembered["by"]["more" * len(state.remembered["by"])] += 1
    return [{"n": len(state.remembered["by"])}]


def of_an_enum(_row: Row, state: KeyState) -> Iterable[Row]:
    """Finds a text where it remembered more than that."""
    found = type(state.remembered.get("mood")) is str
    state.remembered["mood"] = Mood.GOOD
    return [{"n": int(found)}]


def undeclared(_row: Row) -> Row:
    """Makes a field that nothing declares."""
    return {"n": 1, "more": 2}


def of_another_type(row: Row) -> Row:
    """Whole numbers where others are declared."""
    return {"x": 1, "m": row["ln"]}


def said(row: Row) -> Row:
    """What a function below finds: values as they are declared."""
    return {"n": len(f"{row['x']} {row['m']}")}


FLOWS: Mapping[str, RecordStream] = {
    "another key": LEFT.process(another_key, n=LONG),
    "a count beside the state": LEFT.process(beside_the_state, n=LONG),
    "one dict for all keys": LEFT.process(from_a_template, n=LONG),
    "a dict that has defaults": LEFT.process(by_default, n=LONG),
    "a text that is more than a text": LEFT.process(of_an_enum, n=LONG),
    "a field that nothing declares": LEFT.map(undeclared, n=LONG).map(lambda row: {"n": row["more"]}, n=LONG),
    "values as they are declared": LEFT.map(of_another_type, x=DOUBLE, m=decimal(9, 2)).map(said, n=LONG),
    "a peek that changes its row": LEFT.peek(lambda row: row.clear()).map(lambda row: {"n": row["ln"]}, n=LONG),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("is_cut", [False, True], ids=["one batch", "a batch for each record"])
def test_the_engine_is_the_driver_however_the_log_is_cut(flow: str, is_cut: bool) -> None:
    log = [left(1, n=5), left(2, n=6), left(3, n=7, key=b"b"), left(4, n=8)]
    cuts = [Cut([one], restarts=True) for one in log] if is_cut else [Cut(log)]
    assert_law(drawn_by_hand(FLOWS[flow], EXACT, {"left": 1}), *cuts)


def raising(_row: Mapping[str, Any]) -> None:
    raise ValueError("not today")


@pytest.mark.parametrize("run", [by_engine, by_interpreter])
def test_a_peek_that_raises_stops_both_by_name(run: Callable[..., Told]) -> None:
    with pytest.raises(FunctionFailed) as failed:
        run(drawn_by_hand(LEFT.peek(raising), EXACT, {"left": 1}), [Cut([left(1)])])
    assert failed.value.place == "left-0@0"


def test_rows_of_timers_leave_by_time_then_key_also_where_a_timer_sets_one_before_itself() -> None:
    def backwards(at_ms: int, state: KeyState) -> Iterable[Row]:
        if at_ms > 5:
            state.schedule(at_ms - 6)
        return [{"n": at_ms}]

    def ask(row: Row, state: KeyState) -> Iterable[Row]:
        state.schedule(row["ln"])
        return []

    flow = LEFT.process(ask, on_timer=backwards, n=LONG)
    log = [left(1, n=9), left(2, n=7, key=b"b"), left(3, n=9, key=b"B"), left(4, n=10, key=b"a")]
    drawn = drawn_by_hand(flow, EXACT, {"left": 1})
    one, other = (
        run(drawn, [Cut([*log, left(90, n=99, key=b"z")])]).rows["out"] for run in (by_engine, by_interpreter)
    )
    assert one == other
    assert len(one) == 8
