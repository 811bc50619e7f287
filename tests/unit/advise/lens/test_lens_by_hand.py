"""Logs small enough to be judged by hand, with the answers that the engines' sources and tests give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.advise.lens.lens_logs import Click, ClickLog, counted, engines, kept_key, keyed_again

from recount.advise.engine_clocks import murmur2
from recount.declare.topology import Topology
from recount.declare.windows import hopping, tumbling


def ann(*times_ms: int, partition: int = 0) -> list[Click]:
    return [(partition, time_ms, "ann") for time_ms in times_ms]


def test_kafka_streams_drops_what_its_own_test_says() -> None:
    """KStreamWindowAggregateTest: windows of 10 ms by 5 ms, grace 90 ms; after 200 ms come 100 to 106 ms.

    Stream time is 200, so windows that end at 110 or before are closed: 100 to 104 lose both of their windows, 105 and
    106 the earlier one. That needs no second partition, so Recount says the same.
    """
    log = ClickLog([ann(200, 100, 101, 102, 103, 104, 105, 106)], partitions=1)
    answer = log.answer(kept_key(hopping("10 ms", advance="5 ms", grace="90 ms")))
    kafka_streams, _ = engines(answer)
    assert counted(kafka_streams) == dict.fromkeys(counted(kafka_streams), (0, 0)) | {"dropped": (7, 7)}
    assert (answer.said["late"], answer.said["results"]) == (7, 3)  # [195, 205), [200, 210), [105, 115)


@pytest.mark.parametrize(
    ("text", "hashed"), [("21", -973932308), ("a-little-bit-longer-string", -1486304829), ("abc", 479470107)]
)
def test_keys_hash_as_in_kafkas_own_test(text: str, hashed: int) -> None:
    """UtilsTest.testMurmur2."""
    assert murmur2(text.encode()) == hashed % 2**32


def places(log: ClickLog, topology: Topology, **span: Any) -> Sequence[str]:
    return [record["place"] for record in engines(log.answer(topology, **span))[0]["records"]]


def test_only_records_of_the_interval_are_told_and_their_windows_are_whole() -> None:
    """Batches are recorded at 1, 2, … s. The record of batch 3 is in a window with one of batch 1."""
    topology = keyed_again(tumbling("100 ms", grace="0 ms"), tasks=1)
    log = ClickLog([ann(1), ann(250), [(1, 210, "ann")], ann(420), [(1, 215, "ann")]])
    kafka_streams, _ = engines(log.answer(topology, start_ms=5_000))
    [result] = kafka_streams["results"]
    assert result["ours"]["clicks"] == 3
    assert [row["clicks"] for row in result["theirs_at_most_dropped"]] == [2]
    assert [record["place"] for record in kafka_streams["records"]] == ["clicks-1@1"]
    assert places(log, topology, end_ms=5_000) == []
