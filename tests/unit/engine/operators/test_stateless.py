"""Operators without state: rows, places in the log and fates are the interpreter's."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from tests.unit.engine.operators.feeding import (
    LEFT,
    RIGHT,
    Event,
    assert_same,
    cut,
    cuts,
    fed,
    interpreted,
    keyed,
    law,
    logs,
    read_by,
    topology,
)

from recount.declare.expressions import coalesce, col, lit, when
from recount.declare.flow import cogroup
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.runtime.errors import Terminal

left, right = keyed(LEFT), keyed(RIGHT)
STEPS = {
    "filter": topology(left.filter(col("l") > 1)),
    "filter that is never true": topology(left.filter(col("l").is_null() & lit(None))),
    "fields": topology(left.with_fields(nothing=lit(None), l=col("l") * 2, one=lit(1))),
    "key": topology(left.select_key(size=when(col("l") > 1, "large", lit(None)))),
    "select": topology(left.select("word", known=coalesce(col("l"), 0))),
    "map": topology(left.map(lambda row: {"odd": (row["l"] or 0) % 2 == 1}, odd=BOOLEAN)),
    "flat-map": topology(left.flat_map(lambda row: [{"n": n} for n in range(row["l"])], n=LONG, absent=STRING)),
    "repartition": topology(left.repartition(3).peek(lambda _: None)),
    "through": topology(left.through(Topic(name="between", key="k")).filter(col("l") > 1)),
    "merge of two topics": topology(left.merge(right)),
    "merge of two paths": topology(left.filter(col("l") > 1).merge(left.filter(col("word").is_null()))),
    "cogroup": topology(cogroup(lefts=left, rights=right)),
}


@pytest.mark.parametrize("name", STEPS)
@law
@given(log=logs, at=cuts)
def test_a_step_makes_what_the_interpreter_makes(name: str, log: Sequence[Event], at: Sequence[int]) -> None:
    steps = STEPS[name]
    read = read_by(steps, log)
    assert_same(fed(steps, cut(read, at)), interpreted(steps, read))


def test_rows_that_two_paths_made_of_one_record_stay_together() -> None:
    log = [Event(at, "a", {"l": 2}) for at in (5, 3)]
    written = fed(STEPS["merge of two paths"], [log]).written
    assert written == interpreted(STEPS["merge of two paths"], log).written
    assert [at for _, _, at, _ in written] == [5, 5, 3, 3][: len(written)]


def test_an_action_sees_every_record_once_and_ends_the_flow() -> None:
    seen: list[Any] = []
    shown = Topology(name="shown", actions=[left.filter(col("l") > 1).foreach(lambda row: seen.append(row["l"]))])
    engine = fed(shown, [[Event(0, "a", {"l": 1}), Event(1, "a", {"l": 2})], [Event(2, "a", {"l": 3})]])
    assert seen == [2, 3]
    assert [engine.fates["left", 0, offset] for offset in range(3)] == ["filtered", "counted", "counted"]


def test_a_value_of_another_type_than_declared_says_which_field() -> None:
    with pytest.raises(Terminal) as raised:
        fed(topology(left.map(lambda _: {"n": "one"}, n=LONG)), [[Event(0)]])
    assert "n" in str(raised.value.given) and "long" in raised.value.expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Decimal(1) / 3, decimal(38, 4)),
        (Decimal("NaN"), decimal(38, 4)),
        (Decimal("Infinity"), decimal(38, 4)),
        (Decimal(10**34), decimal(38, 4)),
        (0.1, decimal(38, 4)),
        ("1.5", decimal(38, 4)),
        ([Decimal(1) / 3], list_of(decimal(38, 4))),
        (1.5, LONG),
        (True, LONG),
        ([True], list_of(LONG)),
        (Decimal("1.5"), DOUBLE),
        (float("nan"), DOUBLE),
        (float("-inf"), DOUBLE),
        (2**63, LONG),
        ("1", BOOLEAN),
        (1, STRING),
        ("\ud800", STRING),
    ],
)
def test_a_value_that_its_type_does_not_hold_stops_the_stream(value: Any, kind: FieldType) -> None:
    """It is not rounded: the recompute, which asks Arrow, could not make the row. The interpreter says so as well."""
    mapped = topology(left.map(lambda _: {"n": value}, n=kind))
    for runs in (lambda: fed(mapped, [[Event(0)]]), lambda: interpreted(mapped, [Event(0)])):
        with pytest.raises(Terminal, match="made a value of another type"):
            runs()


def test_a_decimal_with_fewer_places_than_declared_is_that_number() -> None:
    steps = topology(left.map(lambda _: {"n": Decimal("1.500000"), "m": 2}, n=decimal(9, 2), m=decimal(9, 2)))
    engine = fed(steps, [[Event(0)]])
    assert_same(engine, interpreted(steps, [Event(0)]))
