"""A thread that sends a flow's records when they are due."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from recount.core.errors import RecountError, Transient
from recount.kafka.connection import failure
from recount.play.shop_flow import Planted

_SLOT_S = 0.05
"""Records of so long go out at once: a thread cannot be woken for each of thousands a second."""
_FLUSH_S = 60.0


class ShopSource(threading.Thread):
    """Sends the records of ``flow`` until the end of the block. A context manager: started on entry, ended on exit.

    ``sent`` counts records, ``faults`` those that were planted late, bad or as a tombstone.
    """

    def __init__(self, producer: Producer, flow: Iterable[Planted]) -> None:
        super().__init__(name="shop source", daemon=True)
        self._producer, self._flow = producer, flow
        self._over = threading.Event()
        self._error: RecountError | None = None
        self.sent = 0
        self.faults: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def require_well(self) -> None:
        """Raise what Kafka said of the first record that it did not take."""
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Send what is due until the block ends or Kafka refuses a record; then wait for what is on its way."""
        begun_s = time.monotonic()
        for planted in self._flow:
            early_s = begun_s + planted.due_ms / 1_000 - time.monotonic()
            if early_s > 0:
                self._producer.poll(0)
                self._over.wait(max(early_s, _SLOT_S))
            if self._over.is_set() or self._error is not None:
                break
            self._send(planted)
        if self._producer.flush(_FLUSH_S) and self._error is None:
            self._error = Transient(
                "Kafka does not take the records of the shop",
                given=f"no answer within {_FLUSH_S:.0f} s",
                expected="brokers that are up",
                remedy="see what runs: recount status",
            )

    def _send(self, planted: Planted) -> None:
        record = planted.arrival
        while not self._over.is_set():
            try:
                self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    timestamp=record.timestamp_ms,
                    on_delivery=self._told,
                )
            except BufferError:
                self._producer.poll(_SLOT_S)
                continue
            except KafkaException as error:
                self._error = failure("sending the records of the shop", error)
                return
            self.sent += 1
            self.faults.update([planted.fault] if planted.fault else [])
            return

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._error is None:
            self._error = failure("sending the records of the shop", error)
