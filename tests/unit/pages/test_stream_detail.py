"""What the page of a stream says of its ledger: open windows, rates on the edges, what results wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batch_proofs import a_proof

from recount.declare.aggregates import count
from recount.declare.registry import declared
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import TimeWindows, Windows, tumbling
from recount.pages import rendering
from recount.pages.charts import WIDTH, Box, drawing, line_chart, sparkline
from recount.pages.rendering import UNKNOWN
from recount.pages.stream_detail import MOST_BATCHES, SPAN_MS, OpenWindows, Rates, TablesSay, leaving, open_windows
from recount.runtime.times import instant_ms
from recount.tables.ledger import BatchProof, PartitionProof

CLICKS = Topic(name="clicks", key="user_id", value=RecordSchema.of(user_id=STRING))
PER_USER = Topic(name="clicks-per-user", key="__key")


def counting(windows: Windows) -> Topology:
    rows = stream(CLICKS).windowed_by(windows).aggregate(clicks=count()).emit_each_batch()
    return Topology(name="clicks-per-user", sinks=[rows.to(PER_USER)])


def now_open(windows: Windows, frontier_ms: int | None, stream_time_ms: int | None) -> OpenWindows:
    part = PartitionProof(topic="clicks", partition=0, start=0, end=1, stream_time_ms=stream_time_ms)
    [found] = open_windows(counting(windows), a_proof(1, part, frontier_ms=frontier_ms))
    return found


@given(st.integers(1, 40), st.data(), st.integers(0, 50), st.integers(0, 300), st.integers(0, 100))
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


MINUTE_MS = 60_000


def batch(number: int, read: Mapping[str, int], written: Mapping[str, int], **fates: int) -> BatchProof:
    """One a minute."""
    parts = [
        PartitionProof(topic=topic, partition=0, start=0, end=records, records=records, **fates)
        for topic, records in read.items()
    ]
    return a_proof(number, *parts, batch_timestamp_ms=number * MINUTE_MS, emitted=dict(written))


def labels(topology: Topology, rates: Rates) -> dict[str, float]:
    """The rates by the beginning of what an operator is called."""
    return {" ".join(str(node).split()[:2]): rate for node, rate in leaving(topology, rates).items()}


def test_rates_are_of_the_time_since_the_oldest_batch_which_itself_came_before() -> None:
    batches = batch(2, {"orders": 60}, {"t": 6}), batch(1, {"orders": 120}, {"t": 0}), batch(0, {"orders": 9_999}, {})
    rates = Rates(since_ms=0, until_ms=2 * MINUTE_MS, read={"orders": 1.5}, written={"t": 0.05})
    assert Rates.of(batches) == rates
    # records without a value and dead letters do not leave the source
    assert Rates.of([batch(1, {"orders": 60}, {}, dead_lettered=20, null_value=10), batch(0, {}, {})]).read == {
        "orders": 0.5
    }
    for one_time in ([], [batch(0, {}, {})], [batch(0, {}, {})] * 2):
        assert Rates.of(one_time) is None


def test_only_recent_batches_count_and_an_old_one_only_where_there_is_no_other() -> None:
    minutes = SPAN_MS // MINUTE_MS
    long_ago = batch(0, {"orders": 10**9}, {})
    now, before = batch(500, {"orders": 60}, {}), batch(500 - minutes, {"orders": 10**9}, {})
    assert Rates.of([now, before, long_ago]) == Rates.of([now, before])
    assert Rates.of([now, long_ago]) is not None


@given(st.integers(0, 5 * MOST_BATCHES))
def test_no_more_of_the_ledger_is_read_than_is_shown(batches: int) -> None:
    read = 0

    def ledger() -> object:
        nonlocal read
        for number in range(batches, 0, -1):
            read += 1
            yield a_proof(number, batch_timestamp_ms=number)

    Rates.of(ledger())  # type: ignore[arg-type]
    assert read <= MOST_BATCHES + 1


def test_rows_are_followed_through_operators_that_hand_on_each_as_one_from_above_and_from_below() -> None:
    stream = declared().topologies["revenue-by-region"]
    rates = Rates(since_ms=0, until_ms=1_000, read={"orders": 40.0}, written={"windowed_revenue": 0.5})
    assert labels(stream, rates) == {"source orders": 40.0, "select key": 40.0, "orders =": 0.5}


def test_what_a_filter_lets_through_is_known_from_what_is_written_below_it() -> None:
    stream = declared().topologies["high-value-orders"]
    written = {written.table: 3.0 for written in stream.written}
    found = leaving(stream, Rates(since_ms=0, until_ms=1_000, read={"orders": 40.0}, written=written))
    filtered = [rate for node, rate in found.items() if str(node).startswith("filter")]
    assert filtered and set(filtered) == {3.0}


def test_a_filter_with_nothing_written_below_it_says_nothing() -> None:
    stream = declared().topologies["section-visits"]
    rates = Rates(since_ms=0, until_ms=1_000, read={"page-views": 2.0, "click-events": 3.0}, written={"visits": 4.0})
    found = {str(node): rate for node, rate in leaving(stream, rates).items()}
    assert found["merge"] == 5.0
    assert found["filter (page != '')"] == 4.0
    assert "filter (page != '/')" not in found


DAY_MS = 86_400_000
OLD_MS, NEW_MS = instant_ms("2013-03-18"), instant_ms("2026-11-29")


def at(topic: str, partition: int, at_ms: int | None) -> PartitionProof:
    return PartitionProof(topic=topic, partition=partition, start=0, end=1, stream_time_ms=at_ms)


def wait(*parts: PartitionProof, frontier_ms: int | None = OLD_MS, limit_ms: int = DAY_MS) -> str | None:
    return TablesSay(newest=a_proof(0, *parts, frontier_ms=frontier_ms)).results_wait(limit_ms)


def test_the_topic_behind_and_the_one_ahead_are_named_with_their_times() -> None:
    said = wait(at("departures", 0, OLD_MS), at("departures", 1, OLD_MS + 1), at("airlines", 0, NEW_MS))
    assert said == "Results wait: departures is at 2013-03-18 00:00:00, airlines is at 2026-11-29 00:00:00."


def test_of_one_topic_the_partitions_are_named() -> None:
    said = wait(at("orders", 0, NEW_MS), at("orders", 1, OLD_MS))
    assert said == "Results wait: orders-1 is at 2013-03-18 00:00:00, orders-0 is at 2026-11-29 00:00:00."


def test_none_is_named_within_the_limit_nor_where_it_is_idle_nor_before_there_is_a_frontier() -> None:
    near = (at("a", 0, OLD_MS), at("b", 0, OLD_MS + DAY_MS))
    assert wait(*near) is None
    assert wait(*near, limit_ms=DAY_MS - 1) is not None
    assert wait(replace(at("a", 0, OLD_MS), idle=True), at("b", 0, NEW_MS)) is None
    assert wait(at("a", 0, None), at("b", 0, NEW_MS)) is None
    assert wait(at("a", 0, OLD_MS), at("b", 0, NEW_MS), frontier_ms=None) is None
    assert TablesSay().results_wait(DAY_MS) is None


POINTS = [(minute * MINUTE_MS, minute % 7) for minute in range(60)]


def lines(svg: str) -> list[str]:
    return [one.get("d", "") for one in ElementTree.fromstring(svg).iter() if "line reactive" in one.get("class", "")]  # noqa: S314


@pytest.mark.parametrize("points", [[], [(0, 1.0)]])
def test_there_is_no_line_of_fewer_than_two_points(points: list[tuple[int, float]]) -> None:
    assert sparkline(points, "lag", MINUTE_MS) is None
    assert line_chart(points, "lag", MINUTE_MS, str) is None


def test_a_chart_has_a_name_and_no_script_style_or_address() -> None:
    for svg in (sparkline(POINTS, 'lag of "a"', MINUTE_MS), line_chart(POINTS, 'lag of "a"', MINUTE_MS, str)):
        assert svg is not None
        root = ElementTree.fromstring(svg)  # noqa: S314
        assert root.get("aria-label") == 'lag of "a"'
        kinds = {one.tag.rpartition("}")[2] for one in root.iter()}
        assert kinds <= {"svg", "g", "rect", "path", "text"}
        assert not any(name.startswith("on") or name in ("style", "href") for one in root.iter() for name in one.attrib)
        assert "<!--" not in svg


def test_every_number_is_on_the_line_which_is_interrupted_where_the_next_point_is_too_late() -> None:
    [line] = lines(str(sparkline(POINTS, "lag", MINUTE_MS)))
    assert len(line.split()) >= 2 * len(POINTS)
    parts = [*POINTS[:20], *POINTS[40:]]
    whole, broken = (lines(str(line_chart(parts, "lag", longest, str))) for longest in (60 * MINUTE_MS, MINUTE_MS))
    assert (len(whole), len(broken)) == (1, 2)
    svg = str(line_chart(POINTS, "lag", MINUTE_MS, lambda number: f"{number:.0f} records"))
    assert "00:00" in svg and "0 records" in svg


STREAMS = declared().topologies


def apart(one: Box, other: Box) -> bool:
    side_by_side = abs(one.x - other.x) >= WIDTH
    return side_by_side or abs(one.y - other.y) >= (one.height + other.height) / 2


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_every_operator_of_every_stream_has_a_place_of_its_own(stream: Topology) -> None:
    drawn = drawing(stream, {})
    assert sorted(box.text for box in drawn.boxes) == sorted(map(str, stream.nodes()))
    assert all(apart(one, other) for one, other in combinations(drawn.boxes, 2))
    for box in drawn.boxes:
        assert WIDTH / 2 <= box.x <= drawn.width - WIDTH / 2
        assert box.height / 2 <= box.y <= drawn.height - box.height / 2


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_every_arrow_leads_down_from_an_operator_to_one_that_reads_it(stream: Topology) -> None:
    drawn = drawing(stream, {})
    assert sorted(arrow.of for arrow in drawn.arrows) == sorted(
        f"{above} to {node}" for node in stream.nodes() for above in node.inputs
    )
    lower = {(round(box.x, 3), round(box.y + box.height / 2, 3)) for box in drawn.boxes}
    upper = {(round(box.x, 3), round(box.y - box.height / 2, 3)) for box in drawn.boxes}
    for arrow in drawn.arrows:
        assert tuple(round(one, 3) for one in arrow.points[0]) in lower
        assert tuple(round(one, 3) for one in arrow.points[-1]) in upper
        assert arrow.points[0][1] < arrow.points[-1][1]


WRITTEN: dict[Callable[[Any], str], dict[float | None, str]] = {
    rendering.rate: {None: UNKNOWN, 0: "0", 0.123: "0.12", 1: "1.0", 99.94: "99.9", 100: "100", 1234.5: "1,234"},
    rendering.share: {None: UNKNOWN, 0: "0 %", 0.00001: "< 0.01 %", 0.0001: "0.01 %", 0.5: "50.00 %"},
    rendering.size: {None: UNKNOWN, 1023: "1,023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB"},
    rendering.duration: {
        None: UNKNOWN,
        0: "0 ms",
        999: "999 ms",
        1_000: "1 s",
        9_999: "10 s",
        60_000: "1 min",
        61_000: "1 min 1 s",
    }
    | {
        61_000: "1 min 1 s",
        269_663: "4 min 29 s",
        86_400_000 * 3 + 3_600_000 * 4 + 1_000: "3 d 4 h",
        -61_000: "-1 min 1 s",
    },
}


@pytest.mark.parametrize("write", WRITTEN)
def test_numbers_shares_sizes_and_times_are_written_so(write: Callable[[Any], str]) -> None:
    assert {number: write(number) for number in WRITTEN[write]} == WRITTEN[write]


def test_a_time_that_no_calendar_has_is_the_number() -> None:
    assert rendering.told_minute(1_500) == "1970-01-01 00:00"
    assert rendering.since(1_500, 62_500) == "1 min 1 s"
    assert rendering.since(1_500, 1_500 + 8 * 86_400_000) == "1970-01-01 00:00", "a record of a log of former years"
    assert rendering.told_minute(2**63 - 1) == "9,223,372,036,854,775,807 ms"
