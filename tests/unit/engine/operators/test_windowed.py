"""The windowed operator is the interpreter, on any log, however it is cut into batches and whenever it restarts."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.operators.windowed_engine import (
    CLOSING,
    PARTITIONS,
    Engine,
    Event,
    Interpreted,
    emitting,
    events_by_number,
    keyed_events,
    revisions_count_up,
    table,
)

from recount.declare.aggregates import (
    Aggregate,
    average,
    count,
    distinct,
    first,
    fold,
    largest,
    last,
    reduce,
    smallest,
    total,
)
from recount.declare.expressions import coalesce, col
from recount.declare.flow import RecordStream
from recount.declare.operators.nodes import EmissionKind
from recount.declare.schema import STRING
from recount.declare.windows import Windows, all_time, hopping, last_n, session, sliding, tumbling

EXAMPLES = int(os.environ.get("LAW_EXAMPLES", "8"))


def joined(text: str, word: str | None) -> str:
    return text + str(word)


AGGREGATES: dict[str, Aggregate] = {
    "records": count(),
    "heavy": count().only(col("weight") > 1),
    "items": total("items"),
    "amount": total("amount").only(col("word") == "x"),
    "weight": total("weight"),
    "least": smallest("amount"),
    "greatest": largest("word"),
    "mean": average("amount"),
    "mean_items": average("items"),
    "first_word": first("word"),
    "last_item": last("items").only(col("weight") > 1),
    "words": distinct("word"),
    "sketched": distinct("amount", sketch=True),
    "reduced": reduce(coalesce(col("word"), "-"), operator.add),
    "folded": fold("word", initial=lambda: "0", adder=joined, merger=joined, returns=STRING).only(col("items") != 2),
}
FEW = {name: AGGREGATES[name] for name in ("records", "heavy", "amount", "last_item", "folded")}
"""Enough to see which records are in a window, and in which order; all of them are compared once a batch."""
WINDOWS: dict[str, Windows] = {
    "tumbling": tumbling("10 ms", grace="3 ms"),
    "hopping": hopping("10 ms", advance="4 ms", grace="0 ms"),
    "sliding": sliding("6 ms", grace="4 ms"),
    "session": session("4 ms", grace="3 ms", reach="6 ms"),
    "short session": session("4 ms", grace="3 ms", max_duration="9 ms"),
    "all time": all_time(),
    "last n": last_n(3),
}
CLOSING_WINDOWS = [name for name, windows in WINDOWS.items() if name not in {"all time", "last n"}]

values = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "word": st.sampled_from(["x", "y", "zz", None]),
        "items": st.sampled_from([1, 2, 10, None]),
        "amount": st.sampled_from([0.1, 2.5, None]),
        "weight": st.sampled_from([0.5, 2.0, None]),
    },
)
events = st.builds(
    Event,
    timestamp_ms=st.integers(0, 40),
    key=st.sampled_from(["a", "a", "b", None]),
    value=values,
    partition=st.integers(0, PARTITIONS - 1),
)
logs = st.lists(events, max_size=25)
cuts = st.lists(st.integers(0, 25), max_size=5)
numbers = st.lists(st.integers(0, 6), max_size=3)


def cut(log: Sequence[Event], at: Sequence[int]) -> list[Sequence[Event]]:
    bounds = [0, *sorted(min(place, len(log)) for place in at), len(log)]
    return [log[start:end] for start, end in pairwise(bounds)]


def aggregated(windows: str, emission: EmissionKind) -> RecordStream:
    aggregates = AGGREGATES if emission == "each batch" else FEW
    if windows == "all time":  # whose folds refuse keys in several partitions
        aggregates = {name: one for name, one in aggregates.items() if one.fold is None}
    return emitting(keyed_events().windowed_by(WINDOWS[windows]).aggregate(**aggregates), emission)


def agree_on_lateness(engine: Engine, interpreted: Interpreted) -> bool:
    assert engine.late == interpreted.late
    assert engine.fates == interpreted.fates
    return True


@pytest.mark.parametrize("windows", WINDOWS)
@settings(deadline=None, max_examples=EXAMPLES)
@given(log=logs, at=cuts, restarts=numbers)
def test_updates_of_each_record_are_the_interpreters(
    windows: str, log: list[Event], at: list[int], restarts: list[int]
) -> None:
    results = aggregated(windows, "each record")
    interpreted = Interpreted(results, [log])
    engine = Engine(results, cut(log, at), restarts=restarts)
    assert [row for batch in engine.emitted for row in batch] == interpreted.emitted[0]
    assert agree_on_lateness(engine, interpreted)


@pytest.mark.parametrize("windows", WINDOWS)
@settings(deadline=None, max_examples=EXAMPLES)
@given(log=logs, at=cuts, restarts=numbers)
def test_updates_of_each_batch_are_the_interpreters(
    windows: str, log: list[Event], at: list[int], restarts: list[int]
) -> None:
    results = aggregated(windows, "each batch")
    batches = cut(log, at)
    interpreted = Interpreted(results, batches)
    engine = Engine(results, batches, restarts=restarts)
    assert engine.emitted == interpreted.emitted
    assert agree_on_lateness(engine, interpreted)


@pytest.mark.parametrize("windows", CLOSING_WINDOWS)
@settings(deadline=None, max_examples=EXAMPLES)
@given(log=logs, at=cuts, restarts=numbers, idle=st.lists(st.integers(0, PARTITIONS), max_size=6))
def test_final_results_are_the_interpreters_whatever_the_batches_and_idle_partitions(
    windows: str, log: list[Event], at: list[int], restarts: list[int], idle: list[int]
) -> None:
    results = aggregated(windows, "final")
    batches = [*cut(log, at), CLOSING]
    interpreted = Interpreted(results, batches)
    engine = Engine(results, batches, restarts=restarts, idle=idle[: len(batches) - 1])
    assert table(engine.emitted) == table(interpreted.emitted)
    assert revisions_count_up(engine.emitted)
    assert agree_on_lateness(engine, interpreted)


@pytest.mark.parametrize("windows", CLOSING_WINDOWS)
@settings(deadline=None, max_examples=EXAMPLES // 2)
@given(log=st.lists(events, max_size=12), restarts=numbers)
def test_in_batches_of_one_record_final_results_leave_as_from_the_interpreter(
    windows: str, log: list[Event], restarts: list[int]
) -> None:
    results = aggregated(windows, "final")
    batches = [[event] for event in [*log, *CLOSING]]
    interpreted = Interpreted(results, batches)
    assert Engine(results, batches, restarts=restarts).emitted == interpreted.emitted


@pytest.mark.parametrize("windows", WINDOWS)
@settings(deadline=None, max_examples=EXAMPLES // 2)
@given(log=logs, at=cuts)
def test_a_key_may_be_a_number(windows: str, log: list[Event], at: list[int]) -> None:
    results = emitting(events_by_number().windowed_by(WINDOWS[windows]).aggregate(**FEW), "each batch")
    batches = cut(log, at)
    interpreted = Interpreted(results, batches)
    engine = Engine(results, batches)
    assert engine.emitted == interpreted.emitted
    assert agree_on_lateness(engine, interpreted)


KINDS: list[EmissionKind] = ["each record", "each batch", "final"]
FURTHER: dict[str, Aggregate] = {
    "results": count(),
    "sum": total("records"),
    "texts": fold("text", initial=lambda: "0", adder=joined, merger=joined, returns=STRING),
    "first_text": first("text"),
    "last_text": last("text"),
}


def chained(above: str, above_kind: EmissionKind, below: str, kind: EmissionKind) -> RecordStream:
    """Windows over the results of windows: derived rows, in revisions, and withdrawn."""
    # a fold of all time refuses keys in several partitions
    text = (
        last("word") if above == "all time" else fold("word", initial=str, adder=joined, merger=joined, returns=STRING)
    )
    results = emitting(keyed_events().windowed_by(WINDOWS[above]).aggregate(records=count(), text=text), above_kind)
    return emitting(results.windowed_by(WINDOWS[below]).aggregate(**FURTHER), kind)


def emissions_of(windows: str) -> st.SearchStrategy[EmissionKind]:
    return st.sampled_from(KINDS if windows in CLOSING_WINDOWS else KINDS[:2])


chains = st.tuples(st.sampled_from(list(WINDOWS)), st.sampled_from(list(WINDOWS))).flatmap(
    lambda both: st.tuples(st.just(both[0]), emissions_of(both[0]), st.just(both[1]), emissions_of(both[1]))
)


@settings(deadline=None, max_examples=EXAMPLES)
@given(chain=chains, log=st.lists(events, max_size=10), restarts=numbers)
def test_windows_over_windows_take_revisions_in_place_of_what_was_there(
    chain: tuple[str, EmissionKind, str, EmissionKind], log: list[Event], restarts: list[int]
) -> None:
    results = chained(*chain)
    batches = [[event] for event in [*log, *CLOSING]]
    interpreted = Interpreted(results, batches)
    engine = Engine(results, batches, restarts=restarts)
    assert engine.emitted == interpreted.emitted
    assert agree_on_lateness(engine, interpreted)


@settings(deadline=None, max_examples=EXAMPLES)
@given(chain=chains, log=st.lists(events, max_size=15), at=cuts, restarts=numbers)
def test_windows_over_windows_do_not_depend_on_batches(
    chain: tuple[str, EmissionKind, str, EmissionKind], log: list[Event], at: list[int], restarts: list[int]
) -> None:
    results = chained(*chain)
    batches = [*cut(log, at), CLOSING]
    interpreted = Interpreted(results, batches)
    engine = Engine(results, batches, restarts=restarts)
    assert table(engine.emitted) == table(interpreted.emitted)
    assert revisions_count_up(engine.emitted)
