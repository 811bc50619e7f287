"""How many rows leave an operator: counted by the reference interpreter, beside the estimate."""

from __future__ import annotations

import pytest
from tests.unit.advise.estimates.steady_flow import Flow, clicks, emitted_by_the_interpreter, topology_of, views

from recount.advise.state_estimate import operator_estimates
from recount.advise.workload import workload
from recount.declare.aggregates import count
from recount.declare.flow import RecordStream, Table, WindowedTable
from recount.declare.topology import stream, table
from recount.declare.windows import Windows, hopping, session, sliding, tumbling

LEAST, MOST = 0.8, 1.25
"""What is open at the end of a flow has not left, so that a short flow gives somewhat less than the rate says."""
FLOW = Flow(per_s=10, keys=25, seconds=200)
IDS = Flow(per_s=10, keys=None, seconds=200)

per_user = stream(clicks)
close = {"before": "3 s", "after": "3 s", "grace": "0 s"}


hops = hopping("6 s", advance="2 s", grace="0 s")


def counted(windows: Windows) -> WindowedTable:
    return per_user.windowed_by(windows).aggregate(n=count())


ROWS: dict[str, tuple[RecordStream | Table, Flow]] = {
    "tumbling windows, final": (counted(tumbling("2 s", grace="0 s")).emit_final(), FLOW),
    "hopping windows, final": (counted(hops).emit_final(), FLOW),
    "hopping windows, each record": (counted(hops).emit_each_record(), FLOW),
    "sliding windows, final": (counted(sliding("2 s", grace="0 s")).emit_final(), FLOW),
    "sessions, final": (counted(session("2 s", grace="0 s")).emit_final(), FLOW),
    "pairs": (per_user.join(stream(views), **close), FLOW),
    "records without a partner": (per_user.left_join(stream(views), **close), IDS),
    "first of each user": (per_user.deduplicate("user", horizon="5 s"), FLOW),
    "updates held for a limit": (table(clicks).emit_after("5 s"), FLOW),
    "a lookup": (per_user.left_join_table(table(views)), FLOW),
}


@pytest.mark.parametrize(("made", "flow"), ROWS.values(), ids=ROWS)
def test_as_many_rows_leave_as_the_interpreter_emits(made: RecordStream | Table, flow: Flow) -> None:
    topology = topology_of(made)
    keys = "unique" if flow.keys is None else str(flow.keys)
    given = workload(topology, rate=[str(flow.per_s)], keys=[keys, f"user={keys}"])
    *_, sink = operator_estimates(topology, given)
    expected = sink.rows_per_s * flow.seconds
    emitted = emitted_by_the_interpreter(topology, flow)
    assert LEAST * expected <= emitted <= MOST * expected
