"""Orders like those of ``bench.flow``, tens of millions, made a million at a time so that they fit in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from confluent_kafka import Producer

from bench.flow import REGIONS, append, order
from recount.runtime.times import milliseconds

_START_MS = 1_767_225_600_000  # 2026-01-01, the edge of a window
_PART = 1_000_000
_PER_SECOND, _USERS = 1_000, 10_000
_LATE_EVERY = 1_000


@dataclass(frozen=True, kw_only=True)
class LongFlow:
    """``records`` orders in ``topic``, 1,000 a second of event time.

    Up to 3 s out of order; one in 1,000 is 10 minutes late. The same seed gives the same flow, byte for byte.
    """

    topic: str
    records: int
    seed: int = 20_261_121

    @property
    def on_time(self) -> int:
        """How many records are on time in windows of 5 minutes with a grace of a minute."""
        return self.records - self.records // _LATE_EVERY

    def produce(self, producer: Producer) -> None:
        """Append the whole flow to its topic."""
        for first in range(0, self.records, _PART):
            self._produce(producer, first, min(_PART, self.records - first))
        producer.flush()

    def _produce(self, producer: Producer, first: int, length: int) -> None:
        chance = np.random.default_rng((self.seed, first))
        index = np.arange(first, first + length, dtype=np.int64)
        late = np.where(index % _LATE_EVERY == _LATE_EVERY - 1, milliseconds("10 min"), 0)
        jitter = chance.integers(0, milliseconds("3 s"), length)
        # an hour in, so that the late ones of the beginning are late as well
        timestamp_ms = _START_MS + milliseconds("1 h") + index * 1_000 // _PER_SECOND - jitter - late
        user = chance.integers(0, _USERS, length)
        region = chance.integers(0, len(REGIONS), length)
        cents = chance.integers(1, 50_000, length)
        columns = (column.tolist() for column in (index, user, region, cents, timestamp_ms))
        for number, who, where, amount, time_ms in zip(*columns, strict=True):
            append(producer, self.topic, who, order(number, who, where, amount), time_ms)
