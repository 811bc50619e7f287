"""`make play` says what is wrong with what it was given, and how the shop stands."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from examples.shop.play_command import Progress, _interrupted, _lines, play
from examples.shop.running_shop import RunningShop

from recount.kafka.status import StreamStatus
from recount.profile.home import Home
from recount.runtime.errors import Terminal, Transient

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


def test_without_a_profile_there_is_nothing_to_play_in(tmp_path: Path) -> None:
    with pytest.raises(Terminal) as refused:
        RunningShop.in_home(Home(path=tmp_path))
    assert refused.value.given == str(tmp_path)
    assert "make up" in refused.value.remedy


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


def lines_of(over: bool = False, *, minutes: float | None = None) -> list[str]:
    """What is printed of a shop whose broker answers every other time."""
    answers = iter([{"a": status("a", lag=1)}, Transient("no answer")] * 50)

    def statuses() -> dict[str, StreamStatus]:
        found = next(answers)
        if isinstance(found, Transient):
            raise found
        return found

    shop = SimpleNamespace(statuses=statuses, declarations=SimpleNamespace(streams=["a"]))
    source = SimpleNamespace(sent=7, require_well=lambda: None)
    with _interrupted() as interrupt:
        found = []
        for line in _lines(shop, source, interrupt, every_s=0.05, minutes=minutes):  # type: ignore[arg-type]
            found.append(line)
            if over:
                os.kill(os.getpid(), signal.SIGINT)
    return found


def test_the_first_ctrl_c_ends_the_play_in_order_and_a_second_one_at_once() -> None:
    assert len(lines_of(over=True)) == 1
    # a shell starts what runs in the background without a handler
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_twice()
    finally:
        signal.signal(signal.SIGINT, former)


def interrupted_twice() -> None:
    with _interrupted() as over:
        os.kill(os.getpid(), signal.SIGINT)
        assert over.wait(5)
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(5)
        time.sleep(5)
