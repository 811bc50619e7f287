"""The seeded flow of orders and of their payments, for the job that joins them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from confluent_kafka import Producer

from bench.flow import Flow, Longs, send
from recount.runtime.times import milliseconds

METHODS = ("card", "bank", "cash")
_UNPAID_EVERY = 10
_SOONEST_MS, _LATEST_MS = milliseconds("2 s"), milliseconds("200 s")


@dataclass(frozen=True, kw_only=True)
class PaidOrders:
    """The ``orders`` of a flow, but keyed by their id, and beside their topic that of their payments.

    Nine of ten orders are paid, once, 2 s to 200 s of event time after they were made. A payment has its order's id as
    key, lies in the partition of the same number, and comes up to 3 s after its event time, so none is late.
    """

    orders: Flow

    @property
    def topic(self) -> str:
        """The topic of the orders."""
        return self.orders.topic

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic of the orders and that of the payments."""
        return (self.topic, payments_of(self.topic))

    @property
    def records(self) -> int:
        """Orders and payments together."""
        return self.orders.records + len(self.paid)

    @cached_property
    def paid(self) -> Longs:
        """The numbers of the orders that are paid."""
        return np.flatnonzero(np.arange(self.orders.records) % _UNPAID_EVERY)

    @cached_property
    def delay_ms(self) -> Longs:
        """How long after its order each payment is made."""
        return self._random(5).integers(_SOONEST_MS, _LATEST_MS, len(self.paid))

    def pairs(self, *, after_ms: int, grace_ms: int) -> int:
        """How many payments of at most ``after_ms`` later meet their order, if that is on time by its own partition.

        Every payment is on time.
        """
        on_time = self.orders.timestamp_ms + after_ms + grace_ms >= self.orders.stream_time_ms
        return int(np.count_nonzero(on_time[self.paid] & (self.delay_ms <= after_ms)))

    def produce(self, producer: Producer) -> None:
        """Append the orders to their topic, then the payments to theirs, each in the order in which they come."""
        partition = self.orders.partition.tolist()
        for index, (_, timestamp_ms, value) in enumerate(self.orders.rows()):
            send(producer, self.topic, _key(index), partition[index], value, timestamp_ms)
        times_ms = self.orders.timestamp_ms[self.paid] + self.delay_ms
        comes_ms = times_ms + self._random(6).integers(0, milliseconds("3 s"), len(self.paid))
        order = np.argsort(comes_ms, kind="stable")
        for index, paid_ms in zip(self.paid[order].tolist(), times_ms[order].tolist(), strict=True):
            send(producer, payments_of(self.topic), _key(index), partition[index], payment(index), paid_ms)
        producer.flush()

    def _random(self, column: int) -> np.random.Generator:
        return np.random.default_rng((self.orders.seed, column))


def payments_of(topic: str) -> str:
    """The topic of the payments of the orders in ``topic``."""
    return f"{topic}-payments"


def payment(index: int) -> bytes:
    """The value of the payment of order number ``index``: compact JSON."""
    method = METHODS[index % len(METHODS)]
    return f'{{"order_id":"{_key(index)}","method":"{method}","status":"received"}}'.encode()


def _key(index: int) -> str:
    return f"{index:010d}"
