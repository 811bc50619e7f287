"""Event times in another unit than milliseconds, which would silently be times of January 1970 or of the far future."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from recount.core.ledger import PartitionProof
from recount.core.quantities import quantity

YEAR_MS = 366 * 86_400_000
YEAR_2000_MS = 946_684_800_000
UNITS_AHEAD = {"microseconds": 1_000, "nanoseconds": 1_000_000}
"""Units that make a time of the far future, and how many of each are a millisecond."""


def warnings_of_seconds(partitions: Iterable[PartitionProof]) -> dict[str, str]:
    """What to say of each topic that has records in ``partitions`` whose event times look like seconds."""
    records: Counter[str] = Counter()
    in_seconds: Counter[str] = Counter()
    for part in partitions:
        records[part.topic] += part.records
        in_seconds[part.topic] += part.in_seconds
    return {topic: _warning(topic, many, records[topic]) for topic, many in sorted(in_seconds.items()) if many}


def _warning(topic: str, in_seconds: int, records: int) -> str:
    return (
        f"event times of {topic} look like seconds: those of {in_seconds:,} of {quantity(records, 'record')}"
        f" ({in_seconds / records:.2%}) are in January 1970 as milliseconds since the epoch, which event times are,"
        " and after the year 2000 as seconds: let the producer write milliseconds"
    )


def unit_ahead(time_ms: int, record_ms: int) -> str:
    """The unit in which a time of the far future lies within a year of the record's own; empty where there is none.

    >>> unit_ahead(1_767_225_600_000_000, 1_767_225_600_000)
    'microseconds'
    """
    return next((unit for unit, many in UNITS_AHEAD.items() if abs(time_ms // many - record_ms) <= YEAR_MS), "")
