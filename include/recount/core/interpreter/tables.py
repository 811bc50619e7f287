"""Tables: the latest row of each key, and, where versioned, every version of it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from recount.core.changelogs import TableAggregate, TableFilter, ToTable
from recount.core.evaluation import evaluate
from recount.core.interpreter.aggregating import folded_as_declared, results
from recount.core.interpreter.operator import Operator
from recount.core.interpreter.record import Record, Row
from recount.core.nodes import WINDOW_END, WINDOW_START


@dataclass
class TableState:
    """The rows of one table as an operator has read them."""

    versioned: bool
    _versions: dict[Any, list[Record]] = field(default_factory=dict)

    def apply(self, key: Any, change: Record) -> bool:
        """Take a change in, and say whether it is now the latest of its key.

        Unversioned, the change that is read last is the latest; versioned, the one with the largest time, and of equal
        times the one with the higher offset.
        """
        if not self.versioned:
            self._versions[key] = [change]
            return True
        versions = self._versions.setdefault(key, [])
        insort(versions, change, key=lambda version: (version.timestamp_ms, version.order))
        return versions[-1] is change

    def current(self, key: Any) -> Record | None:
        """The latest row; None where there is none, or it was deleted."""
        return _row(self._versions.get(key, [])[-1:])

    def as_of(self, key: Any, timestamp_ms: int) -> Record | None:
        """The row as of ``timestamp_ms``: the latest version that is not younger; unversioned, the current row."""
        if not self.versioned:
            return self.current(key)
        return _row([version for version in self._versions.get(key, []) if version.timestamp_ms <= timestamp_ms][-1:])

    def rows(self) -> list[Row]:
        """All rows as they are now."""
        return [record.row for key in self._versions if (record := self.current(key)) is not None]


def blank(row: Row, key: str) -> Row:
    """``row`` as its deletion has it: all but the key and a window's bounds are null."""
    return {name: value if name in (key, WINDOW_START, WINDOW_END) else None for name, value in row.items()}


def _row(versions: list[Record]) -> Record | None:
    return versions[0] if versions and not versions[0].is_null else None


@dataclass(kw_only=True)
class ToTableOperator(Operator):
    """Turns records into changes of a table, and marks the changes that came too late to matter now."""

    node: ToTable
    _state: TableState = field(init=False)
    _revisions: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._state = TableState(self.node.versioned)

    def receive(self, record: Record, port: int) -> Iterable[Record]:  # noqa: ARG002 - it has one input
        """A null key names no row."""
        key = record.row[self.node.key]
        if key is None:
            return self.drop(record, "null key")
        self.journal.note(record.entry, "counted")
        latest = self._state.apply(key, record)
        revision = self._revisions[key] = self._revisions.get(key, -1) + 1
        return (replace(record, superseded=not latest, revision=revision),)

    def rows(self) -> list[Row]:
        """The table as it is now."""
        return self._state.rows()


@dataclass(kw_only=True)
class TableFilterOperator(Operator):
    """Passes rows, deletes those that no longer pass; says nothing of rows that never did."""

    node: TableFilter
    _passed: set[Any] = field(default_factory=set)

    def receive(self, record: Record, port: int) -> Iterable[Record]:  # noqa: ARG002 - it has one input
        """Replace a row that does not pass by its deletion; where there is none to delete, it is history at most."""
        key = record.row[self.node.key]
        passes = not record.is_null and evaluate(self.node.predicate, record.row, self.node.fields) is True
        superseded = record.superseded or (not passes and key not in self._passed)
        if not superseded:
            (self._passed.add if passes else self._passed.discard)(key)
        row = record.row if passes else blank(record.row, self.node.key)
        return (replace(record, row=row, is_null=not passes, superseded=superseded),)


@dataclass(kw_only=True)
class TableAggregateOperator(Operator):
    """Groups of rows, each aggregated as it is now; a row that changes leaves its old group before it joins the new."""

    node: TableAggregate
    _groups: dict[Any, dict[Any, Record]] = field(default_factory=dict)
    _group_of: dict[Any, Any] = field(default_factory=dict)
    _times: dict[Any, int] = field(default_factory=dict)
    _revisions: dict[Any, int] = field(default_factory=dict)

    def receive(self, record: Record, port: int) -> Iterator[Record]:  # noqa: ARG002 - it has one input
        """Two updates where the group changes, one where the row changes within its group."""
        key = record.row[self.node.input.key]
        old = self._group_of.pop(key, None)
        new = None if record.is_null else evaluate(self.node.by, record.row)
        if old is not None:
            del self._groups[old][key]
            if old != new:
                yield self._update(old, record)
        if new is not None:
            self._groups.setdefault(new, {})[key] = record
            self._group_of[key] = new
            yield self._update(new, record)

    def _update(self, group: Any, cause: Record) -> Record:
        """The time of a group never goes back."""
        self._times[group] = max(cause.timestamp_ms, self._times.get(group, cause.timestamp_ms))
        self._revisions[group] = self._revisions.get(group, -1) + 1
        made = results(self.node.aggregates, self._groups[group].values(), about={self.node.key: group})
        folded = folded_as_declared(made, self.node.aggregates, self.node.fields)
        return Record(
            row={self.node.key: group, **folded},
            timestamp_ms=self._times[group],
            order=cause.order,
            entry=None,
            revision=self._revisions[group],
        )
