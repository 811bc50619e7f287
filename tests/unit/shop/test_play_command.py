"""`make play` says what is wrong with what it was given, and how the shop stands."""

from __future__ import annotations

from typing import Any

import pytest
from examples.shop.play_command import Progress, play

from recount.kafka.status import StreamStatus
from recount.runtime.errors import Terminal

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("rate", 0),
        ("rate", -5),
        ("rate", float("nan")),
        ("rate", 20_000),
        ("minutes", 0),
        ("minutes", -1),
        ("every", 0.5),
    ],
)
def test_a_number_that_means_nothing_is_named_with_its_option(option: str, given: float) -> None:
    with pytest.raises(Terminal) as refused:
        play(**{option: given})  # type: ignore[arg-type]
    assert f"--{option}" in refused.value.what
    assert str(refused.value.given) == str(given)
    assert refused.value.expected
    assert f"--{option}" in refused.value.remedy


def status(stream: str, **said: Any) -> StreamStatus:
    well = {"driver_id": "d", "lease_epoch": 1, "host": "h", "pid": 1, "state": "running", "started_at_ms": 0}
    return StreamStatus(stream=stream, **{**well, "heartbeat_ms": NOW_MS, **said})


def test_a_line_says_how_all_streams_stand_together() -> None:
    statuses = {
        "a": status("a", lag=5, late_records=1_000, dead_letters=2),
        "b": status("b", lag=1_234, late_records=200),
        "silent": status("silent", heartbeat_ms=NOW_MS - 30_001),
        "failed": status("failed", state="failed", dead_letters=1),
        "of nobody here": status("of nobody here", lag=9_999),
    }
    streams = ["a", "b", "silent", "failed", "never started"]
    line = Progress.of(statuses, streams, now_ms=NOW_MS, seconds=60.4, produced=6_012, rate=99.6).line()
    assert line == "   60 s  produced 6,012, 100/s  running 2 of 5  lag 1,234 (b)  late 1,200  dead letters 3"
    before_the_first = Progress.of({}, ["a"], now_ms=NOW_MS, seconds=10, produced=7, rate=0.7).line()
    assert "running 0 of 1  lag 0  late 0" in before_the_first
