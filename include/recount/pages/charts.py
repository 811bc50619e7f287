"""Charts as SVG of pygal, without script or style, and the drawing of operators, placed by grandalf.

The style sheet of the pages paints a chart; a template draws the operators, from sources down to sinks.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal
from xml.etree.ElementTree import Element

import pygal
from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout
from markupsafe import Markup
from pygal.style import Style

from recount.declare.operators.nodes import Node, Sink, Source
from recount.declare.operators.stateless import Through
from recount.declare.topology import Topology

Point = tuple[int, float]
"""A time in milliseconds and a number."""
_STYLE = Style(colors=("currentColor",))
_LEFT_OUT = frozenset({"script", "style", "title", "desc", "defs"})
_SPARKLINE, _CHART = (96, 28), (420, 150)
_LABELS = 5
_NO_LABELS = {"show_x_labels": False, "show_y_labels": False, "show_x_guides": False, "show_y_guides": False}
WIDTH, LINE, PADDING, BETWEEN = 196, 15, 9, 26
_LETTERS, _LINES = 28, 3
_MARGIN = 8


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


@dataclass(frozen=True, kw_only=True)
class Box:
    """An operator, with its middle at (x, y); ``lines`` is what fits of its ``text``."""

    x: float
    y: float
    height: int
    text: str
    lines: Sequence[str]
    kind: Literal["topic", "operator"]


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """From an operator to one that reads it, along ``points``; ``rate`` are rows a second, None: not known."""

    points: Sequence[tuple[float, float]]
    rate: float | None
    of: str

    @property
    def label(self) -> tuple[float, float]:
        """Where the rate stands: beside the middle of the first part, where arrows that lead apart are apart."""
        (x, y), (to_x, to_y) = self.points[0], self.points[1]
        return (x + to_x) / 2, (y + to_y) / 2


@dataclass(frozen=True, kw_only=True)
class Drawing:
    width: float
    height: float
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]


class _Place:
    """The size and place of a vertex, as grandalf reads and sets them."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.w, self.h = WIDTH, LINE * len(lines) + 2 * PADDING
        self.xy = (0.0, 0.0)


class _Way:
    """The points by which grandalf leads an edge."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def setpath(self, points: list[tuple[float, float]]) -> None:
        self.points = list(points)


def drawing(topology: Topology, rates: Mapping[Node, float]) -> Drawing:
    texts = {node: _lines(str(node)) for node in topology.nodes()}
    vertices = {node: Vertex(node) for node in texts}
    for node, vertex in vertices.items():
        vertex.view = _Place(texts[node])
    edges = [Edge(vertices[above], vertices[node], data=above) for node in texts for above in node.inputs]
    for edge in edges:
        edge.view = _Way()
    right = 0.0
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    for part in Graph(list(vertices.values()), edges).C:
        _lay_out(part)
        views = [vertex.view for vertex in part.sV]
        left = min(view.xy[0] - view.w / 2 for view in views) - right - _MARGIN
        right = max(view.xy[0] + view.w / 2 for view in views) - left + BETWEEN
        boxes += [_box(vertex.data, texts[vertex.data], vertex.view, left) for vertex in part.sV]
        arrows += [_arrow(edge, left, rates) for edge in part.sE]
    bottom = max(box.y + box.height / 2 for box in boxes)
    return Drawing(width=right - BETWEEN + _MARGIN, height=bottom + _MARGIN, boxes=boxes, arrows=arrows)


def _lay_out(part: object) -> None:
    layout = SugiyamaLayout(part)
    layout.xspace, layout.yspace = 22, BETWEEN
    layout.init_all(roots=[vertex for vertex in part.sV if not vertex.e_in()])  # type: ignore[attr-defined]
    layout.draw()


def _box(node: Node, lines: Sequence[str], place: _Place, left: float) -> Box:
    x, y = place.xy
    kind: Literal["topic", "operator"] = "topic" if isinstance(node, Source | Sink | Through) else "operator"
    return Box(x=x - left, y=y + _MARGIN, height=place.h, text=str(node), lines=lines, kind=kind)


def _arrow(edge: Edge, left: float, rates: Mapping[Node, float]) -> Arrow:
    """From the lower edge of one box to the upper edge of the other, by the points between."""
    above, below = edge.v[0].view, edge.v[1].view
    (x, y), (to_x, to_y) = above.xy, below.xy
    between = edge.view.points[1:-1]
    points = [(x, y + above.h / 2), *between, (to_x, to_y - below.h / 2)]
    return Arrow(
        points=[(x - left, y + _MARGIN) for x, y in points],
        rate=rates.get(edge.data),
        of=f"{edge.v[0].data} to {edge.v[1].data}",
    )


def _lines(text: str) -> list[str]:
    return textwrap.wrap(text, _LETTERS, max_lines=_LINES, placeholder=" …")
