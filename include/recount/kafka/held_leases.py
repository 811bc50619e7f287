"""Who holds a lease, declared or not, and how it is made to let go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing

from recount.core.durations import roughly
from recount.core.errors import Terminal
from recount.core.registry import Declarations
from recount.kafka.connection import Connection
from recount.kafka.control import request_stop
from recount.kafka.status import StatusBoard, StreamStatus, status_of_group

HEARD_WITHIN_MS = 60_000
"""A driver of which no status came for so long is taken for one that is gone: the slowest speak every ten seconds."""
STARTS_WITHIN_MS = 180_000
"""One that is starting does not speak while it recovers."""
PATIENCE_S = 180.0


def undeclared(statuses: Mapping[str, StreamStatus], declarations: Declarations) -> list[StreamStatus]:
    """What a driver has not said to be over, and no stream or group is declared of that name any more."""
    known = {*declarations.streams, *map(status_of_group, declarations.groups)}
    return [statuses[name] for name in sorted(statuses) if name not in known and not statuses[name].is_over]


def is_heard(status: StreamStatus, now_ms: int) -> bool:
    """Whether a driver is at work, as far as its last status tells."""
    quiet_ms = STARTS_WITHIN_MS if status.state == "starting" else HEARD_WITHIN_MS
    return not status.is_over and now_ms - status.heartbeat_ms <= quiet_ms


def driver_of(status: StreamStatus, now_ms: int) -> str:
    """The driver in words: where it is, and since when it was heard of."""
    ago = roughly(max(0, now_ms - status.heartbeat_ms))
    return f"{status.state}, pid {status.pid} on {status.host}, heard of {ago} ago"


def require_declared(statuses: Mapping[str, StreamStatus], declarations: Declarations, now_ms: int) -> None:
    """Raise ``Terminal`` where drivers are at work for streams or groups that nothing declares."""
    found = [status for status in undeclared(statuses, declarations) if is_heard(status, now_ms)]
    if not found:
        return
    many = "streams run" if len(found) > 1 else "stream runs"
    raise Terminal(
        f"{len(found)} {many} without a declaration",
        given="; ".join(f"{status.stream}: {driver_of(status, now_ms)}" for status in found),
        expected="a declaration of each stream that runs: no DAG watches or audits these",
        remedy=" and ".join(f"`recount retire {status.stream}`" for status in found)
        + ", or declare what was removed or renamed again",
    )


def stop_driver(
    connection: Connection,
    name: str,
    *,
    patience_s: float = PATIENCE_S,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> StreamStatus:
    """Order the holder of the lease ``name`` to end after its batch; returns the last status once it has, or is gone.

    The order stands afterwards. Statuses are read uncommitted: an open transaction on the topic hides no driver.
    Raises ``Terminal`` where it was never held, or where the driver goes on for longer than ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    ordered = 0
    with closing(StatusBoard(connection, isolation="read_uncommitted")) as board:
        while True:
            status = board.of(name)
            if status is None:
                raise _never_held(name, board.latest().values())
            if not status.is_over and status.lease_epoch > ordered:
                request_stop(connection, name, status.lease_epoch)
                ordered = status.lease_epoch
            if not is_heard(status, now_ms()):
                return status
            if time.monotonic() > deadline:
                raise Terminal(
                    f"the driver of {name} has not ended",
                    given=driver_of(status, now_ms()),
                    expected=f"that it ends after its batch, within {patience_s:.0f} s",
                    remedy="the order stands: wait, or end the process there, and call this again",
                )
            time.sleep(0.5)


def _never_held(name: str, statuses: Iterable[StreamStatus]) -> Terminal:
    holding = sorted(status.stream for status in statuses if not status.is_over)
    return Terminal(
        f"no driver of {name} has ever spoken",
        given=name,
        expected=f"one of {', '.join(holding)}" if holding else "a stream that runs; there is none",
        remedy="name it as `recount describe`, or the overview in Airflow, does",
    )
