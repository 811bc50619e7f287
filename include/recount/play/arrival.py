"""A record, in the order in which it came to its topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What a producer sends: ``timestamp_ms`` is its event time, ``value`` None a null value."""

    topic: str
    partition: int
    key: str | None
    value: bytes | None
    timestamp_ms: int
