"""Charts and drawings: numbers as a line, operators below what they read, nothing that runs or loads."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

import pytest

from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.pages.charts import WIDTH, Box, drawing, line_chart, sparkline

MINUTE_MS = 60_000
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


def test_a_rate_stands_at_the_arrows_that_leave_its_operator() -> None:
    stream = STREAMS["revenue-by-region"]
    [source] = stream.sources
    rates = {arrow.of.split(" to ")[0]: arrow.rate for arrow in drawing(stream, {source: 2.5}).arrows}
    assert rates.pop("source orders") == 2.5
    assert set(rates.values()) == {None}


def test_a_long_text_is_cut_and_kept_beside() -> None:
    for box in drawing(STREAMS["section-visits"], {}).boxes:
        assert len(box.lines) <= 3
        assert all(len(line) <= 28 for line in box.lines)
        assert box.text.startswith(box.lines[0])
