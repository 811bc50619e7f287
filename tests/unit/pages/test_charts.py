"""Charts: the numbers as a line, nothing that runs, loads or paints by itself."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from recount.pages.charts import line_chart, sparkline

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


def test_every_number_is_on_the_line() -> None:
    [line] = lines(str(sparkline(POINTS, "lag", MINUTE_MS)))
    assert len(line.split()) >= 2 * len(POINTS)


def test_a_line_is_interrupted_where_the_next_point_is_too_late() -> None:
    parts = [*POINTS[:20], *POINTS[40:]]
    whole, broken = (lines(str(line_chart(parts, "lag", longest, str))) for longest in (60 * MINUTE_MS, MINUTE_MS))
    assert (len(whole), len(broken)) == (1, 2)


def test_the_axis_says_the_time_of_day_and_the_numbers_as_told() -> None:
    svg = str(line_chart(POINTS, "lag", MINUTE_MS, lambda number: f"{number:.0f} records"))
    assert "00:00" in svg
    assert "0 records" in svg
