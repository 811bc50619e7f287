"""What travels between operators: a row, when it happened, and where in the log it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Partition = tuple[str, int]
"""A topic and a partition of it."""
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The place at which a record entered from the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def source(self) -> Partition:
        """The partition it was read from."""
        return self.topic, self.partition


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One record between two operators.

    ``row`` has every field of the operator it left, the key included. ``is_null``: the value is null (in a table: the
    key was deleted); then all fields but the key, and a window's bounds, mean nothing. ``order`` sorts records as the
    log does, by (topic, partition, offset). ``entry`` is where it entered; None for a derived record (a join's
    result, a window's), which is never late, because what made it was on time. ``stream_time_ms`` is by what it is
    judged further down, where an operator has held it back; None for any other, which the clock of the judging operator
    judges. ``revision`` counts the results of one key and window. ``superseded``: a change of a versioned table that is
    older than the key's latest one.
    """

    row: Row
    timestamp_ms: int
    order: tuple[Any, ...]
    entry: Entry | None
    stream_time_ms: int | None = None
    is_null: bool = False
    revision: int = 0
    superseded: bool = False

    def with_row(self, row: Row) -> Record:
        """The same record with other fields."""
        # each step of each record makes one: ``replace`` takes nearly twice as long
        return Record(
            row=row,
            timestamp_ms=self.timestamp_ms,
            order=self.order,
            entry=self.entry,
            stream_time_ms=self.stream_time_ms,
            is_null=self.is_null,
            revision=self.revision,
            superseded=self.superseded,
        )

    @property
    def source(self) -> Partition | None:
        """The partition among whose records it is judged.

        None for a record that is judged by itself: a derived one, and one that was held back, because others of its
        partition may have overtaken it.
        """
        return None if self.entry is None or self.stream_time_ms is not None else self.entry.source
