"""What the run of the shop feeds and how it judges."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from bench.shop import steady_flow
from bench.shop_report import Event, falls_behind, verdicts
from bench.shop_samples import ShopSample, StreamSample

from recount.core.registry import declared

SHOP = declared()
RATES = dict.fromkeys(SHOP.streams, 10.0)


def test_the_shop_is_fed_without_bursts_disorder_and_deletions() -> None:
    records = list(islice(steady_flow(SHOP, rate=100), 60_000))
    assert [one.due_ms for one in records[::100]] == list(range(0, 600_000, 1_000))
    faults = Counter(one.fault for one in records)
    assert faults == {None: 60_000 - 59 - 5, "late": 59, "bad": 5}
    begun_ms = records[0].arrival.timestamp_ms
    ages_ms = Counter(begun_ms + one.due_ms - one.arrival.timestamp_ms for one in records)
    assert ages_ms[0] == 60_000 - faults["late"]


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
