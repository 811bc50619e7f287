"""Numbers over time as SVG of pygal, without a script and without a style: the style sheet of the pages paints it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import Element

import pygal
from markupsafe import Markup
from pygal.style import Style

Point = tuple[int, float]
"""A time in milliseconds and a number."""
_STYLE = Style(colors=("currentColor",))
_LEFT_OUT = frozenset({"script", "style", "title", "desc", "defs"})
_SPARKLINE, _CHART = (96, 28), (420, 150)
_LABELS = 5


def sparkline(points: Sequence[Point], name: str, longest_ms: int) -> Markup | None:
    """A line of 96 by 28 pixels from 0 up; None where there are no two points.

    ``name`` is read out in its place. A line ends where the next point is later than ``longest_ms`` after it.
    """
    return None if len(points) < 2 else _drawn(points, name, longest_ms, _SPARKLINE, {"margin": 2, **_NO_LABELS})


def line_chart(points: Sequence[Point], name: str, longest_ms: int, told: Callable[[float], str]) -> Markup | None:
    """The same of 420 by 150 pixels, with axes; ``told`` writes a number of the vertical one."""
    if len(points) < 2:
        return None
    first, last = points[0][0], points[-1][0]
    step = max(1, (last - first) // (_LABELS - 1))
    axes = {
        "margin": 8,
        "margin_right": 20,
        "x_labels": list(range(first, last + 1, step)),
        "x_value_formatter": _time_of_day,
        "y_labels_major_count": 3,
        "show_minor_y_labels": False,
        "value_formatter": told,
    }
    return _drawn(points, name, longest_ms, _CHART, axes)


_NO_LABELS = {"show_x_labels": False, "show_y_labels": False, "show_x_guides": False, "show_y_guides": False}


def _drawn(
    points: Sequence[Point], name: str, longest_ms: int, size: tuple[int, int], options: dict[str, Any]
) -> Markup:
    width, height = size
    chart = pygal.XY(
        width=width,
        height=height,
        style=_STYLE,
        css=(),
        js=(),
        explicit_size=True,
        disable_xml_declaration=True,
        show_legend=False,
        show_dots=False,
        allow_interruptions=True,
        include_x_axis=True,
        **options,
    )
    chart.add_xml_filter(lambda root: _without_scripts(root, name))
    chart.add(None, list(_interrupted(points, longest_ms)))
    # pygal escapes what it writes, and all that it writes of ours are numbers and times
    return Markup(chart.render(is_unicode=True))  # noqa: S704


def _interrupted(points: Sequence[Point], longest_ms: int) -> Sequence[tuple[int, float | None]]:
    """``points`` with a point without a number wherever the next one is too late."""
    found: list[tuple[int, float | None]] = [points[0]]
    for before, after in pairwise(points):
        if after[0] - before[0] > longest_ms:
            found.append((before[0] + 1, None))
        found.append(after)
    return found


def _without_scripts(root: Element, name: str) -> Element:
    for parent in list(root.iter()):
        for child in list(parent):
            kind = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else "comment"
            if kind in _LEFT_OUT or kind == "comment" or "overlay" in child.get("class", ""):
                parent.remove(child)
    del root.attrib["id"]
    root.set("role", "img")
    root.set("aria-label", name)
    root.set("class", "chart")
    return root


def _time_of_day(at_ms: float) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%H:%M}"
