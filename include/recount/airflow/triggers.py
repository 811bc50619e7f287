"""The waits of a stream's DAG: none holds a worker slot, and none is lost when Airflow restarts.

Airflow calls a trigger's ``on_kill`` only when a user acts on the waiting task (mark failed, mark success, clear),
never when the triggerer restarts or hands the trigger on. So that is where a stream is stopped, and a restart of
Airflow leaves it alone. A cleared task runs again, often before ``on_kill`` is called: its new try adopts the driver,
so a clear must not stop it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from recount.airflow.deployed import DeployedFingerprint
from recount.airflow.drivers import log_of, record_of
from recount.airflow.orders import Hold, stop_and_wait
from recount.airflow.watching import StreamWatch
from recount.core.errors import Transient
from recount.core.limits import Health
from recount.core.settings import Settings
from recount.kafka.connection import Connection

_LOOK_EVERY_S = 5.0
_STOP_PATIENCE_S = 20.0
"""Airflow grants ``on_kill`` 30 seconds; the order to stop stands whether the driver obeys in time or not."""

_OVER = ("success", "failed", "skipped", "removed")

Answer = TypeVar("Answer")


class StreamHealthTrigger(BaseTrigger):
    """Waits until a ``Finding`` is to be acted on or told, which is the event. Killed, it stops the stream."""

    def __init__(
        self,
        *,
        stream: str,
        limits: dict[str, float],
        after_epoch: int,
        launched_at_ms: int,
        start_timeout_ms: int,
        degraded: bool = False,
        group: str | None = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.stream = stream
        self.limits = limits
        self.after_epoch = after_epoch
        self.launched_at_ms = launched_at_ms
        self.start_timeout_ms = start_timeout_ms
        self.degraded = degraded

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _path(self), {
            "stream": self.stream,
            "limits": self.limits,
            "after_epoch": self.after_epoch,
            "launched_at_ms": self.launched_at_ms,
            "start_timeout_ms": self.start_timeout_ms,
            "degraded": self.degraded,
            "group": self.group,
        }

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
            deployed=DeployedFingerprint(settings, self.stream).now,
            degraded=self.degraded,
            log=log_of(settings.logs, self.group or self.stream),
        )
        try:
            finding = await self._first(watch.look)
            yield TriggerEvent(finding.to_event())
        finally:
            watch.close()

    async def on_kill(self) -> None:
        if not await _is_over(self):
            self.log.info("the task was cleared: its next try adopts the driver of %s", self.stream)
            return
        self.log.info("a user ended the task: stopping stream %s", self.stream)
        await asyncio.to_thread(stop_and_wait, self.stream, self.after_epoch + 1, _STOP_PATIENCE_S, self.group)

    async def _first(self, look: Callable[[], Answer | None]) -> Answer:
        return await first_answer(look, self.log.warning)


class BackoffTrigger(BaseTrigger):
    """Waits until ``until_ms`` before the next launch. Killed, it leaves the order to stop, so that none follows."""

    def __init__(self, *, stream: str, until_ms: int, group: str | None = None) -> None:
        super().__init__()
        self.stream = stream
        self.until_ms = until_ms
        self.group = group

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _path(self), {"stream": self.stream, "until_ms": self.until_ms, "group": self.group}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(max(0.0, self.until_ms / 1_000 - time.time()))
        yield TriggerEvent({})

    async def on_kill(self) -> None:
        if await _is_over(self):
            await asyncio.to_thread(stop_and_wait, self.stream, 0, _STOP_PATIENCE_S, self.group)


class ReleaseTrigger(BaseTrigger):
    """Waits while an order to stop stands for the stream."""

    def __init__(self, *, stream: str) -> None:
        super().__init__()
        self.stream = stream

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _path(self), {"stream": self.stream}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        hold = Hold.of(self.stream)
        try:
            await first_answer(lambda: None if hold.stands() else True, self.log.warning)
        finally:
            hold.close()
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


def _path(trigger: BaseTrigger) -> str:
    return f"{type(trigger).__module__}.{type(trigger).__qualname__}"
