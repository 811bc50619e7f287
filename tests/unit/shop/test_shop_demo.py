"""The demo of the shop: what it expects is what streams hold, and it holds when everything in it does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from examples.shop.expected_shop import DAYS, Expected, PlantedDays, Rows, expected
from examples.shop.shop_demo import ShopLie, held
from examples.shop.shop_outcome import Check, ShopOutcome, StreamOutcome, number_check
from examples.shop.shop_records import SHARES
from rich.console import Console
from tests.unit.serve.written_streams import WrittenStream
from tests.unit.topologies.shop_log import CLOSING_MS, PARTITIONS, Arrival

from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.profile.demo_steps import Judged

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


FATES = [{"counted": 7, "late": 2, "dead_lettered": 1}, {"counted": 20}]
TOTALS = [{"records": 10, "late": 2, "dead_lettered": 1}, {"records": 20, "late": 0, "dead_lettered": 0}]
ROWS = Counter({"'ann' 1": 1, "'bob' 2": 2})


def a_night(folder: Path, number: int, outcome: str = "match", **totals: int) -> Judged:
    path = folder / f"{number}-{outcome}-{totals}.json"
    path.write_text(json.dumps({"sha256": "", "outcome": outcome, "totals": TOTALS[number] | totals}))
    return Judged(certificate=path)


def a_stream(folder: Path, **changed: Any) -> StreamOutcome:
    said: Mapping[str, Any] = {
        "stream": "counts",
        "expected": Expected(fates=FATES, rows={"counts": ROWS}),
        "held": {"counts": ROWS},
        "nights": [a_night(folder, 0), a_night(folder, 1)],
        "is_lied_about": False,
    }
    return StreamOutcome(**{**said, **changed})


def failed(stream: StreamOutcome) -> dict[str, str]:
    return {check.name: check.found for check in stream.checks if not check.holds}


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (Counter({"'ann' 1": 1, "'bob' 2": 1}), "1 rows of counts differ"),
        (Counter({"'ann' 1": 1, "'bob' 3": 2}), "4 rows of counts differ"),
        (ROWS + Counter(["'eve' 1"]), "1 rows of counts differ"),
        (Counter(), "3 rows of counts differ"),
    ],
    ids=["one is lost", "two have another value", "one too many", "nothing there"],
)
def test_rows_are_compared_by_what_they_say(tmp_path: Path, held: Rows, said: str) -> None:
    assert failed(a_stream(tmp_path, held={"counts": held})) == {"rows": said}


def test_only_the_stream_that_is_lied_about_may_be_a_violation_and_must(tmp_path: Path) -> None:
    red = [a_night(tmp_path, 0), a_night(tmp_path, 1, "violation")]
    assert failed(a_stream(tmp_path, nights=red)) == {"night 2": "violation"}
    assert a_stream(tmp_path, nights=red, is_lied_about=True).holds
    assert failed(a_stream(tmp_path, is_lied_about=True)) == {"night 2": "match"}


def an_outcome(folder: Path, *streams: StreamOutcome, others: list[Check]) -> ShopOutcome:
    return ShopOutcome(streams=streams, others=others, airflow_url="http://127.0.0.1:1", reports=folder, seconds=60)


def shown(outcome: ShopOutcome) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(outcome.summary())
    return captured.get()


@pytest.mark.parametrize("is_stream", [True, False])
def test_one_thing_that_did_not_hold_is_named(tmp_path: Path, is_stream: bool) -> None:
    red = [a_night(tmp_path, 0), a_night(tmp_path, 1, "violation")]
    stream = a_stream(tmp_path, nights=red) if is_stream else a_stream(tmp_path)
    outcome = an_outcome(tmp_path, stream, others=[number_check("corrections", 1, 1 if is_stream else 0)])
    assert not outcome.held
    assert shown(outcome).count("DID NOT HOLD") == 1
    assert ("violation, not match" in shown(outcome)) == is_stream
    assert "1 did not hold" in shown(outcome)
