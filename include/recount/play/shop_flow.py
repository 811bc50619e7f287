"""The records of the shop in the order in which they are produced, with all that goes wrong in a real one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal
from zlib import crc32

from recount.core.durations import milliseconds
from recount.play.arrival import Arrival, Pace
from recount.play.shop_kinds import PEOPLE, SHARES, SKEW, shop_kinds

Fault = Literal["late", "bad", "tombstone"]
TABLES = ("customers", "users", "user-profiles")
"""The source topics that are compacted: a null value deletes."""
_NO_TEXT = b"\xff\xfe"
_NO_RECORD = (b'{"truncated in tr', b"[]", _NO_TEXT)
_LATE_MS = milliseconds("10 min"), milliseconds("25 min")


@dataclass(frozen=True, kw_only=True)
class Planted:
    """``arrival`` is to be sent ``due_ms`` after the first one; ``fault`` says what is wrong with it."""

    due_ms: int
    arrival: Arrival
    fault: Fault | None = None


@dataclass(frozen=True, kw_only=True)
class ShopFlow:
    """Records of the topics that ``partitions`` has, without an end; the same fields give the same records.

    A record is as old as ``jitter_ms`` when it is due, but one in ``late_every`` is 10 to 25 minutes old: too late for
    windows of five minutes. One in ``bad_every`` cannot be decoded. One in ``tombstone_every`` of a table's records has
    a null value. 0 plants none. A record has the first of these faults that it is due to have.
    """

    partitions: Mapping[str, int]
    begin_ms: int
    pace: Pace
    seed: int = 20
    people: int = PEOPLE
    skew: float = SKEW
    jitter_ms: int = milliseconds("4 s")
    # primes to the length of the cycle of topics, so that each topic gets its share of them
    late_every: int = 101
    bad_every: int = 151
    tombstone_every: int = 7
    shares: Mapping[str, int] = field(default_factory=lambda: SHARES)

    def __iter__(self) -> Iterator[Planted]:
        dice = random.Random(self.seed)  # noqa: S311  (a repeatable flow, not a secret)
        cycle = [topic for topic, share in self.shares.items() if topic in self.partitions for _ in range(share)]
        dice.shuffle(cycle)
        kinds, made, index = shop_kinds(self.people, self.skew), dict.fromkeys(cycle, 0), 0
        while True:
            topic = cycle[index % len(cycle)]
            fault, due_ms = self._fault(topic, index, made[topic]), self.pace.due_ms(index)
            key, value = kinds[topic].made(dice, made[topic])
            age_ms = dice.randrange(*_LATE_MS) if fault == "late" else int(self.jitter_ms * dice.random() ** 3)
            arrival = Arrival(
                topic=topic,
                partition=crc32(key.encode()) % self.partitions[topic],
                key=key,
                value=_spoilt(fault, value, index, is_plain=kinds[topic].is_plain),
                timestamp_ms=self.begin_ms + due_ms - age_ms,
            )
            yield Planted(due_ms=due_ms, arrival=arrival, fault=fault)
            made[topic] += 1
            index += 1

    def _fault(self, topic: str, index: int, number: int) -> Fault | None:
        if _is_last_of(self.bad_every, index):
            return "bad"
        if topic in TABLES and _is_last_of(self.tombstone_every, number):
            return "tombstone"
        return "late" if _is_last_of(self.late_every, index) else None


def _is_last_of(every: int, number: int) -> bool:
    return every > 0 and number % every == every - 1


def _spoilt(fault: Fault | None, value: bytes, index: int, *, is_plain: bool) -> bytes | None:
    match fault:
        case "tombstone":
            return None
        case "bad":
            return _NO_TEXT if is_plain else _NO_RECORD[index % len(_NO_RECORD)]
    return value
