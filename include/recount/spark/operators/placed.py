"""A record as panes see it, and records by time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from recount.core.windows import ClosingWindows

Window = tuple[int, int]
"""Start and end in milliseconds."""
Source = tuple[str, int]
"""A topic and a partition of it."""


class Placed(NamedTuple):
    """A record as panes see it; ``number`` counts up as records arrive. Sorted by time, log order, arrival.

    ``topic`` and ``partition`` are those among whose records it is judged. None: by itself, for it is derived, or was
    held back, so that others of its partition may have overtaken it.
    """

    timestamp_ms: int
    order: str
    number: int
    topic: str | None = None
    partition: int | None = None
    judged_ms: int | None = None
    revision: int = 0

    @property
    def source(self) -> Source | None:
        """Where the records lie among which it is judged."""
        return None if self.topic is None or self.partition is None else (self.topic, self.partition)

    def is_late(self, windows: ClosingWindows, end_ms: int) -> bool:
        """Whether a window that ends at ``end_ms`` was closed when the record came."""
        return self.judged_ms is not None and windows.is_closed(end_ms, self.judged_ms)


@dataclass(kw_only=True)
class Placement:
    """What a record did; ``accepted`` is false where it is late for all windows that could ever hold it."""

    accepted: bool = True
    changed: list[Window] = field(default_factory=list)
    withdrawn: list[Window] = field(default_factory=list)
    late: list[Window] = field(default_factory=list)


class ByTime:
    """Records by time, and those of them between two times."""

    def __init__(self, records: Iterable[Placed]) -> None:
        self.all = sorted(records)
        self._times = [one.timestamp_ms for one in self.all]

    def add(self, record: Placed) -> int:
        """Put it where its time says; how many are before it."""
        at = bisect_right(self.all, record)
        self.all.insert(at, record)
        insort(self._times, record.timestamp_ms)
        return at

    def between(self, start_ms: int, end_ms: int) -> list[Placed]:
        """Those with ``start_ms <= time <= end_ms``."""
        first = bisect_left(self._times, start_ms)
        return self.all[first : bisect_right(self._times, end_ms, lo=first)]
