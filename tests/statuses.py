"""Statuses of streams for tests in which only some of what a status says matters."""

from __future__ import annotations

from typing import Any

from recount.kafka.status import StreamStatus


def a_status(**said: Any) -> StreamStatus:
    """A driver that runs; all that it says besides can be ``said``."""
    always = {
        "stream": "revenue-by-region",
        "driver_id": "driver",
        "lease_epoch": 1,
        "host": "localhost",
        "pid": 1,
        "state": "running",
        "started_at_ms": 1_000,
        "heartbeat_ms": 2_000,
    }
    return StreamStatus(**{**always, **said})
