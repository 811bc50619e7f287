"""Stop and start, as Airflow gives these orders and sees them obeyed."""

import os
import time
from collections.abc import Collection
from contextlib import closing
from typing import Self

from recount.airflow.drivers import find_driver, record_of
from recount.kafka.connection import Connection
from recount.kafka.leases import StandingOrders, request_stop, withdraw_stop
from recount.kafka.status import StatusBoard, last_epoch, status_of
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings


def hidden_status(connection: Connection, stream: str) -> str | None:
    """Return the place of a later status of the stream that an open transaction hides, None where there is none."""
    with closing(StatusBoard(connection)) as board:
        return board.hidden(stream)


def is_held(stream: str) -> bool:
    """Whether an order to stop stands for the stream's last driver: then none is launched until it is withdrawn."""
    with closing(Hold.of(stream)) as hold:
        return hold.stands()


class Hold:
    """Whether a stream is held, asked again and again: both topics stay open, and only what is new is read."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._orders = StandingOrders(connection)
        self._board = StatusBoard(connection)
        self._stream = stream

    @classmethod
    def of(cls, stream: str) -> Self:
        """In the cluster that the environment names."""
        return cls(_here()[0], stream)

    def stands(self) -> bool:
        """Whether an order to stop stands, see ``is_held``."""
        order = self._orders.stop_of(self._stream)
        status = self._board.of(self._stream)
        return order is not None and (status is None or order >= status.lease_epoch)

    def close(self) -> None:
        self._orders.close()
        self._board.close()


def stop(stream: str, least_epoch: int = 0) -> None:
    """Order the stream's driver, and one that is just starting with ``least_epoch``, to end after its batch."""
    connection, _ = _here()
    request_stop(connection, stream, max(least_epoch, last_epoch(connection, stream)))


def start(stream: str) -> None:
    """Withdraw an order to stop: the stream's DAG launches it again."""
    connection, _ = _here()
    withdraw_stop(connection, stream)


def give(stream: str, order: str, *, declared: Collection[str]) -> None:
    """The ``order`` stop or start to a declared stream; stop also to whatever else has ever held a lease.

    Raises ``Terminal`` for a name that nobody knows.
    """
    if stream not in declared and (order != "stop" or status_of(_here()[0], stream) is None):
        raise Terminal.of(
            "no-stream-to-order",
            given=stream,
            order=order,
            expected=f"one of {', '.join(sorted(declared))}" + (", or one that runs" if order == "stop" else ""),
        )
    {"stop": stop, "start": start}[order](stream)


def stop_and_wait(stream: str, least_epoch: int, patience_s: float, group: str | None = None) -> bool:
    """``stop``, then wait until the stream ended; False when it had not within ``patience_s``."""
    stop(stream, least_epoch)
    return wait_for_end(stream, patience_s, group)


def wait_for_end(stream: str, patience_s: float, group: str | None = None) -> bool:
    """Whether the driver said that the stream ended, or its process has ended, within ``patience_s``.

    The driver of a ``group`` goes on when one of its streams has ended.
    """
    connection, settings = _here()
    deadline = time.monotonic() + patience_s
    with closing(StatusBoard(connection)) as board:
        while time.monotonic() < deadline:
            status = board.of(stream)
            driver = find_driver(record_of(settings.run, group or stream))
            said_so = status is None or status.is_over
            is_gone = driver is not None and not driver.is_alive
            if is_gone or (said_so and (driver is None or group is not None)):
                return True
            time.sleep(0.5)
    return False


def _here() -> tuple[Connection, Settings]:
    settings = Settings.from_environment(os.environ)
    return Connection.of(settings), settings
