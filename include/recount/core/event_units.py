"""Event times in another unit than milliseconds, which would silently be times of January 1970 or of the far future."""

from __future__ import annotations

from recount.core.instants import told_time

YEAR_MS = 366 * 86_400_000
_YEAR_2000_MS = 946_684_800_000
UNITS_AHEAD = {"microseconds": 1_000, "nanoseconds": 1_000_000}
"""Units that make a time of the far future, and how many of each are a millisecond."""


def are_seconds(time_ms: int | None, now_ms: int) -> bool:
    """Whether a time is one of January 1970, and as seconds one between the year 2000 and a year from ``now_ms``.

    >>> are_seconds(1_767_225_600, 1_767_225_600_000), are_seconds(60_000, 1_767_225_600_000)
    (True, False)
    """
    return time_ms is not None and _YEAR_2000_MS <= time_ms * 1_000 <= now_ms + YEAR_MS


def warning_of_seconds(topic: str, time_ms: int) -> str:
    """What to say of ``topic``, which has the event time ``time_ms``, that ``are_seconds``."""
    return (
        f"event times of {topic} look like seconds: {time_ms:,} is {told_time(time_ms)} as milliseconds since the"
        f" epoch, which event times are, and {told_time(time_ms * 1_000)} as seconds: let the producer write"
        " milliseconds"
    )


def unit_ahead(time_ms: int, record_ms: int) -> str:
    """The unit in which a time of the far future lies within a year of the record's own; empty where there is none.

    >>> unit_ahead(1_767_225_600_000_000, 1_767_225_600_000)
    'microseconds'
    """
    return next((unit for unit, many in UNITS_AHEAD.items() if abs(time_ms // many - record_ms) <= YEAR_MS), "")
