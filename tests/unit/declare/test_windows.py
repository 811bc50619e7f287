"""Windows: which hold a time, and the very millisecond at which each kind closes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batch_proofs import a_proof

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import LastN, SessionWindows, SlidingWindows, TimeWindows, last_n, session, tumbling
from recount.runtime.errors import InvalidDeclaration
from recount.tables.ledger import PartitionProof
from recount.tables.places import Released, ageing

MINUTE = 60_000


def test_windows_of_a_day_begin_where_the_origin_says() -> None:
    """Midnight in Berlin; in summer, when its clocks are put forward, the same windows begin at one."""
    windows = tumbling("1 d", grace="0 s", origin=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
    assert windows == tumbling("1 d", grace="0 s", origin="23 h")
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    (start_ms,) = windows.starts(int(noon.timestamp() * 1_000))
    assert datetime.fromtimestamp(start_ms / 1_000, ZoneInfo("Europe/Berlin")) == datetime(
        2026, 7, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")
    )


@pytest.mark.parametrize("origin", ["-1 h", datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)])  # noqa: DTZ001
def test_an_origin_that_is_no_moment_in_whole_milliseconds_is_refused(origin: str | datetime) -> None:
    with pytest.raises(InvalidDeclaration, match="origin"):
        tumbling("1 d", grace="0 s", origin=origin)


@pytest.mark.parametrize(
    ("windows", "end_ms", "last_open_ms"),
    [
        (TimeWindows(size_ms=10, advance_ms=10, grace_ms=5), 10, 14),
        (SlidingWindows(difference_ms=10, grace_ms=5), 10, 15),
        (SessionWindows(gap_ms=3, grace_ms=5), 10, 18),
    ],
)
def test_a_window_closes_in_the_millisecond_after_the_last_open_one(
    windows: TimeWindows | SlidingWindows | SessionWindows, end_ms: int, last_open_ms: int
) -> None:
    assert not windows.is_closed(end_ms, last_open_ms)
    assert windows.is_closed(end_ms, last_open_ms + 1)
    assert windows.closes_ms(end_ms) == last_open_ms + 1


@pytest.mark.parametrize(
    ("longest", "last_ms", "last_on_ms"), [(None, 70_000, 100_000), ("1 min", 50_000, 60_000)], ids=["gap", "longest"]
)
def test_a_session_goes_on_up_to_a_millisecond(longest: str | None, last_ms: int, last_on_ms: int) -> None:
    windows = session("30 s", grace="0 s", max_duration=longest)
    assert windows.continues(0, last_ms, last_on_ms)
    assert not windows.continues(0, last_ms, last_on_ms + 1)


@pytest.mark.parametrize("declare", [lambda: session("0 s", grace="0 s"), lambda: last_n(0), lambda: LastN(n=-1)])
def test_a_window_that_could_hold_nothing_is_refused(declare: object) -> None:
    with pytest.raises(InvalidDeclaration):
        declare()  # type: ignore[operator]


@settings(deadline=None)
@given(
    size=st.integers(1, 500), advance=st.integers(1, 500), origin=st.integers(-700, 700), time=st.integers(0, 10_000)
)
def test_windows_tile_time(size: int, advance: int, origin: int, time: int) -> None:
    windows = TimeWindows(size_ms=size, advance_ms=min(size, advance), grace_ms=0, origin_ms=origin)
    starts = list(windows.starts(time))
    step = windows.advance_ms
    first = max(start for start in range(-step, 1) if (start - origin) % step == 0)
    assert starts == [s for s in range(first, time + 1, step) if s <= time < s + size]
    if step == size:
        assert len(starts) == 1


CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))
USERS = Topic(name="users", key="user", value=RecordSchema.of(name=STRING))
OUT = Topic(name="out", key="user")
OLD = a_proof(2, PartitionProof(topic="clicks", partition=0, start=20, end=30), frontier_ms=50)
CUT = a_proof(7, frontier_ms=90)


def test_what_the_stream_had_passed_by_an_old_batch_is_released() -> None:
    found = Released.of(OLD, CUT)
    assert found == Released(before_ms=50, cut=(0, 7), offsets={"clicks": {0: 30}})
    assert Released.from_document(json.loads(json.dumps(asdict(found)))) == found


def test_where_no_frontier_had_passed_anything_nothing_is() -> None:
    assert Released.of(None, CUT) is None
    assert Released.of(replace(OLD, frontier_ms=None), CUT) is None
    assert Released.from_document(None) is None


@pytest.mark.parametrize(
    ("flow", "by"),
    [
        (stream(CLICKS).filter(col("page") == "a"), "record"),
        (stream(CLICKS).join_table(table(USERS)), "record"),
        (stream(CLICKS).windowed_by(session("5 min", grace="1 min")).aggregate(n=count()).emit_final(), "window"),
        (stream(CLICKS).windowed_by(tumbling("5 min", grace="0 s")).aggregate(n=count()).emit_each_batch(), "window"),
        (stream(CLICKS).aggregate(n=count()), "table"),
        (table(USERS), "table"),
        (table(USERS).filter(col("name") == "a"), "table"),
        (table(USERS).group_by(name=col("name")).aggregate(n=count()), "table"),
        (stream(CLICKS).aggregate(n=count()).to_stream().filter(col("n") > 1), "record"),
        (stream(CLICKS).aggregate(n=count()).select(n=col("n")), None),
    ],
)
def test_rows_get_old_by_their_window_their_record_or_the_row_that_replaces_them(
    flow: RecordStream | Table, by: str | None
) -> None:
    assert ageing(flow.to(OUT)) == by


def test_a_retention_of_nothing_is_refused_and_for_ever_is_not() -> None:
    topology = Topology(name="copies", sinks=[stream(CLICKS).to(OUT)])
    assert topology.retention_ms == 400 * 86_400_000
    assert replace(topology, retention=None).retention_ms is None
    with pytest.raises(InvalidDeclaration):
        replace(topology, retention="0 d")
