"""Waits of a stream's DAG: one look at the stream after the other, until there is something to do.

No wait holds a worker slot, and none is lost when Airflow restarts.

Airflow calls a trigger's ``on_kill`` only when a user acts on the waiting task (mark failed, mark success, clear),
never when the triggerer restarts or hands the trigger on. So that is where a stream is stopped, and a restart of
Airflow leaves it alone. A cleared task runs again, often before ``on_kill`` is called: its new try adopts the driver,
so a clear must not stop it.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import psutil
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from recount.airflow.deployed import fingerprint_now
from recount.airflow.drivers import DriverPod, DriverProcess, find_driver, log_of, record_of
from recount.airflow.health import StreamHealth, health_of
from recount.airflow.orders import Hold, stop_and_wait
from recount.declare.limits import Health
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus
from recount.runtime.console import EXIT_TERMINAL, final_error_in
from recount.runtime.errors import Transient
from recount.runtime.log_lines import said_in
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms, readable

_LOG = logging.getLogger(__name__)
Outcome = Literal[
    "stopped", "failed", "died", "refused", "not started", "unhealthy", "degraded", "recovered", "outdated"
]
_LAST_BYTES = 8_000
ALERT_AFTER_MS = 60_000
"""A stream that is degraded, or well again, for so long is worth telling: what comes and goes with a batch is not."""
_LOOK_EVERY_S = 5.0
_STOP_PATIENCE_S = 20.0
"""Airflow grants ``on_kill`` 30 seconds; the order to stop stands whether the driver obeys in time or not."""
_OVER = ("success", "failed", "skipped", "removed")
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Why the watch ended. ``healthy_ms`` is how long the stream had been at work before.

    ``refused`` is a failure that no relaunch can help. ``degraded`` and ``recovered`` leave the driver alone: they are
    for the notifiers, and the watch goes on.
    """

    outcome: Outcome
    reasons: list[str] = field(default_factory=list)
    healthy_ms: int = 0
    of_silence: bool = False
    """Whether it rests on statuses that did not come: those can be written, and hidden by an open transaction."""

    def to_event(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "reasons": self.reasons, "healthy_ms": self.healthy_ms}


@dataclass(kw_only=True, eq=False)
class StreamWatch:
    """Watches the driver with a lease epoch above ``after_epoch``, launched at ``launched_at_ms``.

    A later driver that took the lease over is watched instead. ``record`` is the driver's record; where it names none
    of this host and no pod (on YARN) only the status topic tells. A driver that ``is_shared`` with others may have been
    replaced since this one's last status. ``deployed`` gives the fingerprint of the declaration that is deployed now,
    None where it is unknown. ``degraded``: the stream's last notice said so. ``log`` is the driver's, where
    it is of this machine.
    """

    connection: Connection
    stream: str
    limits: Health
    record: Path
    after_epoch: int
    launched_at_ms: int
    start_timeout_ms: int
    deployed: Callable[[], str | None] = lambda: None
    degraded: bool = False
    is_shared: bool = False
    alert_after_ms: int = ALERT_AFTER_MS
    log: Path | None = None

    def __post_init__(self) -> None:
        self._board = StatusBoard(self.connection)
        self._healthy_since_ms: int | None = None
        self._changed_ms: int | None = None
        self._told_hidden: str | None = None

    def look(self) -> Finding | None:
        """None while all is well. Raises ``Transient`` when the status topic cannot be read: look again later.

        A driver whose later statuses are hidden by an open transaction is not called silent: that is decided first.
        """
        found = self._look()
        if found is None or not found.of_silence:
            return found
        hidden = self._board.hidden(self.stream)
        if hidden and hidden != self._told_hidden:
            reasons = "; ".join([found.outcome, *found.reasons])
            _LOG.warning("stream %s: %s, but an open transaction hides the status at %s", self.stream, reasons, hidden)
        self._told_hidden = hidden
        if hidden:
            return None
        return self._look()  # what was hidden before can be read now

    def _look(self) -> Finding | None:
        driver = find_driver(self.record)
        is_dead = driver is not None and not driver.is_alive
        now_ms = clock_ms()
        status = self._board.of(self.stream)
        if status is None or status.lease_epoch <= self.after_epoch:
            return self._before_the_start(driver if is_dead else None, now_ms)
        return self._running(status, is_dead or (self.is_shared and _is_gone(status)), now_ms)

    def close(self) -> None:
        self._board.close()

    def _before_the_start(self, dead: DriverProcess | DriverPod | None, now_ms: int) -> Finding | None:
        if dead is not None:
            return self._ended_before_its_lease(dead)
        if now_ms - self.launched_at_ms > self.start_timeout_ms:
            reason = f"no status within {readable(self.start_timeout_ms)}"
            return Finding(outcome="not started", reasons=[reason], of_silence=True)
        return None

    def _ended_before_its_lease(self, driver: DriverProcess | DriverPod) -> Finding:
        """Whether a relaunch can help: a process says it in its log, a pod by its exit code."""
        ended = "the driver ended before it took its lease"
        if isinstance(driver, DriverPod):
            outcome: Outcome = "refused" if driver.exit_code() == EXIT_TERMINAL else "not started"
            return Finding(outcome=outcome, reasons=[f"{ended}; {driver.failure() or 'it says no error'}"])
        last = _last_line(self.log, self.launched_at_ms) if self.log else None
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
            return Finding(outcome="died", reasons=["the driver process has ended"], healthy_ms=healthy_ms)
        deployed = self.deployed()
        if deployed and status.fingerprint and status.fingerprint != deployed:
            reason = f"the driver runs the declaration {status.fingerprint[:12]}, deployed is {deployed[:12]}"
            return Finding(outcome="outdated", reasons=[reason], healthy_ms=healthy_ms)
        health = health_of(status, self.limits, now_ms)
        if health.state == "failed":
            reasons = list(health.problems)
            return Finding(outcome="unhealthy", reasons=reasons, healthy_ms=healthy_ms, of_silence=True)
        return self._alert(health, now_ms, healthy_ms)

    def _alert(self, health: StreamHealth, now_ms: int, healthy_ms: int) -> Finding | None:
        """Return the notice due: the stream is not as the last notice said, and has been so for a while."""
        degraded = health.state == "degraded"
        if degraded == self.degraded:
            self._changed_ms = None
            return None
        if self._changed_ms is None:
            self._changed_ms = now_ms
        if now_ms - self._changed_ms < self.alert_after_ms:
            return None
        outcome: Outcome = "degraded" if degraded else "recovered"
        return Finding(outcome=outcome, reasons=list(health.problems), healthy_ms=healthy_ms)


