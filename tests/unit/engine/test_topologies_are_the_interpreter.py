"""The engine is the interpreter: on random topologies and random logs, however the log is cut and whoever restarts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, note, reject, settings
from hypothesis import strategies as st
from tests.unit.engine.by_hand import EXACT, LATEST, LEFT, drawn_by_hand, left
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import Comparable
from tests.unit.engine.random_topologies import drawn_topologies, drawn_topology
from tests.unit.engine.random_topology_logs import Cut, Event, closing, logs
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.engine.topology_runs import assert_agree, by_engine, by_interpreter, comparable, row_of

from recount.declare.aggregates import count
from recount.declare.changes import describe
from recount.declare.expressions import col
from recount.declare.windows import tumbling
from recount.engine.operators.batch_processing import NotExpressible

BLOCK = 10
"""From here on Hypothesis varies what it has drawn: for other topologies it has to begin again."""
BLOCKS = max(1, int(os.environ.get("LAW_EXAMPLES", "60")) // BLOCK)
"""A longer run: ``LAW_EXAMPLES=5000 pytest --hypothesis-seed=1`` and the name of this file."""
law = settings(max_examples=BLOCK, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("block", range(BLOCKS))
@law
@given(data=st.data())
def test_the_engine_is_the_interpreter(block: int, data: st.DataObject) -> None:
    drawn = data.draw(drawn_topologies(block))
    try:
        TopologyEngine(drawn.topology, drawn.partitions)
    except NotExpressible:
        reject()
    cuts = data.draw(logs(drawn))
    note(describe(drawn.topology))
    idles = any(cut.later_ms for cut in cuts)
    parts = data.draw(st.sampled_from([(1,), (3,), (8,), (1, 3), (8, 1, 3)]))
    assert_agree(drawn, by_engine(drawn, cuts, parts), by_interpreter(drawn, cuts), idles=idles)


def test_most_drawn_topologies_are_taken_by_the_engine() -> None:
    refused = 0
    for seed in range(60):
        drawn = drawn_topology(seed)
        try:
            TopologyEngine(drawn.topology, drawn.partitions)
        except NotExpressible:
            refused += 1
    assert refused < 20


COUNTED = drawn_by_hand(
    LEFT.select_key(word=col("lw")).windowed_by(tumbling("10 ms", grace="5 ms")).aggregate(n=count()).emit_final(),
    EXACT,
    {"left": 1},
)


LOG = [left(1), left(9), left(30), left(2), Event("left", LogRecord(timestamp_ms=40, value=b"{"))]
"""Two records of one window, one that closes it, a late one, a bad one."""


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ([*LOG[:1], *LOG[2:]], "a lost record"),
        ([*LOG, LOG[2]], "a record counted twice"),
        ([LOG[0], left(11), *LOG[2:]], "a record in another window"),
        ([LOG[0], left(8), *LOG[2:]], "another time within the window"),
        ([LOG[0], left(9, "b"), *LOG[2:]], "a record of another key"),
        ([*LOG[:3], *LOG[4:]], "a late record less"),
        ([*LOG[:3], left(3), *LOG[4:]], "a late record of another time"),
        (LOG[:4], "a dead letter less"),
        ([*LOG, left(50, None)], "a null key more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("sink", [EXACT, LATEST], ids=["rows", "latest"])
def test_another_log_is_seen(other: Sequence[Event], what: str, sink: Comparable) -> None:
    drawn = replace(COUNTED, sinks={"out": sink})
    end = closing(drawn.partitions)
    assert_agree(drawn, by_engine(drawn, [Cut(LOG), end]), by_interpreter(drawn, [Cut(LOG), end]))
    with pytest.raises(AssertionError):
        assert_agree(drawn, by_engine(drawn, [Cut(other), end]), by_interpreter(drawn, [Cut(LOG), end]))


def test_another_revision_is_seen_and_where_only_the_latest_counts_it_is_not() -> None:
    told = by_interpreter(COUNTED, [Cut(LOG), closing(COUNTED.partitions)])
    rows = [(key, window, at_ms, revision + 1, value) for key, window, at_ms, revision, value in told.rows["out"]]
    revised = replace(told, rows={"out": rows})
    with pytest.raises(AssertionError):
        assert_agree(COUNTED, revised, told)
    assert_agree(replace(COUNTED, sinks={"out": LATEST}), revised, told)


def test_a_row_that_was_deleted_and_one_that_is_missing_are_seen_as_the_same() -> None:
    there, gone = row_of("a", (0, 10), 9, 0, {"n": 1}), row_of("a", (0, 10), 10, 1, None)
    assert comparable([there, gone], LATEST, idles=False) == comparable([], LATEST, idles=False)
    assert comparable([there], LATEST, idles=False) != comparable([], LATEST, idles=False)
    assert comparable([there, gone], EXACT, idles=False) != comparable([], EXACT, idles=False)
