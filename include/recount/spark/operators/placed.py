"""A record as panes see it, and records by time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from recount.core.windows import ClosingWindows

Window = tuple[int, int]
"""Start and end in milliseconds."""
Source = tuple[str, int]
"""A topic and a partition of it."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A record as panes see it; ``number`` counts up as records arrive. Sorted by time, log order, arrival.

    ``source`` is the partition among whose records it is judged. None: by itself, for it is derived, or was held back,
    so that others of its partition may have overtaken it.
    """

    timestamp_ms: int
    order: str
    number: int
    source: Source | None = None
    judged_ms: int | None = None
    revision: int = 0

    @property
    def place(self) -> tuple[int, str, int]:
        """By what records are sorted."""
        return self.timestamp_ms, self.order, self.number

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
        self.all = sorted(records, key=by_place)

    def add(self, record: Placed) -> int:
        """Put it where its time says; how many are before it."""
        at = bisect_right(self.all, record.place, key=by_place)
        self.all.insert(at, record)
        return at

    def between(self, start_ms: int, end_ms: int) -> list[Placed]:
        """Those with ``start_ms <= time <= end_ms``."""
        first = bisect_left(self.all, start_ms, key=_time)
        return self.all[first : bisect_right(self.all, end_ms, lo=first, key=_time)]

    def within(self, start_ms: int, end_ms: int) -> Iterator[Placed]:
        """The same one by one, for who needs the first few only."""
        for at in range(bisect_left(self.all, start_ms, key=_time), len(self.all)):
            if self.all[at].timestamp_ms > end_ms:
                return
            yield self.all[at]


def by_place(record: Placed) -> tuple[int, str, int]:
    """The sort key of records by time."""
    return record.place


def _time(record: Placed) -> int:
    return record.timestamp_ms
