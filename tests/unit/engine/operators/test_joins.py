"""Joins of streams: the pairs of a time range are those that trying all pairs finds, and none is held for good."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.by_hand import LEFT, held, left, right, run
from tests.unit.engine.random_flows import TOPICS

from recount.declare.columns import TIMESTAMP
from recount.declare.expressions import col
from recount.declare.flow import stream
from recount.engine.operators.batch_joins import rows_within

_ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 40)), max_size=25)


def _frame(rows: list[tuple[str | None, int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, {"key": pl.String, TIMESTAMP: pl.Int64}, orient="row")


def _pairs(
    left: pl.DataFrame, right: pl.DataFrame, before_ms: int, after_ms: int, places: int = 2**62
) -> list[tuple[int, int]]:
    found = rows_within(left, right, keys=("key", "key"), before_ms=before_ms, after_ms=after_ms, places=places)
    return sorted(zip(*(side.to_list() for side in found), strict=True))


@pytest.mark.parametrize("places", [2**62, 100])
@given(left=_ROWS, right=_ROWS, before_ms=st.integers(0, 12), after_ms=st.integers(0, 12))
def test_the_pairs_are_those_that_trying_all_pairs_finds(
    places: int, left: list[tuple[str | None, int]], right: list[tuple[str | None, int]], before_ms: int, after_ms: int
) -> None:
    expected = sorted(
        (i, j)
        for i, (key, ms) in enumerate(left)
        for j, (other, at_ms) in enumerate(right)
        if key is not None and key == other and ms - before_ms <= at_ms <= ms + after_ms
    )
    assert _pairs(_frame(left), _frame(right), before_ms, after_ms, places) == expected


_MANY_ROWS_OF_FEW_KEYS = """
import resource
import numpy as np, polars as pl
from recount.declare.columns import TIMESTAMP
from recount.engine.operators.batch_joins import rows_within
drawn = np.random.default_rng(1)
def side(n): return pl.DataFrame({"key": drawn.integers(0, 3, n), TIMESTAMP: drawn.integers(0, 86_400_000, n)})
met, _ = rows_within(side(300_000), side(30_000), keys=("key", "key"), before_ms=5_000, after_ms=5_000)
print(met.len(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_300_000_rows_meet_30_000_of_three_keys_in_less_than_a_gibibyte() -> None:
    """All pairs of the three keys are 3 * 10^9; of them some 350,000 are within five seconds of each other."""
    done = subprocess.run([sys.executable, "-c", _MANY_ROWS_OF_FEW_KEYS], capture_output=True, text=True, check=True)
    pairs, peak_mib = map(int, done.stdout.split())
    assert 300_000 < pairs < 400_000
    assert peak_mib < 1024


JOINS = {
    kind: getattr(LEFT.select("ln"), kind)(
        stream(TOPICS["right"]).select_key(k=col("rw")).select("rn"), before="5 ms", after="10 ms", grace="3 ms"
    )
    for kind in ("join", "left_join", "outer_join")
}


@pytest.mark.parametrize("kind", JOINS)
def test_nothing_is_held_for_good(kind: str) -> None:
    log = [one for at in range(30) for one in (left(at, partition=at % 2), right(at))]
    engine = run(JOINS[kind], log, [left(10_000), left(10_000, partition=1), right(10_000)], left=2)
    assert sum(held(engine)[0].values()) <= 4 < len(log)
