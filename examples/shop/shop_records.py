"""Records as they come to their topics: one of them, those that come last, and when each is due.

The records of the shop's ten source topics: who buys what, pays, looks and clicks.

The records of the shop in the order in which they are produced, with all that goes wrong in a real one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from zlib import crc32

from recount.runtime.times import milliseconds

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


Draw = Callable[[random.Random, int], Any]

"""A value of a field, from the dice and the number of the record in its topic."""


@dataclass(frozen=True, kw_only=True)
class RecordKind:
    """``fields`` are drawn in their order. ``key`` names the one that is the record's key; None: each has its own.

    ``is_plain``: the value is the text of the first field, and no JSON.

    >>> pets = RecordKind(key="name", fields={"name": numbered("cat-"), "colour": one_of("red", "red")})
    >>> pets.made(random.Random(1), 7)
    ('cat-7', b'{"name": "cat-7", "colour": "red"}')
    """

    fields: Mapping[str, Draw]
    key: str | None = None
    is_plain: bool = False

    def made(self, dice: random.Random, number: int) -> tuple[str, bytes]:
        """Key and value of the record ``number`` of a topic."""
        drawn = {name: draw(dice, number) for name, draw in self.fields.items()}
        key = f"c{number}" if self.key is None else str(drawn[self.key])
        value = str(next(iter(drawn.values()))) if self.is_plain else json.dumps(drawn)
        return key, value.encode()


def numbered(prefix: str) -> Draw:
    """``prefix`` and the number of the record."""
    return lambda _, number: f"{prefix}{number}"


def one_of(*values: Any) -> Draw:
    """Any of ``values``, as likely as another."""
    return lambda dice, _: dice.choice(values)


SHARES: Mapping[str, int] = {
    "orders": 29,
    "page-views": 32,
    "payments": 12,
    "click-events": 10,
    "user-actions": 6,
    "transactions": 5,
    "order-texts": 3,
    "customers": 1,
    "users": 1,
    "user-profiles": 1,
}

"""Of a hundred records, by topic."""

PEOPLE, SKEW = 5_000, 2.0

_PRODUCTS = 300

_MEDIAN_AMOUNT, _AMOUNT_SPREAD = 38.0, 0.9

_ORDERED_AGAIN_EVERY = 50

_UNPAID_ORDERS = 200

_LOCATIONS = ("Rome", "Oslo", "Lima", "Pune")

_PAGES = ("/", "/Shop/Tea", "/shop/mugs?size=2", "/shop/shoes", "/checkout", "/about")


def shop_kinds(people: int = PEOPLE, skew: float = SKEW) -> Mapping[str, RecordKind]:
    """By topic; ``people`` buy and look: with ``skew`` 1 all as often, with more a few of them most of the time."""

    def person(dice: random.Random, _: int) -> str:
        return f"u-{int(people * dice.random() ** skew)}"

    account = {"name": numbered("name "), "tier": one_of("gold", "tin", None)}
    return {
        "orders": RecordKind(
            key="order_id",
            fields={
                "order_id": _order_id,
                "customer_id": person,
                "user_id": person,
                "product": lambda dice, _: f"p-{int(_PRODUCTS * dice.random() ** 3)}",
                "region": one_of("EU", "EU", "US", "APAC", None),
                "amount": lambda dice, _: round(_MEDIAN_AMOUNT * dice.lognormvariate(0, _AMOUNT_SPREAD), 2),
                "status": one_of("new"),
                "vip": lambda _, number: number % 50 == 0,
            },
        ),
        "payments": RecordKind(
            key="order_id",
            fields={
                "payment_id": numbered("y-"),
                "order_id": _paid_order,
                "amount": one_of(20.5),
                "method": one_of("card", "card", "cash", None),
            },
        ),
        "customers": RecordKind(
            key="customer_id", fields={"customer_id": person, **account, "credit_limit": one_of(99.5)}
        ),
        "users": RecordKind(key="user_id", fields={"user_id": person, **account}),
        "page-views": RecordKind(key="user_id", fields={"user_id": person, "page": one_of(*_PAGES)}),
        "click-events": RecordKind(fields={"user_id": person, "page": one_of(*_PAGES)}),
        "user-actions": RecordKind(
            key="user_id", fields={"user_id": person, "action": lambda _, number: f"a-{number % 9}"}
        ),
        "transactions": RecordKind(
            key="txn_id",
            fields={
                "txn_id": numbered("t-"),
                "user_id": person,
                "amount": _transferred,
                "location": one_of(*_LOCATIONS),
            },
        ),
        "user-profiles": RecordKind(
            key="user_id", fields={"user_id": person, "known_locations": lambda dice, _: dice.sample(_LOCATIONS, 2)}
        ),
        "order-texts": RecordKind(is_plain=True, fields={"text": numbered("order ")}),
    }


def _order_id(_: random.Random, number: int) -> str:
    """Some are sent twice."""
    return f"o-{number - (number % _ORDERED_AGAIN_EVERY == _ORDERED_AGAIN_EVERY - 1)}"


def _paid_order(dice: random.Random, number: int) -> str:
    """One of the last orders."""
    ordered = int(number * SHARES["orders"] / SHARES["payments"])
    return f"o-{max(0, ordered - dice.randrange(_UNPAID_ORDERS))}"


def _transferred(dice: random.Random, _: int) -> float:
    """One in a hundred is high."""
    return 12_000 if dice.random() < 0.01 else round(200 * dice.random(), 2)


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
