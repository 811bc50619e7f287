"""Laws: what the advisor says of a longer grace is what the interpreter does with that grace on the same log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.advise.grace.planted import shortfalls_of
from tests.unit.reference.test_laws import END_MS, EVENTS, OTHERS, OUT, Log, law, logs

from recount.advise.grace_advice import steps_of_grace
from recount.advise.grace_judges import judges_of, lengthened, saved
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream
from recount.declare.topology import Topology, stream
from recount.declare.windows import ClosingWindows, SessionWindows, SlidingWindows, TimeWindows
from recount.reference.topology_driver import TopologyDriver

UNLIMITED_MS = 10 * END_MS
graces = st.integers(0, 20)
added = st.integers(0, 70)


@st.composite
def time_windows(draw: st.DrawFn) -> TimeWindows:
    size_ms = draw(st.integers(1, 15))
    advance_ms = draw(st.integers(max(1, size_ms // 4), size_ms))
    return TimeWindows(size_ms=size_ms, advance_ms=advance_ms, grace_ms=draw(graces), origin_ms=draw(st.integers(0, 9)))


def counting(windows: ClosingWindows) -> Topology:
    flow = stream(EVENTS).select_key(who=col("who")).windowed_by(windows).aggregate(n=count()).emit_final()
    return made_of(flow)


def made_of(flow: RecordStream) -> Topology:
    return Topology(name="law", sinks=[flow.to(OUT)])


def played(topology: Topology, log: Log) -> TopologyDriver:
    """All of ``log``, to the topics in turn, partition after partition; then all time passes."""
    driver, topics = TopologyDriver(topology), [source.topic.name for source in topology.sources]
    for partition, records in enumerate(log):
        for index, (who, at) in enumerate(records):
            topic = topics[index % len(topics)]
            value = {"who": who, "n": index} if topic == "events" else {"what": index}
            driver.pipe(topic, key=who or "x", value=value, timestamp_ms=at, partition=partition)
    driver.advance_to(UNLIMITED_MS + END_MS)
    return driver


def results(topology: Topology, log: Log) -> dict[Any, int]:
    """The last value of each key and window."""
    return {(out.key, out.window): out.value["n"] for out in played(topology, log).outputs("out") if out.value}


def with_more(topology: Topology, added_ms: int) -> Topology:
    [judge] = judges_of(topology)
    return lengthened(topology, judge.nodes, added_ms)


@law
@given(windows=time_windows(), log=logs, added_ms=added)
def test_results_saved_are_those_that_the_interpreter_no_longer_misses(
    windows: TimeWindows, log: Log, added_ms: int
) -> None:
    topology = counting(windows)
    complete = results(with_more(topology, UNLIMITED_MS), log)

    def missed(one: Topology) -> int:
        published = results(one, log)
        return sum(published.get(place) != n for place, n in complete.items())

    _, found = shortfalls_of(topology, played(topology, log).late)
    assert found is not None
    assert len(found) == missed(topology)
    assert saved(found, added_ms) == missed(topology) - missed(with_more(topology, added_ms))


@law
@given(windows=time_windows(), log=logs)
def test_the_last_step_saves_every_result_and_the_first_at_least_one(windows: TimeWindows, log: Log) -> None:
    topology = counting(windows)
    _, found = shortfalls_of(topology, played(topology, log).late)
    assert found is not None
    steps = steps_of_grace(found.to_list(), limit_ms=windows.delay_ms)
    assert bool(steps) == bool(len(found))
    if steps:
        assert saved(found, steps[0]) > 0
        assert not played(with_more(topology, steps[-1]), log).late


sliding = st.builds(SlidingWindows, difference_ms=st.integers(0, 12), grace_ms=graces)
sessions = st.builds(SessionWindows, gap_ms=st.integers(1, 8), grace_ms=graces, reach_ms=st.integers(0, 20))
MADE: dict[str, st.SearchStrategy[Topology]] = {
    "time windows": time_windows().map(counting),
    # of sliding windows the one that ends with the record closes first
    "sliding windows": sliding.map(counting),
    "sessions": sessions.map(counting),
    "an order": graces.map(lambda ms: made_of(stream(EVENTS).in_order(grace=f"{ms} ms"))),
    "a join": graces.map(
        lambda ms: made_of(stream(EVENTS).join(stream(OTHERS), before="3 ms", after="5 ms", grace=f"{ms} ms"))
    ),
}


@pytest.mark.parametrize("kind", MADE)
@law
@given(data=st.data(), log=logs, added_ms=added)
def test_as_many_records_are_let_in_as_are_late_for_no_window_any_more(
    kind: str, data: st.DataObject, log: Log, added_ms: int
) -> None:
    topology = data.draw(MADE[kind])
    found, of_results = shortfalls_of(topology, played(topology, log).late)
    assert (of_results is None) == (kind != "time windows")
    left = {(one.topic, one.partition, one.offset) for one in played(with_more(topology, added_ms), log).late}
    said, let_in = saved(found, added_ms), len(found) - len(left)
    # a session that grows lets others in
    assert said <= let_in if kind == "sessions" else said == let_in
