"""The waits of a stream's DAG: none holds a worker slot, and none is lost when Airflow restarts.

Airflow calls a trigger's ``on_kill`` only when a user acts on the waiting task (mark failed, mark success, clear),
never when the triggerer restarts or hands the trigger on. So that is where a stream is stopped, and a restart of
Airflow leaves it alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from recount.airflow.drivers import record_of
from recount.airflow.orders import is_held, stop_and_wait
from recount.airflow.watching import StreamWatch
from recount.core.errors import Transient
from recount.core.settings import Settings
from recount.core.topology import Health
from recount.kafka.connection import Connection

_LOOK_EVERY_S = 2.0
_STOP_PATIENCE_S = 20.0
"""Airflow grants ``on_kill`` 30 seconds; the order to stop stands whether the driver obeys in time or not."""

Answer = TypeVar("Answer")


class StreamHealthTrigger(BaseTrigger):
    """Waits until the driver ended or is unhealthy; the event is a ``Finding``. Killed, it stops the stream."""

    def __init__(
        self, *, stream: str, limits: dict[str, int], after_epoch: int, launched_at_ms: int, start_timeout_ms: int
    ) -> None:
        super().__init__()
        self.stream = stream
        self.limits = limits
        self.after_epoch = after_epoch
        self.launched_at_ms = launched_at_ms
        self.start_timeout_ms = start_timeout_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _path(self), {
            "stream": self.stream,
            "limits": self.limits,
            "after_epoch": self.after_epoch,
            "launched_at_ms": self.launched_at_ms,
            "start_timeout_ms": self.start_timeout_ms,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        settings = Settings.from_environment(os.environ)
        watch = StreamWatch(
            connection=Connection(bootstrap_servers=settings.bootstrap_servers),
            stream=self.stream,
            limits=Health(**self.limits),
            record=record_of(settings.run, self.stream),
            after_epoch=self.after_epoch,
            launched_at_ms=self.launched_at_ms,
            start_timeout_ms=self.start_timeout_ms,
        )
        try:
            finding = await self._first(watch.look)
            yield TriggerEvent(finding.to_event())
        finally:
            watch.close()

    async def on_kill(self) -> None:
        self.log.info("a user acted on the task: stopping stream %s", self.stream)
        await asyncio.to_thread(stop_and_wait, self.stream, self.after_epoch + 1, _STOP_PATIENCE_S)

    async def _first(self, look: Callable[[], Answer | None]) -> Answer:
        return await first_answer(look, self.log.warning)


class BackoffTrigger(BaseTrigger):
    """Waits until ``until_ms`` before the next launch. Killed, it leaves the order to stop, so that none follows."""

    def __init__(self, *, stream: str, until_ms: int) -> None:
        super().__init__()
        self.stream = stream
        self.until_ms = until_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _path(self), {"stream": self.stream, "until_ms": self.until_ms}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(max(0.0, self.until_ms / 1_000 - time.time()))
        yield TriggerEvent({})

    async def on_kill(self) -> None:
        await asyncio.to_thread(stop_and_wait, self.stream, 0, _STOP_PATIENCE_S)


class ReleaseTrigger(BaseTrigger):
    """Waits while an order to stop stands for the stream."""

    def __init__(self, *, stream: str) -> None:
        super().__init__()
        self.stream = stream

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return _path(self), {"stream": self.stream}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await first_answer(lambda: None if is_held(self.stream) else True, self.log.warning)
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


def limits_of(health: Health) -> dict[str, int]:
    """``health`` as a trigger can carry it."""
    return asdict(health)


def _path(trigger: BaseTrigger) -> str:
    return f"{type(trigger).__module__}.{type(trigger).__qualname__}"