def _last_line(log: Path, since_ms: int) -> str | None:
    """Return the last words of the driver; None where nothing has been said since its launch."""
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


@dataclass(kw_only=True, eq=False, repr=False)
class StreamTrigger(BaseTrigger):
    """A wait of a stream's DAG, whose fields are what Airflow stores of it."""

    stream: str

    def __post_init__(self) -> None:
        super().__init__()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return f"{type(self).__module__}.{type(self).__qualname__}", told


@dataclass(kw_only=True, eq=False, repr=False)
class StreamHealthTrigger(StreamTrigger):
    """Waits until a ``Finding`` is to be acted on or reported, which is the event. Killed, it stops the stream."""

    limits: dict[str, float]
    after_epoch: int
    launched_at_ms: int
    start_timeout_ms: int
    degraded: bool = False
    group: str | None = None

    async def run(self) -> AsyncIterator[TriggerEvent]:
        settings = Settings.from_environment(os.environ)
        watch = StreamWatch(
            connection=Connection.of(settings),
            stream=self.stream,
            limits=health_from(self.limits),
            record=record_of(settings.run, self.group or self.stream),
            is_shared=self.group is not None,
            after_epoch=self.after_epoch,
            launched_at_ms=self.launched_at_ms,
            start_timeout_ms=self.start_timeout_ms,
            deployed=partial(fingerprint_now, settings, self.stream),
            degraded=self.degraded,
            log=log_of(settings.logs, self.group or self.stream),
        )
        with closing(watch):
            finding = await first_answer(watch.look, self.log.warning)
            yield TriggerEvent(finding.to_event())

    async def on_kill(self) -> None:
        if not await _is_over(self):
            self.log.info("the task was cleared: its next try adopts the driver of %s", self.stream)
            return
        self.log.info("a user ended the task: stopping stream %s", self.stream)
        await asyncio.to_thread(stop_and_wait, self.stream, self.after_epoch + 1, _STOP_PATIENCE_S, self.group)


@dataclass(kw_only=True, eq=False, repr=False)
class BackoffTrigger(StreamTrigger):
    """Waits until ``until_ms`` before the next launch. Killed, it leaves the order to stop, so that none follows."""

    until_ms: int
    group: str | None = None

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(max(0.0, self.until_ms / 1_000 - time.time()))
        yield TriggerEvent({})

    async def on_kill(self) -> None:
        if await _is_over(self):
            await asyncio.to_thread(stop_and_wait, self.stream, 0, _STOP_PATIENCE_S, self.group)


class ReleaseTrigger(StreamTrigger):
    """Waits while an order to stop stands for the stream."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        with closing(Hold.of(self.stream)) as hold:
            await first_answer(lambda: None if hold.stands() else True, self.log.warning)
        yield TriggerEvent({})


async def first_answer(look: Callable[[], Answer | None], warn: Callable[..., None]) -> Answer:
    """Call ``look`` in a thread every two seconds until it answers; brokers that are away are waited for."""
    while True:
        try:
            answer = await asyncio.to_thread(look)
        except Transient as error:
            warn("looking again: %s", error)
        else:
            if answer is not None:
                return answer
        await asyncio.sleep(_LOOK_EVERY_S)


async def _is_over(trigger: BaseTrigger) -> bool:
    """Whether the trigger's task has ended by the user's doing, rather than been cleared to run again."""
    task = trigger.task_instance
    if task is None:
        return True
    # What a trigger may ask its supervisor, it asks from a thread of asgiref's, which leads back to its event loop.
    states = await sync_to_async(RuntimeTaskInstance.get_task_states)(
        dag_id=task.dag_id, task_ids=[task.task_id], run_ids=[task.run_id]
    )
    return states.get(task.run_id, {}).get(task.task_id) in _OVER


def limits_of(health: Health) -> dict[str, float]:
    """``health`` as a trigger can carry it."""
    return asdict(health)


def health_from(limits: Mapping[str, float]) -> Health:
    """The declared limits that ``limits_of`` made; those of another release that this one has not are left out."""
    known = {field.name for field in fields(Health)}
    return Health(**{name: limit for name, limit in limits.items() if name in known})  # type: ignore[arg-type]
