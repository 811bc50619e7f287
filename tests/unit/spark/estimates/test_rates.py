"""How many rows leave an operator: counted by the reference interpreter, beside the estimate."""

from __future__ import annotations

import pytest
from tests.unit.spark.estimates.steady_flow import Flow, clicks, emitted_by_the_interpreter, topology_of, views

from recount.core.aggregates import count
from recount.core.expressions import col
from recount.core.flow import RecordStream, Table
from recount.core.topology import stream, table
from recount.core.windows import hopping, session, sliding, tumbling
from recount.spark.estimates.rates import rates
from recount.spark.estimates.workload import workload

LEAST, MOST = 0.8, 1.25
"""What is open at the end of a flow has not left, so that a short flow gives somewhat less than the rate says."""
FLOW = Flow(per_s=10, keys=25, seconds=200)
IDS = Flow(per_s=10, keys=None, seconds=200)

per_user = stream(clicks)
close = {"before": "3 s", "after": "3 s", "grace": "0 s"}


@pytest.mark.parametrize(
    ("made", "flow"),
    [
        pytest.param(
            per_user.windowed_by(tumbling("2 s", grace="0 s")).aggregate(n=count()).emit_final(),
            FLOW,
            id="tumbling windows, final",
        ),
        pytest.param(
            per_user.windowed_by(hopping("6 s", advance="2 s", grace="0 s")).aggregate(n=count()).emit_final(),
            FLOW,
            id="hopping windows, final",
        ),
        pytest.param(
            per_user.windowed_by(hopping("6 s", advance="2 s", grace="0 s")).aggregate(n=count()).emit_each_record(),
            FLOW,
            id="hopping windows, each record",
        ),
        pytest.param(
            per_user.windowed_by(sliding("2 s", grace="0 s")).aggregate(n=count()).emit_final(),
            FLOW,
            id="sliding windows, final",
        ),
        pytest.param(
            per_user.windowed_by(session("2 s", grace="0 s")).aggregate(n=count()).emit_final(),
            FLOW,
            id="sessions, final",
        ),
        pytest.param(per_user.join(stream(views), **close), FLOW, id="pairs"),
        pytest.param(per_user.left_join(stream(views), **close), IDS, id="records without a partner"),
        pytest.param(per_user.deduplicate("user", horizon="5 s"), FLOW, id="first of each user"),
        pytest.param(per_user.deduplicate("user", horizon="5 s"), IDS, id="ids that come once"),
        pytest.param(table(clicks).emit_after("5 s"), FLOW, id="updates held for a limit"),
        pytest.param(per_user.left_join_table(table(views)), FLOW, id="a lookup"),
        pytest.param(table(clicks).outer_join(table(views)), FLOW, id="two tables"),
        pytest.param(per_user.merge(per_user.filter(col("cost") > 0)), FLOW, id="a merge"),
    ],
)
def test_as_many_rows_leave_as_the_interpreter_emits(made: RecordStream | Table, flow: Flow) -> None:
    topology = topology_of(made)
    keys = "unique" if flow.keys is None else str(flow.keys)
    given = workload(topology, rate=[str(flow.per_s)], keys=[keys, f"user={keys}"])
    [sink] = topology.sinks
    expected = rates(topology, given)[sink] * flow.seconds
    emitted = emitted_by_the_interpreter(topology, flow)
    assert LEAST * expected <= emitted <= MOST * expected
