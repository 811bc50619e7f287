"""The operators of a topology placed on a plane by grandalf, from sources down to sinks; a template draws them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout

from recount.core.nodes import Node, Sink, Source
from recount.core.stateless import Through
from recount.core.topology import Topology

WIDTH, LINE, PADDING, BETWEEN = 196, 15, 9, 26
_LETTERS, _LINES = 28, 3
_MARGIN = 8


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
    """Boxes and arrows on a plane of ``width`` by ``height``."""

    width: float
    height: float
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]


class _Place:
    """What grandalf wants to know of a vertex, and where it says to put it."""

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
    """``topology``, with the ``rates`` at which rows leave its operators."""
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
