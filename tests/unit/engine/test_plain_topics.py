"""The engine is the interpreter where topics have plain values: on random logs, however they are cut."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import Engine
from tests.unit.engine.plain_topics import FLOWS, VALUES, plain_log, plain_topology
from tests.unit.engine.topology_runs import assert_agree, by_engine, by_interpreter

from recount.declare.columns import REVISION
from recount.declare.operators.nodes import KEY, WINDOW_START

DELETES = (
    "texts as they are",
    "texts in JSON",
    "a code for some texts",
    "codes on their way",
    "ratios",
    "prices of texts",
    "a table of prices",
)
"""The flows that let null values through, or make them."""


@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_engine_is_the_interpreter_on_plain_values(name: str, seed: int) -> None:
    drawn = plain_topology(name)
    cuts = plain_log(drawn, random.Random(seed))
    assert_agree(drawn, by_engine(drawn, cuts), by_interpreter(drawn, cuts))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_single_aggregation_of_plain_values_is_the_interpreters(seed: int) -> None:
    """Of such a topology tasks keep partial aggregates, and run another stage."""
    drawn = plain_topology("windows of times")
    cuts = plain_log(drawn, random.Random(seed))
    engine = Engine(drawn.topology, partitions=drawn.partitions["times"])
    for cut in cuts:
        engine.batch(*(event.record for event in cut.events))
    made = engine.emitted.select(KEY, WINDOW_START, "n", "at", REVISION).rows()
    expected = [
        (key, window[0], *(cell for name, _, cell in value if name in ("n", "at")), revision)
        for key, window, _, revision, value in by_interpreter(drawn, cuts).rows["out"]
    ]
    assert sorted(made) == sorted(expected)


@pytest.mark.parametrize("name", FLOWS)
def test_every_flow_meets_good_bad_and_null_values(name: str) -> None:
    drawn, met = plain_topology(name), Counter[str]()
    for seed in range(20):
        told = by_interpreter(drawn, plain_log(drawn, random.Random(seed)))
        met["rows"] += sum(row[4] is not None for row in told.rows["out"])
        met["rejected"] += told.rejected.total()
        met["deleted"] += sum(row[4] is None for row in told.rows["out"])
    assert met["rows"] > 20 and met["rejected"] > 10
    assert bool(met["deleted"]) == (name in DELETES)


def test_each_topic_has_a_value_that_is_null_and_one_that_is_bad() -> None:
    for values in VALUES.values():
        assert None in values and len(set(values)) > 4
