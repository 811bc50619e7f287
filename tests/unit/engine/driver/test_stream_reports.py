"""A driver says how it is while its main thread waits: its statuses, its metrics, its last sign of work."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.statuses import a_status

from recount.engine.driver.signs_of_work import SignsOfWork, worked
from recount.engine.driver.stream_reports import DriverMetrics, StreamReports
from recount.engine.source.unread_records import Unread
from recount.engine.state.keyed_rows import StateUse
from recount.engine.upkeep.memory import DriverMemory
from recount.kafka.lags import PartitionLag, StreamLag
from recount.kafka.status import StreamStatus
from recount.profile.daemon import free_ports
from recount.runtime.errors import Transient


class Board:
    """A lease that keeps what is published, and refuses the ``nth`` status."""

    def __init__(self, nth: int | None = None) -> None:
        self.said: list[StreamStatus] = []
        self._nth = nth

    def publish(self, status: StreamStatus) -> None:
        self.said.append(status)
        if len(self.said) == self._nth:
            raise Transient("no answer")


def reports(board: Board, unread: Unread | None = None) -> StreamReports:
    return StreamReports(
        lease=cast("Any", board),
        metrics=DriverMetrics(),
        session=cast("Any", None),
        heartbeat_s=0.01,
        memory=DriverMemory.now,
        unread=lambda: unread,
    )


def test_a_stop_that_waits_for_a_long_batch_is_not_silent() -> None:
    board, signs = Board(nth=2), SignsOfWork()
    stopping = a_status(state="stopping", heartbeat_ms=1)
    with reports(board).speaking(stopping, signs, "jobs"), signs.batch():
        begun_ms = signs.batch_begun_ms
        deadline = time.monotonic() + 10
        while len(board.said) < 4 and time.monotonic() < deadline:
            worked()
            time.sleep(0.01)
    assert len(board.said) >= 4, "a status that could not be published is no end of it"
    assert {status.state for status in board.said} == {"stopping"}
    assert board.said[0].heartbeat_ms > 1
    assert begun_ms is not None
    assert (board.said[3].waiting_since_ms or 0) >= begun_ms


def test_a_report_has_the_lag_as_it_was_asked_and_since_when_records_wait() -> None:
    signs = SignsOfWork(lambda: 1_000)
    part = PartitionLag(committed=3, read=3, decided=9, end=10)
    unread = Unread(lag=StreamLag(at_ms=5_000, partitions={("orders", 0): part}), oldest_ms=4_000)
    said = reports(Board(), unread).looked(a_status(), signs, "jobs")
    assert (said.lag, said.lag_at_ms, said.oldest_unread_ms, said.waiting_since_ms) == (7, 5_000, 4_000, 5_000)
    assert said.memory_used is not None


Samples = Mapping[tuple[str, ...], float]
USE = StateUse(rows=3, bytes=96, puts=5, gets=8)


def scraped(metrics: DriverMetrics) -> Samples:
    [port] = free_ports(1)
    with metrics.served(port):
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    families = list(text_string_to_metric_families(text))
    return {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}


def test_streams_of_one_driver_are_told_with_their_operators_as_long_as_they_run() -> None:
    metrics = DriverMetrics()
    metrics.told(a_status(stream="orders", lag=7, records_total=40))
    metrics.told(a_status(stream="orders", lag=0, records_total=47))
    metrics.told(a_status(stream="clicks", state="failed"))
    with metrics.of_states("orders", lambda: {"open windows": USE}):
        found = scraped(metrics)
    assert (found["recount_stream_lag_records", "orders"], found["recount_stream_records_total", "orders"]) == (0, 47)
    assert found["recount_stream_state", "clicks", "failed"] == 1
    of_operator = {name: value for (name, *labels), value in found.items() if labels == ["open windows", "orders"]}
    names = ("state_rows", "state_bytes", "puts_total", "gets_total")
    assert [of_operator[f"recount_operator_{name}"] for name in names] == [3, 96, 5, 8]
    metrics.told(a_status(stream="orders", state="stopped"))
    ended = scraped(metrics)
    assert ended["recount_stream_state", "orders", "stopped"] == 1
    assert not [name for name, *_ in ended if name.startswith("recount_operator_")]


def test_without_a_port_nothing_is_served_and_one_that_is_taken_stops_no_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with DriverMetrics().served(None):
        pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with caplog.at_level(logging.ERROR), DriverMetrics().served(port):
            assert f"no metrics are served at port {port}: Address already in use" in caplog.text


@dataclass
class Clock:
    """Milliseconds that a test sets."""

    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signs(clock: Clock) -> SignsOfWork:
    """Of a stream that has done its last batch at 0 s and read all there was."""
    made = SignsOfWork(clock)
    with made.batch():
        pass
    made.unread(0, at_ms=1_000)
    return made


def test_a_stream_waits_since_a_record_came_and_not_since_its_last_batch(signs: SignsOfWork, clock: Clock) -> None:
    clock.now_ms = 269_663
    signs.look()
    signs.unread(0, at_ms=269_000)
    assert signs.waiting_since_ms is None, "an idle stream waits for nothing however long"
    signs.unread(1, at_ms=269_500)
    clock.now_ms = 400_000
    signs.unread(7, at_ms=399_000)
    assert signs.waiting_since_ms == 269_500, "no batch has begun since: more records are no progress"


def test_a_batch_counts_from_its_last_sign_of_work(signs: SignsOfWork, clock: Clock) -> None:
    signs.unread(1, at_ms=10_000)
    clock.now_ms = 12_000
    with signs.batch():
        assert signs.waiting_since_ms == 12_000
        clock.now_ms = 100_000
        signs.look()
        assert signs.waiting_since_ms == 12_000, "time alone is no work"
        worked()
        clock.now_ms = 200_000
        signs.look()
        assert signs.waiting_since_ms == 200_000, "a record was handled since the last look"
        clock.now_ms = 300_000
        signs.look(tasks=("stage 1", 3))
        assert signs.waiting_since_ms == 300_000, "Spark's tasks have come on"
        clock.now_ms = 400_000
        signs.look(tasks=("stage 1", 3))
        signs.look(tasks=None)
        signs.look(tasks=("stage 1", 3))
        assert signs.waiting_since_ms == 300_000, "they have not, or Spark was not asked"


def test_what_was_unread_before_a_batch_ended_may_be_read_by_now(signs: SignsOfWork, clock: Clock) -> None:
    clock.now_ms = 20_000
    signs.unread(5, at_ms=19_000)
    with signs.batch():
        clock.now_ms = 50_000
    signs.unread(5, at_ms=19_000)
    assert signs.waiting_since_ms is None, "the brokers were asked before the batch ended"
    clock.now_ms = 500_000
    assert signs.waiting_since_ms is None, "brokers that have not answered since say nothing"
    signs.unread(2, at_ms=60_000)
    assert signs.waiting_since_ms == 60_000


def test_a_record_of_another_stream_is_no_sign_of_this_one(signs: SignsOfWork, clock: Clock) -> None:
    """Streams of a group are threads of one process."""
    other = SignsOfWork(clock)
    entered, left = threading.Event(), threading.Event()

    def works() -> None:
        with other.batch():
            worked()
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=works)
    with signs.batch():
        signs.look()
        thread.start()
        assert entered.wait(10)
        clock.now_ms = 70_000
        for each in (signs, other):
            each.look()
        assert (signs.waiting_since_ms, other.waiting_since_ms) == (0, 70_000)
        left.set()
        thread.join()


def test_a_batch_that_fails_is_at_hand_no_more(signs: SignsOfWork) -> None:
    with pytest.raises(RuntimeError), signs.batch():
        raise RuntimeError
    assert (signs.batch_begun_ms, signs.waiting_since_ms) == (None, None)
