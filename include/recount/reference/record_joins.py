"""Tables, and joins of streams with streams, of streams with tables, and of tables with tables.

A table is the latest row of each key, and, where versioned, every version of it.
"""

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from recount.declare.evaluation import evaluate
from recount.declare.operators.joins import Join, StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.operators.tables import TableAggregate, TableFilter, ToTable, is_versioned
from recount.reference.record_aggregates import folded_as_declared, results
from recount.reference.record_clock import Clock, Operator
from recount.reference.records import LateRecord, Record, Row

LEFT, RIGHT = 0, 1


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
        return _newest_row(self._versions.get(key, [])[-1:])

    def as_of(self, key: Any, timestamp_ms: int) -> Record | None:
        """The row as of ``timestamp_ms``: the latest version that is not younger; unversioned, the current row."""
        if not self.versioned:
            return self.current(key)
        return _newest_row(
            [version for version in self._versions.get(key, []) if version.timestamp_ms <= timestamp_ms][-1:]
        )

    def rows(self) -> list[Row]:
        return [record.row for key in self._versions if (record := self.current(key)) is not None]


def blank(row: Row, key: str) -> Row:
    """``row`` as its deletion has it: all but the key and a window's bounds are null."""
    return {name: value if name in (key, WINDOW_START, WINDOW_END) else None for name, value in row.items()}


def _newest_row(versions: list[Record]) -> Record | None:
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


def _row(node: Join, key: Any, left: Record | None, right: Record | None) -> Row:
    rows = [record.row for record in (right, left) if record is not None]
    known = {name: value for row in rows for name, value in row.items() if name in node.fields}
    return {**dict.fromkeys(node.fields), **known, node.key: key}


@dataclass(kw_only=True)
class StreamStreamJoinOperator(Operator):
    """Remembers both streams; a record pairs with what the other side has sent, then waits for what it will send."""

    node: StreamStreamJoin
    _sides: tuple[dict[Any, list[Record]], dict[Any, list[Record]]] = field(default_factory=lambda: ({}, {}))
    _alone: list[tuple[Record, int]] = field(default_factory=list)

    def receive(self, record: Record, port: int) -> Iterable[Record]:
        """Null values are dropped; a null key has no partner, so that on an outer side it leaves alone at once."""
        key = record.row[(self.node.left, self.node.right)[port].key]
        if record.is_null:
            return self.drop(record, "null value")
        if key is None:
            if not self._keeps_alone(port):
                return self.drop(record, "null key")
            self.clock.refuse(record.entry)
            self.journal.note(record.entry, "counted")
            return (self._joined(key, record, None, port),)
        if self._is_late(record, key, port):
            return self.drop(record, "late")
        self.journal.note(record.entry, "counted")
        return self._paired(key, record, port)

    def _paired(self, key: Any, record: Record, port: int) -> list[Record]:
        others = self._sides[1 - port].get(key, [])
        partners = [other for other in others if self._match(record, other, port)]
        self._sides[port].setdefault(key, []).append(record)
        paired = {id(partner) for partner in partners}
        self._alone = [(waiting, side) for waiting, side in self._alone if id(waiting) not in paired]
        if not partners and self._keeps_alone(port):
            self._alone.append((record, port))
        partners.sort(key=lambda partner: (partner.timestamp_ms, partner.order))
        return [self._joined(key, record, partner, port) for partner in partners]

    def on_time(self) -> Iterator[Record]:
        """Records that no partner can reach on time any more, by time, right before left, key."""
        frontier_ms = self.clock.frontier_ms
        if frontier_ms is None:
            return
        unreachable_ms = frontier_ms - self.node.delay_ms
        due = [one for one in self._alone if one[0].timestamp_ms < unreachable_ms]
        self._alone = [one for one in self._alone if one[0].timestamp_ms >= unreachable_ms]
        for record, port in sorted(due, key=lambda one: (one[0].timestamp_ms, -one[1], str(self._key(*one)))):
            yield self._joined(self._key(record, port), record, None, port)

    def _key(self, record: Record, port: int) -> Any:
        return record.row[(self.node.left, self.node.right)[port].key]

    def _keeps_alone(self, port: int) -> bool:
        return self.node.kind == "outer" or (self.node.kind == "left" and port == LEFT)

    def _match(self, record: Record, other: Record, port: int) -> bool:
        left, right = (record, other) if port == LEFT else (other, record)
        return -self.node.before_ms <= right.timestamp_ms - left.timestamp_ms <= self.node.after_ms

    def _is_late(self, record: Record, key: Any, port: int) -> bool:
        """Later than any partner would be waited for."""
        bound_ms = self.node.after_ms if port == LEFT else self.node.before_ms
        return self.is_late(record, key, bound_ms + self.node.grace_ms)

    def _joined(self, key: Any, record: Record, partner: Record | None, port: int) -> Record:
        left, right = (record, partner) if port == LEFT else (partner, record)
        both = [one for one in (left, right) if one is not None]
        return Record(
            row=_row(self.node, key, left, right),
            timestamp_ms=max(one.timestamp_ms for one in both),
            order=tuple(part for one in both for part in one.order),
            entry=None,
        )


class _Asking(NamedTuple):
    """A record, and as of when it looks its row up."""

    record: Record
    as_of_ms: int


