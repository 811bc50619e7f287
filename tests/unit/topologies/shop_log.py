"""A log of the shop's source topics: out of order, late, with ties, null keys, tombstones and bad records."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from recount.core.topology import Topology

PARTITIONS = 2
START_MS = 1_690_000_000_000
CLOSING_MS = START_MS + 5 * 86_400_000
"""When every window of the log is closed."""
CLOSING = "closing"
"""In every value of the last record of a partition, after which all time of the log has passed."""
TABLES = ("customers", "users", "user-profiles")
_SPAN_MS = 90 * 60_000


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A record, in the order in which it came to its topic."""

    topic: str
    partition: int
    key: str | None
    value: bytes | None
    timestamp_ms: int


def _order(dice: random.Random, number: int) -> Mapping[str, Any]:
    return {
        "order_id": f"o{dice.randrange(8)}",
        "customer_id": dice.choice(["ann", "bob", "eve", None]),
        "user_id": dice.choice(["ann", "bob", None]),
        "product": dice.choice(["tea", "mug", None]),
        "region": dice.choice(["EU", "US", None]),
        "amount": dice.choice([1, 99.99, 100, 100.01, "500.01", 9_000]),
        "status": f"s{number}",
    }


def _payment(dice: random.Random, number: int) -> Mapping[str, Any]:
    method = dice.choice(["card", "cash", None])
    return {"payment_id": f"p{number}", "order_id": f"o{dice.randrange(8)}", "amount": 2.5 * number, "method": method}


def _customer(dice: random.Random, number: int) -> Mapping[str, Any]:
    name = dice.choice(["ann", "bob", "kim"])
    return {"customer_id": name, "name": f"{name} {number}", "tier": dice.choice(["gold", None]), "credit_limit": 99.99}


def _user(dice: random.Random, number: int) -> Mapping[str, Any]:
    return {"user_id": dice.choice(["ann", "bob", "eve"]), "name": f"n{number}", "tier": "tin"}


def _view(dice: random.Random, number: int) -> Mapping[str, Any]:
    page = dice.choice(["/", "/Shop/Tea", "/shop?size=1", "/checkout", "?"])
    return {"user_id": dice.choice(["ann", "bob", "eve"]), "page": page}


def _action(dice: random.Random, number: int) -> Mapping[str, Any]:
    return {"user_id": dice.choice(["ann", "bob", "eve"]), "action": f"a{number}"}


def _transaction(dice: random.Random, number: int) -> Mapping[str, Any]:
    amount, location = dice.choice([1, 10_000, "10000.01"]), dice.choice(["Rome", "Oslo", None])
    return {"txn_id": f"t{number}", "user_id": dice.choice(["ann", "bob"]), "amount": amount, "location": location}


def _profile(dice: random.Random, number: int) -> Mapping[str, Any]:
    return {"user_id": dice.choice(["ann", "bob"]), "known_locations": dice.choice([["Rome"], [], None])}


def _text(dice: random.Random, number: int) -> str:
    return dice.choice(["one tea", "ünë", "", f"{number} mugs"])


_MAKERS: Mapping[str, tuple[str, Callable[[random.Random, int], Mapping[str, Any] | str]]] = {
    "orders": ("order_id", _order),
    "payments": ("order_id", _payment),
    "customers": ("customer_id", _customer),
    "users": ("user_id", _user),
    "page-views": ("user_id", _view),
    "click-events": ("", _view),
    "order-texts": ("", _text),
    "user-actions": ("user_id", _action),
    "transactions": ("", _transaction),
    "user-profiles": ("user_id", _profile),
}
"""By topic the field that is the key (none: a key of its own for every record) and what makes a value."""


def shop_log(topics: Iterable[str], seed: int, length: int = 60) -> list[Arrival]:
    """``length`` records of each of ``topics``, those of tables first, and a last one in every partition."""
    found = [record for topic in topics for record in _records(topic, random.Random(f"{seed} {topic}"), length)]
    dice = random.Random(seed)
    # most records come nearly in order, every fifth at any time
    came = {one: one.timestamp_ms + dice.randrange(40_000) if dice.random() < 0.8 else _any_time(dice) for one in found}
    found.sort(key=lambda one: came[one])
    return [*sorted(found, key=lambda one: one.topic not in TABLES), *closing(topics)]


def _any_time(dice: random.Random) -> int:
    return START_MS + dice.randrange(0, _SPAN_MS, 10_000)


def _records(topic: str, dice: random.Random, length: int) -> Iterator[Arrival]:
    name, make = _MAKERS[topic]
    for number in range(length):
        made = make(dice, number)
        key = f"c{number}" if isinstance(made, str) else made.get(name, f"c{number}")
        encoded = made if isinstance(made, str) else json.dumps(made)
        said = dice.random()
        value = encoded.encode() if said < 0.9 else None if said < 0.95 else b"\xff"
        at_ms = _any_time(dice)
        yield Arrival(
            topic=topic,
            partition=crc32(key.encode()) % PARTITIONS,
            key=key if dice.random() < 0.95 else None,
            value=value,
            timestamp_ms=at_ms,
        )


def closing(topics: Iterable[str]) -> list[Arrival]:
    """The last record of every partition."""
    value = dict.fromkeys(
        (
            *("order_id", "customer_id", "user_id", "product", "region", "status", "payment_id", "method"),
            *("name", "tier", "txn_id", "location", "action"),
        ),
        CLOSING,
    )
    text = json.dumps({**value, "amount": 0, "page": f"/{CLOSING}"}).encode()
    return [
        Arrival(topic=topic, partition=partition, key=f"{CLOSING} {partition}", value=text, timestamp_ms=CLOSING_MS)
        for topic in topics
        for partition in range(PARTITIONS)
    ]


def topics_of(topology: Topology) -> list[str]:
    """The source topics, those of tables first."""
    return [topic for layer in topology.layers for topic in layer]
