"""Open windows: those that a record at the frontier could still be in, up to the one of the largest stream time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.batch_proofs import a_proof

from recount.declare.aggregates import count
from recount.declare.registry import declared
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import TimeWindows, Windows, tumbling
from recount.pages.stream_detail import OpenWindows, open_windows
from recount.tables.ledger import PartitionProof

CLICKS = Topic(name="clicks", key="user_id", value=RecordSchema.of(user_id=STRING))
PER_USER = Topic(name="clicks-per-user", key="__key")


def counting(windows: Windows) -> Topology:
    rows = stream(CLICKS).windowed_by(windows).aggregate(clicks=count()).emit_each_batch()
    return Topology(name="clicks-per-user", sinks=[rows.to(PER_USER)])


def now_open(windows: Windows, frontier_ms: int | None, stream_time_ms: int | None) -> OpenWindows:
    part = PartitionProof(topic="clicks", partition=0, start=0, end=1, stream_time_ms=stream_time_ms)
    [found] = open_windows(counting(windows), a_proof(1, part, frontier_ms=frontier_ms))
    return found


def test_a_window_is_open_until_the_frontier_has_passed_its_end_and_the_grace() -> None:
    windows = tumbling("5 min", grace="1 min")
    before, after = now_open(windows, 359_999, 400_000), now_open(windows, 360_000, 400_000)
    assert (before.number, before.first_ms, before.last_end_ms) == (2, 0, 600_000)
    assert (after.number, after.first_ms, after.last_end_ms) == (1, 300_000, 600_000)


@given(
    st.integers(1, 40),
    st.data(),
    st.integers(0, 50),
    st.integers(0, 300),
    st.integers(0, 100),
)
def test_it_is_the_rule_by_which_the_windows_themselves_are_closed(
    size: int, data: st.DataObject, grace: int, frontier: int, ahead: int
) -> None:
    advance = data.draw(st.integers(1, size))
    windows = TimeWindows(size_ms=size, advance_ms=advance, grace_ms=grace, origin_ms=data.draw(st.integers(0, 60)))
    stream_time = frontier + ahead
    starts = {start for at in range(stream_time + 1) for start in windows.starts(at)}
    expected = sorted(start for start in starts if not windows.is_closed(start + size, frontier))
    found = now_open(windows, frontier, stream_time)
    assert found.number == len(expected)
    if expected:
        assert (found.first_ms, found.last_end_ms) == (expected[0], expected[-1] + size)


def test_where_they_cannot_be_told_it_is_said_why() -> None:
    assert "a partition has not had a record" in (now_open(tumbling("5 min", grace="0 s"), None, 5).reason or "")
    sessions, sliding = (declared().topologies[name] for name in ("click-sessions", "views-sliding-30-s"))
    for topology in (sessions, sliding):
        [found] = open_windows(topology, a_proof(1, frontier_ms=5))
        assert "the records of each key decide" in (found.reason or "")


def test_a_stream_time_that_somebody_made_up_takes_no_time() -> None:
    assert now_open(tumbling("1 ms", grace="0 s"), 0, 2**62).number == 2**62 + 1
