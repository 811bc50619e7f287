"""One driver per stream: its lease, the board and the history it writes, the orders it hears, what pages read of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.eventually import eventually
from tests.integration.kafka.conftest import Read
from tests.statuses import a_status

from recount.kafka.connection import Connection, Fenced
from recount.kafka.leases import ControlChannel, Lease, request_stop
from recount.kafka.status import StatusBoard, StatusHistory, StreamStatus
from recount.kafka.topic_drift import HISTORY
from recount.pages.stream_lines import BrokerWatch
from recount.runtime.errors import Terminal


def status(lease: Lease, **said: object) -> StreamStatus:
    return a_status(
        **{"stream": lease.stream, "driver_id": f"driver-{lease.epoch}", "lease_epoch": lease.epoch, **said}
    )


@pytest.fixture
def stream(unique: Callable[[str], str]) -> str:
    return unique("stream")


def test_the_board_shows_the_last_status_and_the_history_all(connection: Connection, stream: str, read: Read) -> None:
    lease = Lease.acquire(connection, stream)
    board = StatusBoard(connection)
    assert board.of(stream) is None
    for batch in range(3):
        said = status(lease, batch=batch, lag=10 - batch)
        lease.publish(said)
        assert eventually(lambda: board.of(stream), said) == said

    def history() -> list[int | None]:
        records = [record for record in read(HISTORY) if record.key() == stream.encode()]
        return [StreamStatus.from_json(record.value() or b"").batch for record in records]

    assert eventually(history, [0, 1, 2]) == [0, 1, 2]
    board.close()


def test_each_lease_has_the_next_epoch(connection: Connection, stream: str) -> None:
    for epoch in (1, 2, 3):
        lease = Lease.acquire(connection, stream)
        assert lease.epoch == epoch
        lease.publish(status(lease))


def test_a_former_holder_can_no_longer_speak(connection: Connection, stream: str) -> None:
    former = Lease.acquire(connection, stream)
    former.publish(status(former))
    holder = Lease.acquire(connection, stream)
    holder.publish(status(holder))
    with pytest.raises(Fenced):
        former.publish(status(former, state="failed"))
    board = StatusBoard(connection)
    assert eventually(lambda: board.of(stream), status(holder)) == status(holder)
    board.close()


def test_a_status_of_another_lease_is_refused(connection: Connection, stream: str) -> None:
    lease = Lease.acquire(connection, stream)
    with pytest.raises(Terminal):
        lease.publish(status(lease, lease_epoch=lease.epoch + 1))


def test_a_stop_reaches_the_driver_it_was_meant_for_and_no_later_one(connection: Connection, stream: str) -> None:
    second, third = (ControlChannel(connection, stream, epoch) for epoch in (2, 3))
    request_stop(connection, stream, 1)
    assert not second.stop_requested()
    request_stop(connection, stream, 2)
    assert second.stop_requested()
    assert not third.stop_requested()
    second.close()
    third.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_each_refresh_reads_on_behind_what_transactions_leave_in_the_topic(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    stream, other = unique("revenue"), unique("other")
    history = StatusHistory(connection, [stream])
    lease, neighbour = Lease.acquire(connection, stream), Lease.acquire(connection, other)
    for lag in (5, 7):
        neighbour.publish(a_status(stream=other, lag=1, lease_epoch=neighbour.epoch))
        lease.publish(a_status(stream=stream, lag=lag, lease_epoch=lease.epoch))
        found = history.refresh(now_ms())
        assert found.keys() == {stream}
        assert found[stream][-1].status.lag == lag
    assert history.refresh(now_ms()) == found
    history.close()


def test_a_watch_says_statuses_history_and_lags(connection: Connection, unique: Callable[[str], str]) -> None:
    stream = unique("revenue")
    watch = BrokerWatch(connection, {stream: ["recount.status"]}, patience_s=60)
    assert stream not in watch().statuses
    lease = Lease.acquire(connection, stream)
    lease.publish(a_status(stream=stream, lag=1_000_000, lease_epoch=lease.epoch))
    deadline = time.monotonic() + 60
    while not (said := watch()).samples.get(stream):
        assert time.monotonic() < deadline, said
    assert said.samples[stream][-1].status.lag == 1_000_000
    assert 0 < said.statuses[stream].lag == said.lags[stream].records < 1_000_000, (
        "all of the topic, as the brokers say"
    )
    assert said.problems == []


def test_topics_that_are_not_there_yet_are_named_with_the_remedy(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    elsewhere = replace(connection, prefix=unique("nobody"))
    [problem] = BrokerWatch(elsewhere, {"revenue": []}, patience_s=60)().problems
    assert "topic does not exist" in problem
    assert f"{elsewhere.prefix}.status" in problem
    assert "recount topics --apply" in problem
    with pytest.raises(Terminal):
        StatusHistory(elsewhere, ["revenue"]).refresh(now_ms())
