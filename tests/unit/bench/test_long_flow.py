from __future__ import annotations

from collections import defaultdict

import pytest
from bench import long_flow
from bench.flow import WINDOW_MS
from bench.jobs import GRACE_MS
from bench.long_flow import LongFlow

FLOW = LongFlow(topic="orders", records=5_000)


class Taken:
    """Stands in for a producer: keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str, bytes, int]] = []

    def produce(self, _topic: str, value: bytes, *, key: str, partition: int, timestamp: int) -> None:
        self.records.append((partition, key, value, timestamp))

    def flush(self) -> int:
        return 0


def produced(flow: LongFlow) -> list[tuple[int, str, bytes, int]]:
    taken = Taken()
    flow.produce(taken)  # type: ignore[arg-type]
    return taken.records


def test_the_same_seed_gives_the_same_flow_and_another_seed_another() -> None:
    assert produced(FLOW) == produced(LongFlow(topic="orders", records=5_000))
    assert produced(FLOW) != produced(LongFlow(topic="orders", records=5_000, seed=1))


def test_no_record_is_lost_between_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_flow, "_PART", 1_300)
    ids = [value.split(b'"')[3] for _, _, value, _ in produced(FLOW)]
    assert ids == [b"%010d" % index for index in range(FLOW.records)]


def test_on_time_counts_what_is_on_time_by_the_stream_time_of_its_partition() -> None:
    stream_time: defaultdict[int, int] = defaultdict(int)
    on_time = 0
    for partition, _, _, timestamp_ms in produced(FLOW):
        stream_time[partition] = max(stream_time[partition], timestamp_ms)
        on_time += timestamp_ms - timestamp_ms % WINDOW_MS + WINDOW_MS + GRACE_MS > stream_time[partition]
    assert on_time == FLOW.on_time == 4_995
