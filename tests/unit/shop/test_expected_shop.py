"""What the demo of the shop expects is what streams hold, and what it compares is told apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from examples.shop.expected_shop import DAYS, PlantedDays, expected
from examples.shop.shop_demo import ShopLie, held, with_late_records
from examples.shop.shop_records import SHARES
from tests.unit.serve.written_streams import WrittenStream
from tests.unit.topologies.shop_log import CLOSING_MS, PARTITIONS, Arrival

from recount.declare.registry import declared
from recount.declare.topology import Topology

SHOP = declared().topologies
PLACES = dict.fromkeys(SHARES, PARTITIONS)
PLANTED = PlantedDays(partitions=PLACES, end_ms=CLOSING_MS, records=1_500)
LOG = [PLANTED.day(number) for number in range(DAYS)]


def written(topology: Topology, folder: Path) -> WrittenStream:
    """The stream after it has read the days, each in a batch."""
    stream = WrittenStream(topology, folder)
    stream.write([as_read(topology, day) for day in LOG])
    return stream


def as_read(topology: Topology, day: Sequence[Arrival]) -> list[Arrival]:
    topics = [topic for layer in topology.layers for topic in layer]
    mine = [one for one in day if one.topic in topics]
    return sorted(mine, key=lambda one: (topics.index(one.topic), one.partition))


@pytest.mark.parametrize(
    "name", ["revenue-by-region", "page-view-counts", "enriched-events", "customer-accounts", "orders-deduplicated"]
)
def test_what_is_expected_is_what_the_stream_holds(name: str, tmp_path: Path) -> None:
    rows = expected(SHOP[name], LOG, PLACES).rows
    assert all(rows.values())
    assert held(written(SHOP[name], tmp_path).tables, SHOP[name]) == rows


def test_a_lie_is_a_row_that_differs_until_it_is_taken_back(tmp_path: Path) -> None:
    topology = SHOP["page-view-counts"]
    tables = written(topology, tmp_path).tables
    honest = held(tables, topology)["windowed-counts"]
    lie = ShopLie.about(tables, topology, "views")
    lie.tell()
    told = held(tables, topology)["windowed-counts"]
    [gone], [new] = (honest - told).elements(), (told - honest).elements()
    assert repr(lie.key) in gone and repr(lie.key) in new
    lie.take_back()
    assert held(tables, topology)["windowed-counts"] == honest


def test_the_nights_of_every_stream_have_late_and_bad_records_where_they_are_planted() -> None:
    told = expected(SHOP["revenue-by-region"], LOG, PLACES)
    for number, fates in enumerate(told.fates):
        planted = [one for one in LOG[number] if one.topic == "orders"]
        assert sum(fates.values()) == len(planted)
        assert 0 < fates["late"] <= PLANTED.faults(number)["late"]
        assert 0 < fates["dead_lettered"] <= PLANTED.faults(number)["bad"]


def test_a_backfill_has_results_to_correct() -> None:
    topology = SHOP["revenue-by-region"]
    on_time = expected(topology, LOG, PLACES).rows["windowed-revenue"]
    whole = with_late_records(topology, LOG, PLACES)["windowed-revenue"]
    late = sum(fates["late"] for fates in expected(topology, LOG, PLACES).fates)
    assert 0 < (whole - on_time).total() <= late
    assert whole.total() >= on_time.total()


def test_the_days_follow_each_other_and_each_ends_everywhere_at_once() -> None:
    for earlier, later in pairwise(LOG):
        assert max(one.timestamp_ms for one in earlier) < min(one.timestamp_ms for one in later)
    for day in LOG:
        last = [one for one in day if one.timestamp_ms == day[-1].timestamp_ms]
        assert {(one.topic, one.partition) for one in last} == {
            (topic, partition) for topic, many in PLACES.items() for partition in range(many)
        }
    assert LOG[-1][-1].timestamp_ms == CLOSING_MS
