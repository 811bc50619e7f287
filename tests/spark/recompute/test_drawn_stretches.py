"""Random topologies and logs, cut at random places: all stretches together say what the whole log says.

What the whole log says is held to the interpreter elsewhere (``test_drawn_topologies``).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.drawn_logs import drawn_log, identities_of, limits_of, one_by_one, table_ends_of
from tests.spark.recompute.graph_logs import frames
from tests.spark.recompute.stretches import Stretched, differences, stretch_by_stretch, whole
from tests.unit.engine.random_topologies import drawn_topology

from recount.declare.changes import describe
from recount.recompute.operators.carried import NotIncremental
from recount.recompute.operators.log_order import NotRecomputable

EXAMPLES = max(1, int(os.environ.get("LAW_EXAMPLES", "250")) // 50)
HOURS = 6

taken = Counter[str]()


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_stretches_together_are_the_whole_log(
    spark: SparkSession, pytestconfig: pytest.Config, tmp_path: Path, number: int
) -> None:
    seed = int(pytestconfig.getoption("hypothesis_seed") or 0) * 1_000_000 + number
    drawn, dice = drawn_topology(seed), random.Random(seed)
    look_back_ms = dice.choice([0, 100])
    log = drawn_log(drawn, dice, tables_first=dice.random() < 0.3, hours=HOURS, moves=True)
    try:
        one = Stretched(
            topology=drawn.topology,
            logs=frames(spark, [log], sorted(drawn.partitions)),
            batches=one_by_one(drawn, log),
            identities=identities_of(drawn),
            look_back_ms=look_back_ms,
            limits=limits_of(drawn),
            table_ends=table_ends_of(drawn, log),
        )
        expected = whole(spark, one)
    except NotRecomputable:
        taken["not recomputable"] += 1
        return
    cuts = sorted(dice.sample(range(1, len(log)), dice.choice([1, 1, 2])))
    try:
        found = stretch_by_stretch(spark, one, cuts, tmp_path)
    except NotIncremental:
        taken["from the beginning"] += 1
        return
    taken["incremental"] += 1
    assert not differences(found, expected, drawn.topology), f"seed {seed}, cuts {cuts}\n{describe(drawn.topology)}"


def test_nearly_all_that_can_be_recomputed_can_go_on() -> None:
    if not taken:
        pytest.skip("the law has not run")
    assert taken["from the beginning"] * 5 <= taken["incremental"]
