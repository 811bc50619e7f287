"""The engine is the interpreter: on random topologies and random logs, however the log is cut and whoever restarts."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, note, reject, settings
from hypothesis import strategies as st
from tests.unit.engine.random_topologies import drawn_topologies
from tests.unit.engine.random_topology_logs import logs
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.engine.topology_runs import assert_agree, by_engine, by_interpreter

from recount.declare.changes import describe
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
