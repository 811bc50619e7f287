"""Asking again and again until there is an answer, of what somebody else does in his own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Found = TypeVar("Found")


def first_answer(
    look: Callable[[], Found | None],
    timeout_s: float,
    late: Exception,
    *,
    poll_s: float,
    passing: tuple[type[Exception], ...] = (),
) -> Found:
    """The first answer of ``look`` that is not None, asked every ``poll_s``; raises ``late`` where none comes in time.

    What ``look`` raises goes on to the caller, but for ``passing`` errors: after one of them it is asked again.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(*passing):
            found = look()
            if found is not None:
                return found
        time.sleep(poll_s)
    raise late
