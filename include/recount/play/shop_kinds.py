"""The records of the shop's ten source topics: who buys what, pays, looks and clicks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
