"""How a driver that hosts streams is told by the system to end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


class _Told:
    """A ``sun.misc.SignalHandler`` of the JVM that calls Python."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def handle(self, _signal: object) -> None:
        """The JVM got the signal."""
        self._call()

    class Java:
        implements = ("sun.misc.SignalHandler",)


def stop_on_sigterm(session: SparkSession, stop: Callable[[], None]) -> None:
    """Let SIGTERM, to Python or to its JVM, call ``stop`` instead of ending the process.

    Without this the JVM would end at once, in the middle of the batches of all streams.
    """
    signal.signal(signal.SIGTERM, lambda *_: stop())
    gateway: Any = session.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    misc = gateway.jvm.sun.misc
    misc.Signal.handle(misc.Signal("TERM"), _Told(stop))
