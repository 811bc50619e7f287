"""The recompute is the interpreter on random topologies and random logs.

The stream engine is held to the interpreter on the same topologies (tests/unit/spark), so that the law is three-way:
interpreter = stream = recompute.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import fields

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.drawn_logs import Truth, by_interpreter, by_recompute, drawn_log, identities_of
from tests.unit.spark.random_topologies import drawn_topology

from recount.core.describe import describe
from recount.recompute.flow import NotRecomputable

pytestmark = pytest.mark.usefixtures("tiny")

EXAMPLES = max(1, int(os.environ.get("LAW_EXAMPLES", "250")) // 10)
"""Topologies; each meets one log as long as eight of those that the engine is held to."""

taken = Counter[bool]()
"""Which drawn topologies the recompute takes."""


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_the_recompute_is_the_interpreter(spark: SparkSession, pytestconfig: pytest.Config, number: int) -> None:
    seed = int(pytestconfig.getoption("hypothesis_seed") or 0) * 1_000_000 + number
    drawn, dice = drawn_topology(seed), random.Random(seed)
    log = drawn_log(drawn, dice, tables_first=dice.random() < 0.3)
    try:
        identities = identities_of(drawn)
        found = by_recompute(spark, drawn, log, identities)
    except NotRecomputable:
        taken[False] += 1
        return
    taken[True] += 1
    assert not differences(found, by_interpreter(drawn, log, identities)), f"seed {seed}\n{describe(drawn.topology)}"


def differences(found: Truth, expected: Truth) -> dict[str, object]:
    """What only one of both says, by what it is about."""
    parts = {one.name: (getattr(found, one.name), getattr(expected, one.name)) for one in fields(Truth)}
    parts |= {name: (found.rows[name], expected.rows[name]) for name in expected.rows}
    del parts["rows"]
    return {
        name: {"recompute": one - other, "interpreter": other - one}
        for name, (one, other) in parts.items()
        if one != other
    }


def test_most_drawn_topologies_are_taken_by_the_recompute() -> None:
    if not taken:
        pytest.skip("the law has not run")
    assert taken[True] * 2 > taken.total()
