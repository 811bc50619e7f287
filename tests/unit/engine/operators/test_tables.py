"""Tables: changes, filters, groups and joins of tables come to what the interpreter comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from tests.unit.engine.operators.feeding import (
    LEFT,
    RIGHT,
    Batches,
    Event,
    Result,
    assert_same,
    by_partition,
    cut,
    cuts,
    fed,
    interpreted,
    keyed,
    latest,
    law,
    logs,
    read_by,
    restarts,
    topics,
    topology,
)

from recount.declare.aggregates import average, count, distinct, first, fold, last, smallest, total
from recount.declare.expressions import col
from recount.declare.schema import LONG
from recount.declare.topology import Topology

left, right = keyed(LEFT), keyed(RIGHT)
table, versions, other = left.to_table(), left.to_table(versioned=True), right.to_table()
CHANGES = {
    "table": topology(table),
    "versioned table": topology(versions),
    "filtered table": topology(table.filter(col("l") > 1)),
    "filtered versioned table": topology(versions.filter(col("l") > 1).with_fields(twice=col("l") * 2)),
}
SUMMED = fold("l", initial=lambda: 0, adder=lambda held, n: held + (n or 0), merger=lambda a, b: a + b, returns=LONG)
GROUPS = {
    "grouped table": topology(
        table.group_by(word=col("word")).aggregate(
            rows=count(),
            many=count().only(col("l") > 1),
            differing=distinct("l"),
            sum=total("l"),
            mean=average("l"),
            least=smallest("l"),
            first=first("l"),
            last=last("l"),
            folded=SUMMED,
        )
    ),
    "grouped part of a versioned table": topology(
        versions.filter(col("l") > 0).group_by(word=col("word")).aggregate(rows=count(), sum=total("l"))
    ),
}
JOINS = {
    "inner": topology(table.join(other)),
    "left": topology(table.left_join(other)),
    "outer": topology(table.outer_join(other)),
}
DEEPER_JOINS = {
    "versioned tables": topology(versions.outer_join(right.to_table(versioned=True))),
    "a part of a versioned table": topology(versions.filter(col("l") > 1).outer_join(other)),
    "two parts": topology(versions.filter(col("l") > 1).left_join(right.to_table(versioned=True).filter(col("r") > 0))),
    "groups": topology(table.group_by(word=col("word")).aggregate(rows=count()).join(other)),
}


def in_order(batches: Batches) -> list[Event]:
    """The log as an operator of one topic gets it."""
    return [event for batch in batches for event in by_partition(batch)]


def in_turn(batches: Batches) -> list[Event]:
    """The log as a join of tables applies it: always the side whose stream time is behind, the left where they meet."""
    applied: list[Event] = []
    for batch in batches:
        turns = []
        for side in topics(JOINS["inner"]):
            seen_ms = -1
            for event in by_partition(one for one in batch if one.topic == side):
                seen_ms = seen_ms if event.key is None else max(seen_ms, event.timestamp_ms)
                turns.append((seen_ms, event))
        applied += [event for _, event in sorted(turns, key=lambda turn: turn[0])]
    return applied


def rows(results: Sequence[Result]) -> dict[Any, Any]:
    """The rows that there are in the end."""
    return {key: value for key, (_, value, _, _) in latest(results).items() if value is not None}


@pytest.mark.parametrize("name", CHANGES)
@law
@given(log=logs, at=cuts, again=restarts)
def test_every_change_is_the_interpreters(
    name: str, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
) -> None:
    batches = cut(read_by(CHANGES[name], log), at)
    assert_same(fed(CHANGES[name], batches, again), interpreted(CHANGES[name], in_order(batches)))


@pytest.mark.parametrize("name", GROUPS)
@law
@given(log=logs, at=cuts, again=restarts)
def test_the_last_update_of_a_group_is_the_interpreters(
    name: str, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
) -> None:
    batches = cut(read_by(GROUPS[name], log), at)
    engine, reference = fed(GROUPS[name], batches, again), interpreted(GROUPS[name], in_order(batches))
    assert latest(engine.written) == latest(reference.written)
    assert engine.fates == reference.fates


@pytest.mark.parametrize("name", JOINS)
@law
@given(log=logs, at=cuts, again=restarts)
def test_a_join_of_tables_says_what_the_interpreter_says_that_takes_the_sides_in_turn(
    name: str, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
) -> None:
    batches = cut(log, at)
    assert_same(fed(JOINS[name], batches, again), interpreted(JOINS[name], in_turn(batches)))


@pytest.mark.parametrize("name", [*JOINS, *DEEPER_JOINS])
@law
@given(log=logs, at=cuts, again=restarts)
def test_the_rows_of_joined_tables_do_not_depend_on_batches(
    name: str, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
) -> None:
    join, batches = {**JOINS, **DEEPER_JOINS}[name], cut(log, at)
    engine, reference = fed(join, batches, again), interpreted(join, in_order(batches))
    assert rows(engine.written) == rows(reference.written)
    assert engine.fates == reference.fates


def values(topology: Topology, *batches: Sequence[Event]) -> list[Any]:
    return [None if value is None else dict(value) for _, value, _, _ in fed(topology, batches).written]


def test_a_group_that_has_lost_its_last_row_stays_with_the_aggregates_of_nothing() -> None:
    moved = [Event(0, "a", {"l": 2, "word": "x"})], [Event(1, "a", {"l": 2, "word": "y"})]
    tiers = topology(table.group_by(word=col("word")).aggregate(rows=count(), sum=total("l"), folded=SUMMED))
    assert values(tiers, *moved) == [
        {"word": "x", "rows": 1, "sum": 2, "folded": 2},
        {"word": "x", "rows": 0, "sum": None, "folded": 0},
        {"word": "y", "rows": 1, "sum": 2, "folded": 2},
    ]


def test_a_deletion_leaves_a_join_only_where_there_was_a_result() -> None:
    row, deletion = Event(0, "a", {"l": 1}), Event(1, "a", None)
    partner = Event(0, "a", {"r": 1}, 0, "right")
    assert values(JOINS["inner"], [row], [deletion]) == []
    assert values(JOINS["inner"], [row, partner], [deletion], [deletion])[1:] == [None]


def test_deletions_are_remembered_only_where_an_older_change_could_undo_them() -> None:
    gone = [Event(5, "a", {"l": 1}), Event(9, "a", None)], [Event(7, "a", {"l": 2})]
    assert fed(JOINS["outer"], gone[:1]).held()["left"] == 0
    assert values(JOINS["outer"], *gone)[-1] == {"r": None, "other": None, "k": "a", "l": 2, "word": None}
    assert values(DEEPER_JOINS["versioned tables"], *gone)[-1] is None
