"""The recompute is the interpreter on random topologies and random logs.

The stream engine is held to the interpreter on the same topologies (tests/unit/engine), so that the law is three-way:
interpreter = stream = recompute.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.drawn_logs import (
    Row,
    Truth,
    added_sinks,
    by_interpreter,
    by_recompute,
    drawn_log,
    identities_of,
)
from tests.unit.engine.random_topologies import drawn_topology

from recount.audit.cut.auditable import objections
from recount.declare.changes import describe
from recount.recompute.operators.log_order import NotRecomputable

EXAMPLES = max(1, int(os.environ.get("LAW_EXAMPLES", "80")) // 10)
"""Topologies; each meets one log as long as twenty of those that the engine is held to."""

taken = Counter[bool]()
"""Which drawn topologies the recompute takes."""


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_the_recompute_is_the_interpreter(spark: SparkSession, pytestconfig: pytest.Config, number: int) -> None:
    """On whole logs, and on logs that end in the middle, of which only what was due by the frontier has left.

    Of these logs some sinks are added on the way, and hold what left after that.
    """
    seed = int(pytestconfig.getoption("hypothesis_seed") or 0) * 1_000_000 + number
    drawn, dice = drawn_topology(seed), random.Random(seed)
    tables_first, is_over = dice.random() < 0.3, random.Random(seed).random() < 0.6
    log = drawn_log(drawn, dice, tables_first=tables_first, moves=not is_over)
    try:
        identities = identities_of(drawn)
        added = {} if is_over or dice.random() < 0.3 else added_sinks(identities, log, dice)
        found = by_recompute(spark, drawn, log, identities, is_over=is_over, added=added)
    except NotRecomputable:
        taken[False] += 1
        return
    taken[True] += 1
    assert not objections(drawn.topology), "what an audit judges is not refused"
    expected = by_interpreter(drawn, log, identities, is_over=is_over, added=added)
    assert not differences(found, expected), f"seed {seed}, added {added}\n{describe(drawn.topology)}"


def differences(found: Truth, expected: Truth) -> dict[str, Mapping[str, Counter[Row]]]:
    """What only one of both says, by what it is about."""
    pairs = {name: (found.rows[name], expected.rows[name]) for name in expected.rows}
    pairs |= {name: (getattr(found, name), getattr(expected, name)) for name in ("late", "rejected", "fates")}
    return {
        name: {"recompute": one - other, "interpreter": other - one}
        for name, (one, other) in pairs.items()
        if one != other
    }


def test_most_drawn_topologies_are_taken_by_the_recompute() -> None:
    if not taken:
        pytest.skip("the law has not run")
    assert taken[False] * 3 < taken.total()


@pytest.mark.parametrize("part", ["out-0", "late", "rejected", "fates"])
def test_the_comparison_notices_what_only_one_side_says(part: str) -> None:
    one, other = ("left", 0, 1), ("left", 0, 2)
    bags = {name: Counter([one, other]) for name in ("late", "rejected", "fates")}
    told = Truth(rows={"out-0": Counter([one, other])}, **bags)
    without = Counter([one])
    lossy = replace(told, rows={part: without}) if part in told.rows else replace(told, **{part: without})
    assert not differences(told, told)
    assert differences(lossy, told) == {part: {"recompute": Counter(), "interpreter": Counter([other])}}
    assert differences(told, lossy) == {part: {"recompute": Counter([other]), "interpreter": Counter()}}
