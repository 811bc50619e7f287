"""Records of all the shop's topics at a steady rate: of now, a few of them late or broken."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Producer

from recount.core.durations import milliseconds

SHARES: Mapping[str, int] = {
    "orders": 30,
    "page-views": 32,
    "payments": 12,
    "click-events": 10,
    "user-actions": 6,
    "transactions": 5,
    "order-texts": 3,
    "customers": 1,
    "users": 0,
    "user-profiles": 1,
}
"""Of a hundred records, by topic; a user for every fourth customer."""
_SLOTS_PER_S = 20
_USERS = 5_000
_LATE_EVERY, _LATE_MS = 1_000, milliseconds("10 min")
_BROKEN_EVERY = 10_000
_LOCATIONS = ("Rome", "Oslo", "Lima", "Pune")
_PAGES = ("/", "/Shop/Tea", "/shop/mugs?size=2", "/shop/shoes", "/checkout", "/about")


def _user(dice: random.Random) -> str:
    return f"u-{int(_USERS * dice.random() ** 2)}"


def _order(dice: random.Random, number: int) -> Mapping[str, Any]:
    return {
        "order_id": f"o-{number}",
        "customer_id": _user(dice),
        "user_id": _user(dice),
        "product": f"p-{int(300 * dice.random() ** 3)}",
        "region": dice.choice(["EU", "EU", "US", "APAC", None]),
        "amount": round(38 * dice.lognormvariate(0, 0.9), 2),
        "status": "new",
        "vip": number % 50 == 0,
    }


def _payment(dice: random.Random, number: int) -> Mapping[str, Any]:
    """Of one of the last orders."""
    order = int(number * SHARES["orders"] / SHARES["payments"]) - dice.randrange(200)
    method = dice.choice(["card", "card", "cash", None])
    return {"payment_id": f"y-{number}", "order_id": f"o-{max(0, order)}", "amount": 20.5, "method": method}


def _account(field: str) -> Callable[[random.Random, int], Mapping[str, Any]]:
    def made(dice: random.Random, number: int) -> Mapping[str, Any]:
        tier = dice.choice(["gold", "tin", None])
        return {field: f"u-{number % _USERS}", "name": f"name {number}", "tier": tier, "credit_limit": 99.5}

    return made


def _profile(dice: random.Random, number: int) -> Mapping[str, Any]:
    return {"user_id": f"u-{number % _USERS}", "known_locations": dice.sample(_LOCATIONS, 2)}


def _transaction(dice: random.Random, number: int) -> Mapping[str, Any]:
    amount = 12_000 if dice.random() < 0.01 else round(200 * dice.random(), 2)
    return {"txn_id": f"t-{number}", "user_id": _user(dice), "amount": amount, "location": dice.choice(_LOCATIONS)}


_MAKERS: Mapping[str, tuple[str, Callable[[random.Random, int], Mapping[str, Any]]]] = {
    "orders": ("order_id", _order),
    "payments": ("order_id", _payment),
    "customers": ("customer_id", _account("customer_id")),
    "users": ("user_id", _account("user_id")),
    "page-views": ("user_id", lambda dice, _: {"user_id": _user(dice), "page": dice.choice(_PAGES)}),
    "click-events": ("", lambda dice, _: {"user_id": _user(dice), "page": dice.choice(_PAGES)}),
    "user-actions": ("user_id", lambda dice, number: {"user_id": _user(dice), "action": f"a-{number % 9}"}),
    "transactions": ("txn_id", _transaction),
    "user-profiles": ("user_id", _profile),
    "order-texts": ("", lambda _, number: {"text": f"order {number}"}),
}
"""By topic the field that is the record's key (none: a key of its own) and what makes a value."""


class ShopSource(threading.Thread):
    """``per_second`` records of all topics together until the end; one in 1,000 is late, one in 10,000 broken.

    A context manager: started on entry, stopped on exit.
    """

    def __init__(self, producer: Producer, per_second: int, seed: int = 20) -> None:
        super().__init__(name="shop source", daemon=True)
        self._producer, self._per_second = producer, per_second
        self._dice = random.Random(seed)  # noqa: S311  (a repeatable flow, not a secret)
        self._cycle = [topic for topic, share in SHARES.items() for _ in range(share)]
        self._dice.shuffle(self._cycle)
        self._made = dict.fromkeys(SHARES, 0)
        self._over = threading.Event()
        self.sent = 0

    def __enter__(self) -> ShopSource:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """A slot of records twenty times a second."""
        begun_s, slot = time.monotonic(), 0
        while not self._over.wait(max(0.0, begun_s + slot / _SLOTS_PER_S - time.monotonic())):
            slot += 1
            while self.sent < slot * self._per_second // _SLOTS_PER_S:
                self._send(self._cycle[self.sent % len(self._cycle)])
                self.sent += 1
            self._producer.poll(0)
        self._producer.flush()

    def _send(self, topic: str) -> None:
        number = self._made[topic]
        self._made[topic] += 1
        if topic == "customers" and number % 4 == 0:
            topic = "users"
        field, make = _MAKERS[topic]
        made = make(self._dice, number)
        value = made["text"] if topic == "order-texts" else json.dumps(made)
        is_broken = self.sent % _BROKEN_EVERY == _BROKEN_EVERY - 1 and topic != "order-texts"
        is_late = self.sent % _LATE_EVERY == _LATE_EVERY - 1
        self._producer.produce(
            topic,
            key=str(made[field]) if field else f"k-{number}",
            value="{broken" if is_broken else value,
            timestamp=time.time_ns() // 1_000_000 - (_LATE_MS if is_late else 0),
        )
