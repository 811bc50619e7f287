"""What the placing of one key's records needs to know of each, and what it says."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from recount.core.windows import ClosingWindows
from recount.recompute.graph.judging import STREAM_TIME
from recount.recompute.graph.rows import CARRIED, OFFSET, ORDER, PARTITION, TIME, TOPIC
from recount.recompute.rules.closing import overdue_ms

Order = tuple[Any, ...]


class Judged(NamedTuple):
    """A record: its event time, its place in the order of the log, and by what it is judged.

    ``source`` is the topic and partition among whose records it is judged; None if by itself, for it is derived, or was
    held back and comes in another order than the log's. ``stream_time_ms`` is that by which it is judged; None for a
    derived record: it is never late.
    """

    timestamp_ms: int
    order: Order
    source: tuple[str, int] | None = None
    stream_time_ms: int | None = None

    def is_late_for(self, windows: ClosingWindows, end_ms: int) -> bool:
        """Whether a window that ends at ``end_ms`` was closed when the record was read."""
        return self.stream_time_ms is not None and bool(overdue_ms(windows, end_ms, self.stream_time_ms) >= 0)


class Placed(NamedTuple):
    """The record ``number`` is in the window [start, end], or was too late for it."""

    number: int
    start: int
    end: int
    is_late: bool


def by_source(records: list[Judged]) -> list[list[int]]:
    """The records' numbers, one list for each ``source``, in the order of the log; without one, each by itself."""
    sources: dict[object, list[int]] = {}
    for index in sorted(range(len(records)), key=lambda number: records[number].order):
        sources.setdefault(records[index].source or index, []).append(index)
    return list(sources.values())


def judged_records(table: pa.Table) -> list[Judged]:
    """The records of ``table`` as a placing wants them."""
    columns = (TIME, ORDER, TOPIC, PARTITION, OFFSET, CARRIED, STREAM_TIME)
    return [
        Judged(
            at_ms, order_of(order), (topic, partition) if offset is not None and carried is None else None, reached_ms
        )
        for at_ms, order, topic, partition, offset, carried, reached_ms in zip(
            *(table.column(name).to_pylist() for name in columns), strict=True
        )
    ]


def order_of(steps: list[dict[str, object]]) -> tuple[object, ...]:
    """An ``ORDER`` as Python compares it."""
    return tuple(tuple(step.values()) for step in steps)


def turn_of(turn: dict[str, int] | None) -> tuple[int, ...]:
    """A ``TURN`` as Python compares it: before all others where there is none."""
    return () if turn is None else tuple(turn.values())
