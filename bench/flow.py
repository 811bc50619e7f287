"""The seeded flow of orders that every contender reads, and what an exact answer to it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from recount.runtime.times import milliseconds

PARTITIONS = 4
REGIONS = ("EU", "US", "APAC", "LATAM", "MEA", "ANZ", None)
WINDOW_MS = milliseconds("5 min")
_START_MS = 1_767_225_600_000  # 2026-01-01, the edge of a window

Longs = npt.NDArray[np.int64]


class SeededFlow(Protocol):
    """What contenders read: ``records`` in all ``topics`` together, of which ``topic`` is the first."""

    @property
    def topic(self) -> str:
        """The topic of the orders."""

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics."""

    @property
    def records(self) -> int:
        """How many records there are."""

    def produce(self, producer: Producer) -> None:
        """Append the whole flow to its topics."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """``records`` orders of about 100 bytes in ``topic``, keyed by user, ``per_second`` of them a second of event time.

    Up to 3 s out of order; one in ``late_every`` (0: none) is 10 minutes late. Partition 0 is ``lag_ms`` behind the
    others: what it holds at an offset is as much older. With ``beats`` the flow ends with so many seconds in which a
    user of its own orders once a second in each partition and nobody else does, so that all other sessions end. The
    same seed gives the same flow, byte for byte.
    """

    topic: str
    records: int
    users: int = 10_000
    per_second: int = 1_000
    late_every: int = 1_000
    lag_ms: int = 0
    beats: int = 0
    seed: int = 20_261_121

    @property
    def topics(self) -> tuple[str, ...]:
        """The one topic."""
        return (self.topic,)

    @cached_property
    def user(self) -> Longs:
        """Who ordered; the user determines the partition."""
        user = self._random(1).integers(0, self.users, self.records)
        beating = np.arange(self.beats * PARTITIONS)
        user[len(user) - len(beating) :] = self.users + beating % PARTITIONS
        return user

    @property
    def partition(self) -> Longs:
        """Where each record lies."""
        return self.user % PARTITIONS

    @cached_property
    def timestamp_ms(self) -> Longs:
        """The event times, in the order in which the records are produced."""
        index = np.arange(self.records, dtype=np.int64)
        on_schedule = _START_MS + milliseconds("1 h") + index * 1_000 // self.per_second
        jitter = self._random(2).integers(0, milliseconds("3 s"), self.records)
        every = self.late_every or self.records + 1
        late = np.where(index % every == every - 1, milliseconds("10 min"), 0)
        times = on_schedule - jitter - late - np.where(self.partition == 0, self.lag_ms, 0)
        beating = np.arange(self.beats * PARTITIONS)
        times[len(times) - len(beating) :] = on_schedule[-1] + (1 + beating // PARTITIONS) * milliseconds("1 s")
        return times

    @cached_property
    def stream_time_ms(self) -> Longs:
        """The stream time of each record's own partition at its offset."""
        times = self.timestamp_ms
        reached = np.empty_like(times)
        for partition in range(PARTITIONS):
            mine = self.partition == partition
            reached[mine] = np.maximum.accumulate(times[mine])
        return reached

    def on_time(self, grace_ms: int) -> int:
        """How many records are on time by the stream time of their own partition, in tumbling windows."""
        window_end = self.timestamp_ms - self.timestamp_ms % WINDOW_MS + WINDOW_MS
        return int(np.count_nonzero(window_end + grace_ms > self.stream_time_ms))

    def produce(self, producer: Producer) -> None:
        """Append the whole flow to its topic."""
        for user, timestamp_ms, value in self.rows():
            append(producer, self.topic, user, value, timestamp_ms)
        producer.flush()

    def rows(self) -> Iterator[tuple[int, int, bytes]]:
        """User, event time and value of each record, in the order in which they are produced."""
        region = self._random(3).integers(0, len(REGIONS), self.records)
        cents = self._random(4).integers(1, 50_000, self.records)
        columns = (self.user, self.timestamp_ms, region, cents)
        for index, (user, timestamp_ms, where, amount) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            yield user, timestamp_ms, order(index, user, where, amount)

    def _random(self, column: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, column))


def order(index: int, user: int, region: int, cents: int) -> bytes:
    """The value of one record: compact JSON."""
    name = REGIONS[region]
    where = "null" if name is None else f'"{name}"'
    return (
        f'{{"order_id":"{index:010d}","user_id":"user-{user}","region":{where},'
        f'"amount":{cents // 100}.{cents % 100:02d},"status":"new"}}'
    ).encode()


def append(producer: Producer, topic: str, user: int, value: bytes, timestamp_ms: int) -> None:
    """Produce one record to its user's partition; waits while the producer's queue is full."""
    send(producer, topic, f"user-{user}", user % PARTITIONS, value, timestamp_ms)


def send(producer: Producer, topic: str, key: str, partition: int, value: bytes, timestamp_ms: int) -> None:
    """Produce one record; waits while the producer's queue is full."""
    while True:
        try:
            producer.produce(topic, value, key=key, partition=partition, timestamp=timestamp_ms)
            return
        except BufferError:
            producer.poll(0.05)
