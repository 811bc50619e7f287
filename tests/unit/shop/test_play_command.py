"""`make play` says what is wrong with what it was given, and how the shop stands."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from examples.shop.play_command import AFTER_S, FirstAudit, Progress, _interrupted, _lines, play
from examples.shop.running_shop import RunningShop, ShopSource
from examples.shop.shop_records import SHARES, Arrival, Planted

from recount.kafka.status import StreamStatus
from recount.profile.embedded import embedded_settings
from recount.profile.home import Home, Project
from recount.runtime.errors import RecountError, Terminal, Transient

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


def a_home(tmp_path: Path, project: Project, *, airflow: bool = True, topologies: str = "topologies") -> Home:
    home = Home(path=tmp_path)
    settings = embedded_settings(home, project, "127.0.0.1:1", topologies=topologies).to_environment()
    said = {"bootstrap_servers": "127.0.0.1:1", "spark_master": "local[*]", "spark_url": None, "settings": settings}
    home.profile.write_text(json.dumps({**said, "airflow_url": "http://127.0.0.1:1" if airflow else None}))
    return home


def test_without_a_profile_there_is_nothing_to_play_in(tmp_path: Path) -> None:
    with pytest.raises(Terminal) as refused:
        RunningShop.in_home(Home(path=tmp_path))
    assert refused.value.given == str(tmp_path)
    assert "make up" in refused.value.remedy


def test_without_a_topic_of_the_shop_there_is_nothing_to_play(tmp_path: Path, project: Project) -> None:
    with pytest.raises(Terminal) as refused:
        RunningShop.in_home(a_home(tmp_path, project, topologies="recount.declare.registry"))
    assert refused.value.given == "RECOUNT_TOPOLOGIES=recount.declare.registry"
    assert "orders" in refused.value.expected


def test_it_plays_to_the_topics_of_the_streams_that_are_declared(tmp_path: Path, project: Project) -> None:
    assert RunningShop.in_home(a_home(tmp_path, project)).partitions.keys() == SHARES.keys()
    of_orders = RunningShop.in_home(a_home(tmp_path, project, topologies="topologies.orders"))
    assert of_orders.partitions == {"orders": 4, "order-texts": 4}


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


class Taking:
    """A producer that keeps what it is given, and refuses what comes after ``most`` records."""

    def __init__(self, most: int = 1_000_000) -> None:
        self.taken: list[str] = []
        self._most = most

    def produce(self, topic: str, *, on_delivery: Callable[[KafkaError | None, None], None], **_: object) -> None:
        refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED) if len(self.taken) == self._most else None
        self.taken += [] if refusal else [topic]
        on_delivery(refusal, None)

    def poll(self, _: float) -> None:
        pass

    def flush(self, _: float) -> int:
        return 0


def flow_of(ages_ms: Iterator[int]) -> Iterator[Planted]:
    for due_ms in ages_ms:
        arrival = Arrival(topic="orders", partition=0, key="k", value=b"{}", timestamp_ms=0)
        yield Planted(due_ms=due_ms, arrival=arrival, fault="late" if due_ms % 10 == 0 else None)


def test_records_that_are_due_are_sent_and_no_others() -> None:
    producer = Taking()
    with ShopSource(producer, flow_of(iter([0, 1, 2, 10, 3_600_000]))) as source:  # type: ignore[arg-type]
        while source.sent < 4:
            source.require_well()
    assert len(producer.taken) == source.sent == 4
    assert source.faults == {"late": 2}


def test_a_record_that_kafka_refuses_ends_the_play_with_its_reason() -> None:
    with ShopSource(Taking(most=3), flow_of(count())) as source:  # type: ignore[arg-type]
        source.join(10)
    with pytest.raises(RecountError) as refused:
        source.require_well()
    assert "sending the records of the shop" in refused.value.what


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


def test_lines_come_until_the_time_is_over_also_while_the_broker_is_silent() -> None:
    first, second, *_ = found = lines_of(minutes=0.5 / 60)
    assert "produced 7" in first and "lag 1 (a)" in first
    assert second.endswith("produced 7  no statuses: no answer")
    assert 3 <= len(found) <= 11


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


class Shop:
    """Of which Airflow answers from the second request on."""

    audited_first: str | None = "revenue-by-region"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def audit_now(self, stream: str) -> None:
        self.asked.append(stream)
        if len(self.asked) == 1:
            raise Transient("Airflow does not answer", given="x", expected="an answer", remedy="wait")


def news(first: FirstAudit, now_s: float) -> str:
    return " ".join(first.news(now_s))


def test_it_begins_when_results_can_be_judged_and_once_and_is_tried_again_where_airflow_does_not_answer() -> None:
    shop: Any = Shop()
    first = FirstAudit(shop=shop, begun_s=100.0)
    assert AFTER_S < 600
    assert news(first, 99.0 + AFTER_S) == "" and shop.asked == []
    assert "tried again: Airflow does not answer" in news(first, 100.0 + AFTER_S)
    assert "has begun" in news(first, 110.0 + AFTER_S)
    assert news(first, 120.0 + AFTER_S) == ""
    assert shop.asked == ["revenue-by-region"] * 2
