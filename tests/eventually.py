"""Waiting, with a limit, for what a cluster shows a moment after it was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen], expected: Seen, limit_s: float = 10.0) -> Seen:
    """What ``look`` returns: as soon as it is ``expected``, else at last.

    A Kafka transaction is acknowledged when its outcome is certain; its markers, which show it to read_committed
    readers, are written just after.
    """
    deadline = time.monotonic() + limit_s
    while (seen := look()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


def awaited(what: str, look: Callable[[], Seen], limit_s: float = 240.0, every_s: float = 0.5) -> Seen:
    """The first true answer of ``look``; fails naming ``what`` when there is none in time."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if answer := look():
            return answer
        time.sleep(every_s)
    raise AssertionError(f"{what}: not within {limit_s} s")
