"""The last record of every partition of a log: after it, no window before it waits for anything."""

from __future__ import annotations

import json
from collections.abc import Mapping

from recount.play.arrival import Arrival

CLOSING = "closing"
"""In every value of a last record."""
_TEXTS = (
    *("order_id", "customer_id", "user_id", "product", "region", "status", "payment_id", "method"),
    *("name", "tier", "txn_id", "location", "action"),
)


def last_records(partitions: Mapping[str, int], at_ms: int) -> list[Arrival]:
    """One of the time ``at_ms`` in each of the ``partitions`` of each topic; every topic of the shop can decode it.

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
