"""A driver goes on saying how it is while its main thread waits: in its start, and before a stop."""

from __future__ import annotations

import time
from typing import Any, cast

from tests.statuses import a_status

from recount.engine.driver.signs_of_work import SignsOfWork, worked
from recount.engine.driver.stream_reports import DriverMetrics, StreamReports
from recount.engine.source.unread_records import Unread
from recount.engine.upkeep.memory import DriverMemory
from recount.kafka.lags import PartitionLag, StreamLag
from recount.kafka.status import StreamStatus
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
