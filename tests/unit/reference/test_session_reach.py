"""Laws of the default reach: it cuts no session that is as long as it, and none of records that are on time."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import TOPICS, Comparable
from tests.unit.engine.random_topologies import Drawn
from tests.unit.engine.random_topology_logs import Cut, Event
from tests.unit.engine.topology_runs import Told, by_engine, by_interpreter

from recount.declare.aggregates import count
from recount.declare.flow import stream
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import SessionWindows, session

UNLIMITED_MS = 2**44
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000
law = settings(max_examples=int(os.environ.get("LAW_EXAMPLES", "25")), deadline=None)


@st.composite
def sessions(draw: st.DrawFn) -> SessionWindows:
    """Of any gap from a second to days, and any grace; nothing is said of the reach."""
    gap_ms = draw(st.sampled_from([3 * HOUR_MS, SECOND_MS, HOUR_MS, 3 * DAY_MS]))
    grace_ms = draw(st.sampled_from([0, gap_ms // 3, gap_ms, 2 * HOUR_MS]))
    return session(f"{gap_ms} ms", grace=f"{grace_ms} ms")


@st.composite
def logs(draw: st.DrawFn, windows: SessionWindows) -> list[Event]:
    """A record, another when its session is just open, and some about as far apart as gap and grace reach."""
    gap_ms, open_ms = windows.gap_ms, windows.gap_ms + windows.grace_ms
    steps = st.sampled_from([-gap_ms, -gap_ms // 2, -gap_ms - 1, gap_ms, -2 * gap_ms])
    places = st.tuples(st.sampled_from([b"a", b"b"]), steps)
    others = draw(st.lists(places, min_size=1, max_size=4))
    found = [(b"a", 0), (b"b", open_ms), *others]
    return [
        Event("left", LogRecord(timestamp_ms=4 * open_ms + step_ms, key=key, value=b"{}")) for key, step_ms in found
    ]


def told(windows: SessionWindows, log: list[Event], *, by_operators: bool) -> Told:
    counted = stream(TOPICS["left"]).windowed_by(windows).aggregate(n=count()).emit_final()
    topology = Topology(name="sessions", sinks=[counted.to(Topic(name="out", key="id"))], max_future="400 d")
    sinks = {"out": Comparable(exactness="rows", with_times=True, has_bounds=True)}
    drawn = Drawn(topology=topology, partitions={"left": 1}, sinks=sinks, any_order=True, idles=False)
    end = Event("left", LogRecord(timestamp_ms=100 * DAY_MS, key=b"closing", value=b"{}"))
    return (by_engine if by_operators else by_interpreter)(drawn, [Cut(log[:2]), Cut([*log[2:], end])])


def unlimited(windows: SessionWindows) -> SessionWindows:
    return SessionWindows(gap_ms=windows.gap_ms, grace_ms=windows.grace_ms, reach_ms=UNLIMITED_MS)


@law
@given(data=st.data(), by_operators=st.booleans())
def test_no_session_that_is_as_long_as_the_default_reach_is_cut(data: st.DataObject, by_operators: bool) -> None:
    windows = data.draw(sessions())
    log = data.draw(logs(windows))
    expected = told(unlimited(windows), log, by_operators=by_operators)
    assert expected.rows["out"]
    if all(end - start <= max(windows.gap_ms, HOUR_MS) for _, (start, end), *_ in expected.rows["out"]):
        assert told(windows, log, by_operators=by_operators).rows == expected.rows


@law
@given(data=st.data(), by_operators=st.booleans())
def test_no_session_of_records_on_time_is_cut(data: st.DataObject, by_operators: bool) -> None:
    windows = data.draw(sessions())
    log = data.draw(logs(windows))
    reached_ms, kept = 0, []
    for one in log:
        reached_ms = max(reached_ms, one.record.timestamp_ms)
        if not windows.is_closed(one.record.timestamp_ms, reached_ms):
            kept.append(one)
    found = told(windows, kept, by_operators=by_operators)
    assert not found.late
    assert found.rows == told(unlimited(windows), kept, by_operators=by_operators).rows


def test_sessions_of_short_gaps_have_the_reach_that_they_had() -> None:
    assert session("1 h", grace="0 s").reach_ms == session("1 s", grace="0 s").reach_ms == HOUR_MS
    assert session("61 min", grace="0 s").reach_ms == 61 * 60 * SECOND_MS
    assert session("3 h", grace="0 s", max_duration="2 h").reach_ms == 2 * HOUR_MS
    assert session("3 h", grace="0 s", reach="1 s").reach_ms == SECOND_MS
