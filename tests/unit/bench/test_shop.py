"""What the run of the shop feeds and how it judges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from bench.shop_flow import SHARES, ShopSource
from bench.shop_report import Event, falls_behind, verdicts
from bench.shop_samples import ShopSample, StreamSample

from recount.core.plain_values import PlainValue
from recount.core.registry import declared

SHOP = declared()
RATES = dict.fromkeys(SHOP.streams, 10.0)


class Taken:
    """A producer that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []

    def produce(self, topic: str, **record: Any) -> None:
        self.records.append({"topic": topic, **record})


def test_every_source_topic_of_the_shop_gets_its_share_of_records_that_it_declares() -> None:
    assert sum(SHARES.values()) == 100
    producer = Taken()
    source = ShopSource(producer, per_second=100)  # type: ignore[arg-type]
    for number in range(1_000):
        source._send(source._cycle[number % 100])
    read = {one.topic.name: one.topic for stream in SHOP.topologies.values() for one in stream.sources}
    sent = {name: [one for one in producer.records if one["topic"] == name] for name in read}
    assert {name: len(records) > 0 for name, records in sent.items()} == dict.fromkeys(read, True)
    for name, topic in read.items():
        if isinstance(topic.value, PlainValue):
            continue
        assert topic.value is not None
        for record in sent[name]:
            assert set(topic.value.required) <= set(json.loads(record["value"]))


@pytest.mark.parametrize(
    ("lags_s", "behind"),
    [([0, 30, 0, 30, 0, 30], False), ([0, 20, 40, 60, 80, 100], True), ([90, 60, 30, 20, 10, 0], False), ([5], False)],
    ids=["saw of the batches", "grows", "catches up", "one sample"],
)
def test_a_stream_falls_behind_when_its_lag_grows(lags_s: list[float], behind: bool) -> None:
    assert falls_behind(lags_s) == behind


def a_sample(number: int, lag: int = 0, *, mib: float = 9_000, **streams: StreamSample) -> ShopSample:
    well = StreamSample(state="running", epoch=1, batch=number, lag=lag, batch_ms=10, pid=1)
    every = dict.fromkeys(SHOP.streams, well) | streams
    return ShopSample(seconds=15 * number, streams=every, memory_mib={"all": {"JVM": mib}}, cpu_s={"all": number})


def judged(samples: list[ShopSample]) -> str:
    events = [Event(at_s=20, stream="region-counts", what="fails")]
    return "; ".join(verdicts(SHOP, samples, events, RATES))


def test_a_run_that_held_is_said_to_have_held() -> None:
    failed = StreamSample(state="failed", epoch=2, batch=1, lag=0, batch_ms=10, pid=1)
    said = judged([a_sample(number, **{"region-counts": failed}) for number in range(9)])
    assert "NOT HELD" not in said
    assert "did not run: none; streams that fall behind: none" in said


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ([a_sample(number, mib=13_000) for number in range(9)], "memory at most 12.7 GiB of 12: NOT HELD"),
        ([a_sample(number, lag=1_000 * number) for number in range(9)], "fall behind: click-sessions"),
        (
            [
                a_sample(
                    number,
                    **{
                        "order-counts": StreamSample(
                            state="running", epoch=number, batch=1, lag=0, batch_ms=1, pid=number
                        )
                    },
                )
                for number in range(1, 9)
            ],
            "did not run: order-counts",
        ),
    ],
    ids=["memory", "lag", "neighbour"],
)
def test_what_did_not_hold_is_told(samples: list[ShopSample], told: str) -> None:
    assert told in judged(samples)
