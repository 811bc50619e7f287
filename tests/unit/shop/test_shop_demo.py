"""The reference of the demo says of every stream what the interpreter says, while others work, and can be given up."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError

import pytest
from examples.shop.expected_shop import DAYS, PlantedDays, expected
from examples.shop.shop_demo import ShopReference
from examples.shop.shop_records import SHARES
from tests.unit.topologies.shop_log import CLOSING_MS, PARTITIONS

from recount.declare.registry import declared

SHOP = declared().topologies
PLACES = dict.fromkeys(SHARES, PARTITIONS)
PLANTED = PlantedDays(partitions=PLACES, end_ms=CLOSING_MS, records=200)
LOG = [PLANTED.day(number) for number in range(DAYS)]
SOME = {name: SHOP[name] for name in ("region-counts", "revenue-by-region")}


def test_it_says_of_each_stream_what_the_interpreter_says_and_tells_when_it_is_done() -> None:
    said: list[str] = []
    with ShopReference(SOME, LOG, PLACES, said.append) as reference:
        for name, topology in SOME.items():
            assert reference.of(name) == expected(topology, LOG, PLACES)
        deadline = time.monotonic() + 20
        while not said:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert said == ["the reference interpreter has said what 2 streams must hold"]


def test_what_the_interpreter_raises_is_raised_where_it_is_asked_and_nothing_is_told() -> None:
    said: list[str] = []
    with ShopReference(SOME, LOG, {}, said.append) as reference, pytest.raises(KeyError):
        reference.of("region-counts")
    assert said == []


def test_a_demo_that_fails_does_not_wait_for_all_of_it() -> None:
    said: list[str] = []
    with pytest.raises(ZeroDivisionError), ShopReference(SHOP, LOG, PLACES, said.append) as reference:
        raise ZeroDivisionError
    with pytest.raises(CancelledError):
        reference.of(list(SHOP)[-1])
    assert said == []
