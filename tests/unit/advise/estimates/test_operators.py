"""Estimates that can be worked out by hand, and that every topology has one."""

from __future__ import annotations

import json
import math
from itertools import chain

import pytest
from rich.console import Console
from tests.unit.advise.estimates.steady_flow import clicks, topology_of
from tests.unit.engine.random_topologies import drawn_topology

from recount.advise.estimate_command import document, page
from recount.advise.estimate_report import Report
from recount.advise.state_estimate import OPEN_WINDOWS, StateEstimate, operator_estimates
from recount.advise.workload import Workload, workload
from recount.declare.aggregates import average, count, fold
from recount.declare.schema import STRING
from recount.declare.topology import Topology, stream
from recount.declare.windows import TimeWindows, all_time, hopping, tumbling
from recount.engine.operators.batch_graph import Graph


def states_of(topology: Topology, given: Workload) -> dict[str, StateEstimate]:
    """The states by title."""
    estimates = operator_estimates(topology, given)
    return {state.title: state for state in chain.from_iterable(operator.states for operator in estimates)}


def open_at_most(windows: TimeWindows) -> int:
    """How many windows are open at a time at most, counted at every second of an hour."""
    starts = range(0, 3_600_000, windows.advance_ms)
    return max(
        sum(start <= now_ms and not windows.is_closed(start + windows.size_ms, now_ms) for start in starts)
        for now_ms in range(1_800_000, 3_600_000, 1_000)
    )


@pytest.mark.parametrize(
    "windows",
    [
        tumbling("5 min", grace="60 s"),
        tumbling("5 min", grace="0 s"),
        tumbling("10 s", grace="10 min"),
        hopping("60 s", advance="10 s", grace="10 s"),
        hopping("60 s", advance="25 s", grace="7 s"),
        hopping("10 min", advance="5 min", grace="0 s"),
    ],
    ids=str,
)
def test_the_windows_of_a_key_are_those_open_at_once_and_one_that_a_batch_opens(windows: TimeWindows) -> None:
    topology = topology_of(stream(clicks).windowed_by(windows).aggregate(n=count()).emit_final())
    state = states_of(topology, workload(topology, rate=["1_000"], keys=["7"]))[OPEN_WINDOWS]
    assert state.kept.rows == pytest.approx(7 * (open_at_most(windows) + 1))
    assert state.kept.grows_per_s == 0


def test_a_fold_over_all_time_keeps_every_value() -> None:
    text = fold(
        "page", initial=str, adder=lambda one, two: one + two, merger=lambda one, two: one + two, returns=STRING
    )
    topology = topology_of(stream(clicks).windowed_by(all_time()).aggregate(pages=text).emit_each_batch())
    state = states_of(topology, workload(topology, rate=["10"], keys=["5"]))["windows"]
    assert (state.kept.rows, state.kept.grows_per_s) == (5, 0)
    assert state.value_bytes > 0
    assert state.bytes_a_day == pytest.approx(864_000 * state.value_bytes)


def test_windows_below_an_operator_that_is_never_settled_are_never_dropped() -> None:
    per_user = stream(clicks).aggregate(n=count()).to_stream()
    topology = topology_of(per_user.windowed_by(tumbling("5 s", grace="0 s")).aggregate(mean=average("n")).emit_final())
    below = operator_estimates(topology, workload(topology))[2]
    assert all(state.kept.grows_per_s > 0 for state in below.states if not state.title.startswith("time of"))


@pytest.mark.parametrize("seed", range(50))
def test_every_topology_has_an_estimate_of_every_state(seed: int) -> None:
    topology = drawn_topology(seed).topology
    given = workload(topology, late_by="10 s")
    declared = Graph(topology).states.keys()
    report = Report.of(topology, given)
    states = report.states
    assert {state.name for state in states} in ({OPEN_WINDOWS}, declared)
    for state in states:
        figures = (state.kept.rows, state.kept.changed, state.kept.grows_per_s, state.bytes, state.bytes_a_day)
        assert all(math.isfinite(figure) and figure >= 0 for figure in figures), state.name
    Console(quiet=True).print(*page(report))
    assert json.loads(json.dumps(document(report), allow_nan=False))["stream"] == topology.name
