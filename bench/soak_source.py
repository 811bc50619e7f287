"""Orders of now at a steady rate, for as long as a soak lasts, with what goes wrong in any topic."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Producer

from bench.flow import REGIONS, append, order
from recount.runtime.times import milliseconds

_SLOTS_PER_S = 100
_USERS = 10_000
_LATE_EVERY, _LATE_MS = 1_000, milliseconds("10 min")
_BROKEN_EVERY = 10_000


class SoakSource(threading.Thread):
    """``per_second`` orders until ``stop``; one in 1,000 is late by 10 minutes, one in 10,000 is no JSON.

    A context manager: started on entry, stopped on exit.
    """

    def __init__(self, producer: Producer, topic: str, per_second: int) -> None:
        super().__init__(name="source", daemon=True)
        self._producer, self._topic, self._per_second = producer, topic, per_second
        self._over = threading.Event()

    def __enter__(self) -> SoakSource:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """A slot of orders every hundredth of a second."""
        begun_s, slot = time.monotonic(), 0
        while not self._over.wait(max(0.0, begun_s + slot / _SLOTS_PER_S - time.monotonic())):
            now_ms = time.time_ns() // 1_000_000
            first, slot = slot * self._per_second // _SLOTS_PER_S, slot + 1
            for index in range(first, slot * self._per_second // _SLOTS_PER_S):
                user = index % _USERS
                broken, late = index % _BROKEN_EVERY == _BROKEN_EVERY - 1, index % _LATE_EVERY == _LATE_EVERY - 1
                value = b"{broken" if broken else order(index, user, index % len(REGIONS), 1 + index % 50_000)
                append(self._producer, self._topic, user, value, now_ms - (_LATE_MS if late else 0))
            self._producer.poll(0)
        self._producer.flush()
