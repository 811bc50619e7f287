"""A log of the shop's source topics for tests: every value at a boundary, ties, null keys, tombstones, bad records."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

from examples.shop.shop_records import CLOSING, TABLES, Arrival, Draw, RecordKind, last_records, numbered, one_of

from recount.declare.topology import Topology

__all__ = ["CLOSING", "TABLES", "Arrival"]

PARTITIONS = 2
START_MS = 1_690_000_000_000
CLOSING_MS = START_MS + 5 * 86_400_000
"""When every window of the log is closed."""
_SPAN_MS = 90 * 60_000
_order_id: Draw = lambda dice, _: f"o{dice.randrange(8)}"  # noqa: E731
_page = one_of("/", "/Shop/Tea", "/shop?size=1", "/checkout", "?")
_user = one_of("ann", "bob", "eve")

_KINDS: Mapping[str, RecordKind] = {
    "orders": RecordKind(
        key="order_id",
        fields={
            "order_id": _order_id,
            "customer_id": one_of("ann", "bob", "eve", None),
            "user_id": one_of("ann", "bob", None),
            "product": one_of("tea", "mug", None),
            "region": one_of("EU", "US", None),
            "amount": one_of(1, 99.99, 100, 100.01, "500.01", 9_000),
            "status": numbered("s"),
        },
    ),
    "payments": RecordKind(
        key="order_id",
        fields={
            "method": one_of("card", "cash", None),
            "payment_id": numbered("p"),
            "order_id": _order_id,
            "amount": lambda _, number: 2.5 * number,
        },
    ),
    "customers": RecordKind(
        key="customer_id",
        fields={
            "customer_id": one_of("ann", "bob", "kim"),
            "name": numbered("n"),
            "tier": one_of("gold", None),
            "credit_limit": lambda *_: 99.99,
        },
    ),
    "users": RecordKind(key="user_id", fields={"user_id": _user, "name": numbered("n"), "tier": lambda *_: "tin"}),
    "page-views": RecordKind(key="user_id", fields={"page": _page, "user_id": _user}),
    "click-events": RecordKind(fields={"page": _page, "user_id": _user}),
    "order-texts": RecordKind(
        is_plain=True, fields={"text": lambda dice, number: dice.choice(["one tea", "ünë", "", f"{number} mugs"])}
    ),
    "user-actions": RecordKind(key="user_id", fields={"user_id": _user, "action": numbered("a")}),
    "transactions": RecordKind(
        fields={
            "amount": one_of(1, 10_000, "10000.01"),
            "location": one_of("Rome", "Oslo", None),
            "txn_id": numbered("t"),
            "user_id": one_of("ann", "bob"),
        }
    ),
    "user-profiles": RecordKind(
        key="user_id", fields={"user_id": one_of("ann", "bob"), "known_locations": one_of(["Rome"], [], None)}
    ),
}


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
    for number in range(length):
        key, encoded = _KINDS[topic].made(dice, number)
        said = dice.random()
        value = encoded if said < 0.9 else None if said < 0.95 else b"\xff"
        at_ms = _any_time(dice)
        yield Arrival(
            topic=topic,
            partition=crc32(key.encode()) % PARTITIONS,
            # a broker takes no record without a key for a compacted topic, nor the others that are sent with it
            key=key if dice.random() < 0.95 or topic in TABLES else None,
            value=value,
            timestamp_ms=at_ms,
        )


def closing(topics: Iterable[str], partitions: int = PARTITIONS) -> list[Arrival]:
    """The last record of every partition."""
    return last_records(dict.fromkeys(topics, partitions), CLOSING_MS)


def topics_of(topology: Topology) -> list[str]:
    """The source topics, those of tables first."""
    return [topic for layer in topology.layers for topic in layer]
