"""The producer of a long run: it writes all the time, and what it wrote is the truth about the streams."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, Message
from tests.chaos.long_streams import CUSTOMERS, ORDERS

from recount.declare.topics import Topic
from recount.kafka.connection import Connection

_SLOTS_PER_S = 10
_USERS = 2_000
_REGIONS = ("EU", "US", "APAC", "LATAM", None)
_OUT_OF_ORDER_MS, _LATE_MS, _FUTURE_MS = 1_000, 60_000, 30 * 86_400_000
_CLOSING_MS = 10 * 60_000
_FLUSH_S = 120.0


class Sent(NamedTuple):
    """One record as it was handed to Kafka, in the order of all records."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    timestamp_ms: int


class OrderDesk(threading.Thread):
    """``per_second`` orders, up to 1 s out of order; one in 50 a minute late, one in 100 bad; and changes of customers.

    A change of a customer is in the log before any order of its time or later is sent, so that the result of a lookup
    is one and the same wherever batches are cut. A context manager: started on entry, stopped on exit.
    """

    def __init__(self, connection: Connection, per_second: int, seed: int) -> None:
        super().__init__(name="order desk", daemon=True)
        # a record waits for its broker as long as that takes: none is given up, and none overtakes another
        self._producer = connection.producer({"linger.ms": 20, "message.timeout.ms": 0})
        self._chance = random.Random(seed)
        self._per_slot = max(1, per_second // _SLOTS_PER_S)
        self._over = threading.Event()
        self._acknowledged: Counter[tuple[str, int]] = Counter()
        self._number = 0
        self.sent: list[Sent] = []
        self.faults: list[str] = []

    def __enter__(self) -> OrderDesk:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Ten slots a second; after a halt, while a broker was away, it goes on and does not catch up."""
        try:
            while not self._over.wait(1 / _SLOTS_PER_S):
                self._change_customers()
                for _ in range(self._per_slot):
                    self._order()
                self._producer.poll(0)
        except Exception as error:
            self.faults.append(f"the producer ended: {error!r}")

    def close_the_books(self) -> None:
        """One order ten minutes ahead in every partition, so that every result before is due; the run has ended."""
        self.__exit__()
        at_ms = _now_ms() + _CLOSING_MS
        for partition in range(ORDERS.partitions):
            value = {"order_id": f"closing-{partition}", "region": "CLOSING", "amount": 1}
            self._send(ORDERS, partition, f"closing-{partition}", _json(value), at_ms)
        self._flush()
        for topic, partition in {(one.topic, one.partition) for one in self.sent}:
            sent = sum((one.topic, one.partition) == (topic, partition) for one in self.sent)
            if self._acknowledged[topic, partition] != sent:
                got = self._acknowledged[topic, partition]
                self.faults.append(f"{topic}-{partition}: {sent} records sent, {got} acknowledged")

    def _change_customers(self) -> None:
        if self._chance.random() < 0.2:
            user = self._chance.randrange(_USERS)
            value = {"level": self._chance.choice(["new", "silver", "gold"])}
            self._send(CUSTOMERS, user % CUSTOMERS.partitions, f"user-{user}", _json(value), _now_ms())
            self._flush()

    def _order(self) -> None:
        chance, self._number = self._chance, self._number + 1
        user, kind = chance.randrange(_USERS), chance.random()
        at_ms = _now_ms() - chance.randrange(_OUT_OF_ORDER_MS)
        order = {
            "order_id": f"{self._number:08d}",
            "region": chance.choice(_REGIONS),
            "amount": chance.randrange(1, 50_000) / 100,
        }
        value = _json(order)
        if kind < 0.004:
            value = b"{broken"
        elif kind < 0.008:
            value = _json({**order, "amount": None})
        elif kind < 0.01:
            at_ms += _FUTURE_MS
        elif kind < 0.03:
            at_ms -= _LATE_MS
        self._send(ORDERS, user % ORDERS.partitions, f"user-{user}", value, at_ms)

    def _send(self, topic: Topic, partition: int, key: str, value: bytes, at_ms: int) -> None:
        one = Sent(topic.name, partition, key.encode(), value, at_ms)
        self.sent.append(one)
        while True:
            try:
                self._producer.produce(
                    one.topic,
                    one.value,
                    one.key,
                    one.partition,
                    on_delivery=self._delivered,
                    timestamp=one.timestamp_ms,
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        if error is not None or topic is None or partition is None:
            self.faults.append(f"not delivered: {error}")
        else:
            self._acknowledged[topic, partition] += 1

    def _flush(self) -> None:
        if left := self._producer.flush(_FLUSH_S):
            self.faults.append(f"{left} records were not acknowledged within {_FLUSH_S:.0f} s")


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