@dataclass(kw_only=True)
class StreamTableJoinOperator(Operator):
    """Looks each record up in the table as it has been read; with a grace, only when that has come far enough in time.

    As of the event's time every change is kept as a version for good, of whatever kind the table is: a history only
    bounds which are asked for. The record stays the log's own, and keeps its place. Whether one had to wait depends on
    how far the table was read: with a grace all count as held back, and are judged further down by the stream time that
    they found here. ``frontier`` is the clock that counts for the history beside the record's own partition.
    """

    node: StreamTableJoin
    table_clock: Clock
    frontier: Clock
    _table: TableState = field(init=False)
    _waiting: list[_Asking] = field(default_factory=list)
    _passed_ms: int | None = None

    def __post_init__(self) -> None:
        self._table = TableState(versioned=self.node.as_of == "event")

    def receive(self, record: Record, port: int) -> Iterable[Record]:
        """A change of the table makes no result; a null value of the stream is dropped."""
        if port == RIGHT:
            self._table.apply(record.row[self.node.right.key], record)
            if record.entry is not None:
                self.table_clock.observe(record.entry)
            return ()
        if record.is_null:
            return self.drop(record, "null value")
        as_of_ms = self._as_of_ms(record)
        if self.node.grace_ms is None:
            return self._looked_up(_Asking(record, as_of_ms))
        asking = _Asking(self.held_back(record), as_of_ms)
        if self._table_is_past(asking, self.node.grace_ms):
            return self._looked_up(asking)
        self._waiting.append(asking)
        self.journal.note(record.entry, "waiting")
        return ()

    def on_time(self) -> Iterator[Record]:
        """The records that the table has reached, by time."""
        grace_ms = self.node.grace_ms
        if grace_ms is not None:
            due = [one for one in self._waiting if self._table_is_past(one, grace_ms)]
            self._waiting = [one for one in self._waiting if not self._table_is_past(one, grace_ms)]
            for one in sorted(due, key=lambda one: (one.record.timestamp_ms, one.record.order)):
                yield from self._looked_up(one)

    def end_batch(self) -> Iterable[Record]:
        """The frontier that the batch has reached counts for the next one."""
        self._passed_ms = self.frontier.frontier_ms
        return ()

    def _as_of_ms(self, record: Record) -> int:
        """The time as of which the record looks its row up; a lookup later than its own time is late for the history.

        A record that was not held back goes by the stream time of its own partition over all good records.
        """
        own_ms = record.timestamp_ms
        history_ms = self.node.history_ms
        if history_ms is None:
            return own_ms
        is_read_now = record.entry is not None and record.stream_time_ms is None
        of_partition_ms = self.stream_time_ms(record) if is_read_now else None
        reached_ms = max((ms for ms in (of_partition_ms, self._passed_ms) if ms is not None), default=None)
        if reached_ms is None or own_ms >= reached_ms - history_ms:
            return own_ms
        if record.entry is not None and self._by(record) is not None:
            self.journal.late.append(
                LateRecord(
                    topic=record.entry.topic,
                    partition=record.entry.partition,
                    offset=record.entry.offset,
                    key=record.row[self.node.key],
                    timestamp_ms=own_ms,
                    stream_time_ms=reached_ms,
                    margin_ms=reached_ms - history_ms - own_ms - 1,
                )
            )
        return reached_ms - history_ms

    def _table_is_past(self, asking: _Asking, grace_ms: int) -> bool:
        table_ms = self.table_clock.frontier_ms
        return table_ms is not None and asking.record.timestamp_ms <= table_ms - grace_ms

    def _by(self, record: Record) -> Any:
        return record.row[self.node.key] if self.node.by is None else evaluate(self.node.by, record.row)

    def _looked_up(self, asking: _Asking) -> Iterable[Record]:
        record, by = asking.record, self._by(asking.record)
        found = None if by is None else self._table.as_of(by, asking.as_of_ms)
        if found is None and self.node.kind == "inner":
            return self.drop(record, "null key" if by is None else "filtered")
        self.journal.note(record.entry, "counted")
        return (record.with_row(_row(self.node, record.row[self.node.key], record, found)),)


@dataclass(kw_only=True)
class TableTableJoinOperator(Operator):
    node: TableTableJoin
    _sides: tuple[TableState, TableState] = field(init=False)
    _existing: set[Any] = field(default_factory=set)
    _revisions: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sides = (TableState(is_versioned(self.node.left)), TableState(is_versioned(self.node.right)))

    def receive(self, record: Record, port: int) -> Iterable[Record]:
        """A change makes a new result, or deletes the one there was; a superseded change does nothing."""
        key = record.row[(self.node.left, self.node.right)[port].key]
        if not self._sides[port].apply(key, record):
            return ()
        left, right = (side.current(key) for side in self._sides)
        exists = {
            "inner": left is not None and right is not None,
            "left": left is not None,
            "outer": left is not None or right is not None,
        }[self.node.kind]
        if not exists and key not in self._existing:
            return ()
        (self._existing.add if exists else self._existing.discard)(key)
        self._revisions[key] = self._revisions.get(key, -1) + 1
        other = (right, left)[port]
        return (
            replace(
                record,
                row=_row(self.node, key, *((left, right) if exists else (None, None))),
                timestamp_ms=max(record.timestamp_ms, other.timestamp_ms if other else record.timestamp_ms),
                entry=None,
                is_null=not exists,
                revision=self._revisions[key],
            ),
        )
