"""The last record of every partition of a log: after it, no window before it waits for anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain

from recount.play.arrival import Arrival

CLOSING = "closing"
"""In every value of a last record."""
_TEXTS = (
    *("order_id", "customer_id", "user_id", "product", "region", "status", "payment_id", "method"),
    *("name", "tier", "txn_id", "location", "action"),
)


def last_records(partitions: Mapping[str, int], at_ms: int) -> list[Arrival]:
    """One of the time ``at_ms`` in each of the ``partitions`` of each topic; every topic of the shop can decode it."""
    said = {**dict.fromkeys(_TEXTS, CLOSING), "amount": 0, "page": f"/{CLOSING}"}
    value = json.dumps(said).encode()
    return list(
        chain.from_iterable(
            (
                Arrival(topic=topic, partition=one, key=f"{CLOSING} {one}", value=value, timestamp_ms=at_ms)
                for one in range(count)
            )
            for topic, count in partitions.items()
        )
    )
