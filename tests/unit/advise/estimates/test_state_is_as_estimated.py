"""Estimates of state and of rows: beside what the engine holds, what the interpreter emits, and worked out by hand."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console
from tests.unit.advise.estimates.steady_flow import (
    Flow,
    clicks,
    emitted_by_the_interpreter,
    held_by,
    processed,
    topology_of,
    views,
)
from tests.unit.engine.random_topologies import drawn_topology

from recount.advise.estimate_command import page
from recount.advise.estimate_report import document
from recount.advise.state_estimate import StateEstimate, operator_estimates
from recount.advise.workload import Workload, workload
from recount.declare.aggregates import average, count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, WindowedTable
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG
from recount.declare.topology import stream, table
from recount.declare.windows import Windows, all_time, hopping, last_n, session, sliding, tumbling
from recount.engine.commit.delta_table import rows_in
from recount.engine.operators.batch_graph import Graph

LEAST, MOST = 0.8, 2.0
"""An estimate is at least 0.8 times what is held, and at most twice: windows are counted as all open and all full."""
LEAST_WRITTEN = 0.75
"""A batch can write somewhat more than estimated: of sessions also what has not changed."""
MANY = 20
"""Of fewer rows the buffers are larger than what is in them; and what a processor remembers of its keys is its own."""
FLOW = Flow(per_s=40, keys=50, seconds=40)
IDS = Flow(per_s=40, keys=None, seconds=40)
QUIET = Flow(per_s=20, keys=200, seconds=40)
BEHIND = Flow(per_s=40, keys=50, seconds=40, late_by_s=6)
BATCH_S = 2


@dataclass(frozen=True)
class Case:
    """A steady flow through an operator."""

    rule: str
    made: RecordStream | Table
    flow: Flow = FLOW
    options: Sequence[str] = ()


def windowed(windows: Windows) -> WindowedTable:
    """The mean of clicks per user: an average, so that the engine goes its general way."""
    return stream(clicks).windowed_by(windows).aggregate(clicks=count(), mean=average("cost"))


def counted(windows: Windows) -> RecordStream:
    """The final results."""
    return windowed(windows).emit_final()


def joined() -> RecordStream:
    """Clicks with views within 10 s."""
    return stream(clicks).join(stream(views), before="5 s", after="5 s", grace="5 s")


def below(flow: RecordStream) -> RecordStream:
    """What leaves an operator, counted in windows."""
    return flow.windowed_by(tumbling("5 s", grace="5 s")).aggregate(n=count(), mean=average("cost")).emit_final()


def windows_of(results: RecordStream) -> RecordStream:
    """Counts of results."""
    return results.windowed_by(tumbling("4 s", grace="10 s")).aggregate(n=count()).emit_final()


def remember(_row: Mapping[str, Any], state: KeyState) -> Iterable[Mapping[str, Any]]:
    """A processor that only remembers."""
    state.remembered["seen"] = True
    return ()


def users(*, versioned: bool = False) -> Table:
    """A table of views."""
    return table(views, versioned=versioned)


CASES = [
    Case("tumbling windows are held until their grace has passed", counted(tumbling("10 s", grace="15 s"))),
    Case("hopping windows overlap", counted(hopping("20 s", advance="5 s", grace="5 s"))),
    Case("a key that is silent in a window has none", counted(tumbling("5 s", grace="15 s")), QUIET),
    Case("keys that never come twice have a window each", counted(tumbling("5 s", grace="15 s")), IDS),
    Case("sliding windows keep the records that define them", counted(sliding("5 s", grace="10 s"))),
    Case("sliding windows of quiet keys have none after them", counted(sliding("5 s", grace="10 s")), QUIET),
    Case("sessions of quiet keys are kept for their reach", counted(session("3 s", grace="0 s", reach="4 s")), QUIET),
    Case("sessions that never end are one for each key", counted(session("20 s", grace="5 s"))),
    Case(
        "of a session that is emitted as it grows the last bounds are known",
        windowed(session("3 s", grace="0 s", reach="4 s")).emit_each_batch(),
        QUIET,
    ),
    Case(
        "sessions that emit for each record keep their records",
        windowed(session("2 s", grace="0 s", reach="4 s")).emit_each_record(),
        QUIET,
    ),
    Case(
        "of a session that is cut all bounds are known as long as it can change",
        windowed(session("2 s", grace="0 s", max_duration="5 s")).emit_each_batch(),
    ),
    Case("a session that is cut keeps its records", counted(session("2 s", grace="0 s", max_duration="6 s")), QUIET),
    Case(
        "windows below sessions keep what these can withdraw",
        windows_of(counted(session("2 s", grace="0 s", reach="4 s"))),
        QUIET,
    ),
    Case("the last n records of each key are held", windowed(last_n(3)).emit_each_batch()),
    Case("a global window is one row for each key", windowed(all_time()).emit_each_record()),
    Case("a global window of ids grows with the records", windowed(all_time()).emit_each_record(), IDS),
    Case("each side of a join is held for before, after and grace", joined()),
    Case("a looked-up table keeps every version", stream(clicks).left_join_table(users(), history=None)),
    Case("a looked-up table keeps the versions of its history", stream(clicks).left_join_table(users(), history="8 s")),
    Case("as of arrival a table has a row for each key", stream(clicks).left_join_table(users(), as_of="arrival")),
    Case(
        "records wait for a table with a grace",
        stream(clicks).join_table(users(versioned=True), grace="10 s", history="8 s"),
    ),
    Case("two tables joined have a row for each key", table(clicks).join(users())),
    Case("a filtered table remembers the keys that pass", users().filter(col("length") > 0)),
    Case("grouped rows know their group", users().group_by(seen=col("seen")).aggregate(n=count()), options=["seen=1"]),
    Case("updates are held for their limit", users().emit_after("10 s")),
    Case("at most so many updates are held", users().emit_after("10 s", max_rows=20)),
    Case("updates of windows are held each", windowed(tumbling("5 s", grace="0 s")).emit_after("10 s")),
    Case("winners are held for two horizons", stream(clicks).deduplicate("user", horizon="10 s"), options=["user=50"]),
    Case(
        "first by event time: the undecided wait",
        stream(clicks).deduplicate("page", horizon="10 s"),
        options=["page=1"],
    ),
    Case("ids that come once win each", stream(clicks).deduplicate("user", horizon="10 s"), IDS),
    Case("windows wait for a partition that is behind", counted(tumbling("5 s", grace="5 s")), BEHIND),
    Case("a side of a join waits for a partition that is behind", joined(), BEHIND),
    Case("windows below a join wait for what it waits for", below(joined())),
    Case("records wait for their turn", stream(clicks).in_order(grace="10 s")),
    Case("windows below a deduplication wait for it", below(stream(clicks).deduplicate("user", horizon="10 s")), IDS),
    Case("windows of results keep those of open windows", windows_of(counted(tumbling("5 s", grace="0 s")))),
    Case("a processor remembers each key", stream(clicks).process(remember, n=LONG)),
]


def estimated(case: Case) -> list[StateEstimate]:
    """All states, under the flow of the case."""
    topology = topology_of(case.made)
    keys = "unique" if case.flow.keys is None else str(case.flow.keys)
    given: Workload = workload(
        topology,
        rate=[str(case.flow.per_s)],
        keys=[keys, *case.options],
        record_bytes=60,
        trigger=f"{BATCH_S} s",
        late_by=f"{case.flow.late_by_s} s",
    )
    return [state for operator in operator_estimates(topology, given) for state in operator.states]


@pytest.mark.parametrize("case", CASES, ids=[case.rule for case in CASES])
def test_what_is_held_is_as_estimated(case: Case) -> None:
    engine = processed(topology_of(case.made), case.flow, BATCH_S)
    held, estimates = held_by(engine), estimated(case)
    assert {state.name for state in estimates} == held.keys(), "an estimate for every state that there is"
    for state in estimates:
        found = held[state.name]
        rows = state.kept.rows + state.kept.grows_per_s * case.flow.seconds
        assert LEAST * found.rows <= rows <= MOST * (found.rows + 1), f"{state.name}: {state.kept.formula}"
        if found.rows >= MANY and state.title != "keys":
            row_bytes = found.bytes / found.rows
            assert LEAST * row_bytes <= state.row_bytes <= MOST * row_bytes, f"{state.name}: bytes of a row"
    written = statistics.mean(rows_in(computed.state) for computed in engine.computed[len(engine.computed) // 2 :])
    changed = sum(state.kept.changed for state in estimates)
    assert LEAST_WRITTEN * written <= changed <= MOST * written, "rows that a batch appends to the state table"


LEAST_EMITTED, MOST_EMITTED = 0.8, 1.25
"""What is open at the end of a flow has not left, so that a short flow gives somewhat less than the rate says."""
LONG_FLOW = Flow(per_s=10, keys=25, seconds=100)
LONG_IDS = Flow(per_s=10, keys=None, seconds=100)

per_user = stream(clicks)
close = {"before": "3 s", "after": "3 s", "grace": "0 s"}


hops = hopping("6 s", advance="2 s", grace="0 s")


def count_of(windows: Windows) -> WindowedTable:
    return per_user.windowed_by(windows).aggregate(n=count())


ROWS: dict[str, tuple[RecordStream | Table, Flow]] = {
    "tumbling windows, final": (count_of(tumbling("2 s", grace="0 s")).emit_final(), LONG_FLOW),
    "hopping windows, final": (count_of(hops).emit_final(), LONG_FLOW),
    "hopping windows, each record": (count_of(hops).emit_each_record(), LONG_FLOW),
    "sliding windows, final": (count_of(sliding("2 s", grace="0 s")).emit_final(), LONG_FLOW),
    "sessions, final": (count_of(session("2 s", grace="0 s")).emit_final(), LONG_FLOW),
    "pairs": (per_user.join(stream(views), **close), LONG_FLOW),
    "records without a partner": (per_user.left_join(stream(views), **close), LONG_IDS),
    "first of each user": (per_user.deduplicate("user", horizon="5 s"), LONG_FLOW),
    "updates held for a limit": (table(clicks).emit_after("5 s"), LONG_FLOW),
    "a lookup": (per_user.left_join_table(table(views)), LONG_FLOW),
}


@pytest.mark.parametrize(("made", "flow"), ROWS.values(), ids=ROWS)
def test_as_many_rows_leave_as_the_interpreter_emits(made: RecordStream | Table, flow: Flow) -> None:
    topology = topology_of(made)
    keys = "unique" if flow.keys is None else str(flow.keys)
    given = workload(topology, rate=[str(flow.per_s)], keys=[keys, f"user={keys}"])
    *_, sink = operator_estimates(topology, given)
    expected = sink.rows_per_s * flow.seconds
    emitted = emitted_by_the_interpreter(topology, flow)
    assert LEAST_EMITTED * expected <= emitted <= MOST_EMITTED * expected


@pytest.mark.parametrize("seed", range(50))
def test_every_topology_has_an_estimate_of_every_state(seed: int) -> None:
    topology = drawn_topology(seed).topology
    given = workload(topology, late_by="10 s")
    declared = Graph(topology).states.keys()
    states = [state for operator in operator_estimates(topology, given) for state in operator.states]
    assert {state.name for state in states} == declared
    for state in states:
        figures = (state.kept.rows, state.kept.changed, state.kept.grows_per_s, state.bytes, state.bytes_a_day)
        assert all(math.isfinite(figure) and figure >= 0 for figure in figures), state.name
    said = document(topology, given)
    Console(quiet=True).print(*page(said))
    assert json.loads(json.dumps(said, allow_nan=False))["stream"] == topology.name
