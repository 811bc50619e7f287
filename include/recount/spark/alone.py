"""Whether a driver is at work already, asked by one that starts."""

from __future__ import annotations

import socket
import time
from contextlib import closing

import psutil

from recount.core.errors import Terminal
from recount.core.instants import told_time
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus, status_of_group


class NotAlone(Terminal):
    """Another driver of the group is at work: nothing is wrong with it."""


_ANSWERS_WITHIN_MS = 30_000
"""A driver of which no status came for so long does not answer."""


def require_alone(connection: Connection, group: str) -> None:
    """Raise ``NotAlone`` where a driver of ``group`` is at work: a second one would take its streams away.

    One that is dead, or silent, may be succeeded.
    """
    status = status_of(connection, status_of_group(group))
    if status is None or not is_driven(status):
        return
    raise NotAlone(
        f"group {group} has a driver",
        given=f"pid {status.pid} on {status.host}, heartbeat at {told_time(status.heartbeat_ms)} UTC",
        expected="one driver for a group",
        remedy="order it to run the stream, or end it first",
    )


def status_of(connection: Connection, name: str) -> StreamStatus | None:
    """The last status under ``name``, though a transaction on the topic be open; None when no driver ever spoke."""
    with closing(StatusBoard(connection, isolation="read_uncommitted")) as board:
        return board.of(name)


def is_driven(status: StreamStatus | None) -> bool:
    """Whether the process that said so is at work: it spoke lately, and is there if it is one of this host."""
    if status is None or status.is_over or time.time_ns() // 1_000_000 - status.heartbeat_ms > _ANSWERS_WITHIN_MS:
        return False
    return status.host != socket.gethostname() or psutil.pid_exists(status.pid)
