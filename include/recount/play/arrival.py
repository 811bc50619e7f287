"""Records as they come to their topics: one of them, those that come last, and when each is due."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

CLOSING = "closing"
"""In every value of a last record."""
_TEXTS = (
    *("order_id", "customer_id", "user_id", "product", "region", "status", "payment_id", "method"),
    *("name", "tier", "txn_id", "location", "action"),
)
_CYCLE_S, _BURST_S = 60, 5


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What a producer sends: ``timestamp_ms`` is its event time, ``value`` None a null value."""

    topic: str
    partition: int
    key: str | None
    value: bytes | None
    timestamp_ms: int


def last_records(partitions: Mapping[str, int], at_ms: int) -> list[Arrival]:
    """One of the time ``at_ms`` in each of the ``partitions`` of each topic; every topic of the shop can decode it.

    After it, no window before it waits for anything.
    What names a record is the same in its key and its value, as producers of the shop have it.
    """
    return [
        Arrival(
            topic=topic, partition=one, key=f"{CLOSING} {one}", value=_value(f"{CLOSING} {one}"), timestamp_ms=at_ms
        )
        for topic, count in partitions.items()
        for one in range(count)
    ]


def _value(key: str) -> bytes:
    texts = {name: key if name.endswith("_id") else CLOSING for name in _TEXTS}
    return json.dumps({**texts, "amount": 0, "page": f"/{CLOSING}"}).encode()


@dataclass(frozen=True, kw_only=True)
class Pace:
    """``rate`` records a second over a minute, whose last five seconds have ``burst`` times as many as the others.

    >>> pace = Pace(rate=60, burst=4)
    >>> pace.due_ms(0), pace.due_ms(60 * 60), pace.due_ms(2 * 60 * 60)
    (0, 60000, 120000)
    >>> [sum(start <= pace.due_ms(number) < start + 1_000 for number in range(60 * 60)) for start in (10_000, 57_000)]
    [48, 192]
    """

    rate: float
    burst: float = 4.0

    def due_ms(self, index: int) -> int:
        """When the record ``index`` is due, from the first one on."""
        cycles, rest = divmod(index, self.rate * _CYCLE_S)
        calm_s = _CYCLE_S - _BURST_S
        calm_rate = self.rate * _CYCLE_S / (calm_s + self.burst * _BURST_S)
        in_burst = max(0.0, rest - calm_rate * calm_s)
        passed_s = (rest - in_burst) / calm_rate + in_burst / (calm_rate * self.burst)
        return round(1_000 * (cycles * _CYCLE_S + passed_s))
