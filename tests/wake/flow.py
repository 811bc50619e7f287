"""Records for all topics at a steady rate, with silences."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from confluent_kafka import Producer
from tests.wake.streams import PARTITIONS, topics

_SENSORS = 40


class Flow:
    """Sends ``rate`` records a second, to every partition in turn, while it is ``awake``."""

    def __init__(self, producer: Producer, rate: float) -> None:
        self.sent = 0
        self._producer, self._rate = producer, rate
        self._awake, self._over = Event(), Event()
        self._draw = random.Random(39)

    def wake(self) -> None:
        """Send from now on."""
        self._awake.set()

    def silence(self) -> None:
        """Send nothing from now on; returns when all that was sent is in the topics."""
        self._awake.clear()
        time.sleep(0.5)
        self._producer.flush(30)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sends meanwhile in a thread of its own."""
        thread = Thread(target=self._run, name="flow", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._producer.flush(30)

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._over.wait(0.1):
            now_s = time.monotonic()
            if not self._awake.is_set():
                due_s = now_s
                continue
            while due_s <= now_s:
                self._send()
                due_s += 1 / self._rate

    def _send(self) -> None:
        topic = topics[self.sent % len(topics)].name
        partition = self.sent // len(topics) % PARTITIONS
        sensor = f"sensor-{partition}-{self._draw.randrange(_SENSORS)}"
        value = json.dumps({"sensor": sensor, "value": self._draw.randrange(100)}).encode()
        self._producer.produce(topic, key=sensor.encode(), value=value, partition=partition)
        self._producer.poll(0)
        self.sent += 1
