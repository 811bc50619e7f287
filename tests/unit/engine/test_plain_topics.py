"""The engine is the interpreter where topics have plain values: on random logs, however they are cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.plain_topics import FLOWS, plain_log, plain_topology
from tests.unit.engine.topology_runs import assert_agree, by_engine, by_interpreter


@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_engine_is_the_interpreter_on_plain_values(name: str, seed: int) -> None:
    drawn = plain_topology(name)
    cuts = plain_log(drawn, random.Random(seed))
    expected = by_interpreter(drawn, cuts)
    assert_agree(drawn, by_engine(drawn, cuts), expected)
