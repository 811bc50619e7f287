"""One driver per stream: the lease, the board it writes, and the orders it hears."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.eventually import eventually
from tests.integration.kafka.conftest import Read
from tests.statuses import a_status

from recount.kafka.connection import Connection, Fenced
from recount.kafka.control import ControlChannel, request_stop
from recount.kafka.leases import Lease
from recount.kafka.status import StatusBoard, StreamStatus
from recount.kafka.topic_drift import HISTORY
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
