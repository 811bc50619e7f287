"""Where operators stand on the drawing: inside it, not on each other, and below what they read."""

from __future__ import annotations

from itertools import combinations

import pytest

from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.pages.charts import WIDTH, Box, drawing

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
