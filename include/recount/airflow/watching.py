"""One look at a stream after the other, until there is something to do."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from recount.airflow.drivers import DriverProcess, find_driver
from recount.airflow.health import StreamHealth, health_of
from recount.airflow.pods import DriverPod
from recount.core.durations import readable
from recount.core.limits import Health
from recount.exit_codes import EXIT_TERMINAL, final_error_in
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus
from recount.log_lines import said_in

_LOG = logging.getLogger(__name__)

Outcome = Literal[
    "stopped", "failed", "died", "refused", "not started", "unhealthy", "degraded", "recovered", "outdated"
]
_LAST_BYTES = 8_000
ALERT_AFTER_MS = 60_000
"""A stream that is degraded, or well again, for so long is worth telling: what comes and goes with a batch is not."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Why the watch ended. ``healthy_ms`` is how long the stream had been at work before.

    ``refused`` is a failure that no relaunch can help. ``degraded`` and ``recovered`` leave the driver alone: they are
    for somebody to be told, and the watch goes on.
    """

    outcome: Outcome
    reasons: list[str] = field(default_factory=list)
    healthy_ms: int = 0
    of_silence: bool = False
    """Whether it rests on statuses that did not come: those can be written, and hidden by an open transaction."""

    def to_event(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "reasons": self.reasons, "healthy_ms": self.healthy_ms}


class StreamWatch:
    """Watches the driver with a lease epoch above ``after_epoch``, launched at ``launched_at_ms``.

    A later driver that took the lease over is watched instead. ``record`` is the driver's record; where it names none
    of this host and no pod (on YARN) only the status topic tells. A driver that ``is_shared`` with others may have been
    replaced since this one's last status. ``deployed`` gives the fingerprint of the declaration that is deployed now,
    None where it is unknown. ``degraded`` says that the stream was last told to be so. ``log`` is the driver's, where
    it is of this machine.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        stream: str,
        limits: Health,
        record: Path,
        after_epoch: int,
        launched_at_ms: int,
        start_timeout_ms: int,
        deployed: Callable[[], str | None] = lambda: None,
        degraded: bool = False,
        is_shared: bool = False,
        alert_after_ms: int = ALERT_AFTER_MS,
        log: Path | None = None,
    ) -> None:
        self._board = StatusBoard(connection)
        self._stream = stream
        self._limits = limits
        self._record = record
        self._log = log
        self._after_epoch = after_epoch
        self._launched_at_ms = launched_at_ms
        self._start_timeout_ms = start_timeout_ms
        self._deployed = deployed
        self._healthy_since_ms: int | None = None
        self._told_degraded = degraded
        self._is_shared = is_shared
        self._alert_after_ms = alert_after_ms
        self._changed_ms: int | None = None
        self._told_hidden: str | None = None

    def look(self) -> Finding | None:
        """None while all is well. Raises ``Transient`` when the status topic cannot be read: look again later.

        A driver whose later statuses are hidden by an open transaction is not called silent: that is decided first.
        """
        found = self._look()
        if found is None or not found.of_silence:
            return found
        hidden = self._board.hidden(self._stream)
        if hidden and hidden != self._told_hidden:
            reasons = "; ".join([found.outcome, *found.reasons])
            _LOG.warning("stream %s: %s, but an open transaction hides the status at %s", self._stream, reasons, hidden)
        self._told_hidden = hidden
        if hidden:
            return None
        return self._look()  # what was hidden before can be read now

    def _look(self) -> Finding | None:
        driver = find_driver(self._record)
        is_dead = driver is not None and not driver.is_alive
        now_ms = time.time_ns() // 1_000_000
        status = self._board.of(self._stream)
        if status is None or status.lease_epoch <= self._after_epoch:
            return self._before_the_start(driver if is_dead else None, now_ms)
        return self._running(status, is_dead or (self._is_shared and _is_gone(status)), now_ms)

    def close(self) -> None:
        self._board.close()

    def _before_the_start(self, dead: DriverProcess | DriverPod | None, now_ms: int) -> Finding | None:
        if dead is not None:
            return self._ended_before_its_lease(dead)
        if now_ms - self._launched_at_ms > self._start_timeout_ms:
            reason = f"no status within {readable(self._start_timeout_ms)}"
            return Finding(outcome="not started", reasons=[reason], of_silence=True)
        return None

    def _ended_before_its_lease(self, driver: DriverProcess | DriverPod) -> Finding:
        """Whether a relaunch can help: a process says it in its log, a pod by its exit code."""
        ended = "the driver ended before it took its lease"
        if isinstance(driver, DriverPod):
            outcome: Outcome = "refused" if driver.exit_code() == EXIT_TERMINAL else "not started"
            return Finding(outcome=outcome, reasons=[f"{ended}; {driver.failure() or 'it says no error'}"])
        last = _last_line(self._log, self._launched_at_ms) if self._log else None
        final = final_error_in(last) if last else None
        if final:
            return Finding(outcome="refused", reasons=[f"{ended}; {final}"])
        return Finding(outcome="not started", reasons=[f"{ended}; its log ends with: {last}" if last else ended])

    def _running(self, status: StreamStatus, is_dead: bool, now_ms: int) -> Finding | None:
        if self._healthy_since_ms is None:
            self._healthy_since_ms = now_ms
        healthy_ms = now_ms - self._healthy_since_ms
        if status.state == "stopped":
            return Finding(outcome="stopped", healthy_ms=healthy_ms)
        if status.state == "failed":
            outcome: Outcome = "refused" if status.final else "failed"
            return Finding(outcome=outcome, reasons=[status.error or "no error given"], healthy_ms=healthy_ms)
        if is_dead:
            return Finding(outcome="died", reasons=["the driver process is gone"], healthy_ms=healthy_ms)
        deployed = self._deployed()
        if deployed and status.fingerprint and status.fingerprint != deployed:
            reason = f"the driver runs the declaration {status.fingerprint[:12]}, deployed is {deployed[:12]}"
            return Finding(outcome="outdated", reasons=[reason], healthy_ms=healthy_ms)
        health = health_of(status, self._limits, now_ms)
        if health.state == "failed":
            reasons = list(health.problems)
            return Finding(outcome="unhealthy", reasons=reasons, healthy_ms=healthy_ms, of_silence=True)
        return self._alert(health, now_ms, healthy_ms)

    def _alert(self, health: StreamHealth, now_ms: int, healthy_ms: int) -> Finding | None:
        """What to tell: the stream is not as it was last told, and has been so for a while."""
        degraded = health.state == "degraded"
        if degraded == self._told_degraded:
            self._changed_ms = None
            return None
        if self._changed_ms is None:
            self._changed_ms = now_ms
        if now_ms - self._changed_ms < self._alert_after_ms:
            return None
        outcome: Outcome = "degraded" if degraded else "recovered"
        return Finding(outcome=outcome, reasons=list(health.problems), healthy_ms=healthy_ms)


def _last_line(log: Path, since_ms: int) -> str | None:
    """What the driver has said last; None where nothing has been said since its launch."""
    try:
        if log.stat().st_mtime_ns // 1_000_000 < since_ms:
            return None
        with log.open("rb") as lines:
            lines.seek(max(0, log.stat().st_size - _LAST_BYTES))
            said = lines.read().decode(errors="replace").split("\n")
    except OSError:
        return None
    return next((said_in(line) for line in reversed(said) if line.strip()), None)


def _is_gone(status: StreamStatus) -> bool:
    """Whether the process that said so was of this host, and is not there any more."""
    return status.host == socket.gethostname() and not psutil.pid_exists(status.pid)
