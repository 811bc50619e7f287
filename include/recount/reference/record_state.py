"""Operators that remember: held updates, deduplication, custom processors."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from recount.declare.evaluation import evaluate
from recount.declare.functions import as_declared, failed, handed, own_values
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.operators.processing import (
    Deduplicate,
    InOrder,
    KeyState,
    Process,
    Row,
    count_timer,
    settle,
    two_partitions,
)
from recount.declare.operators.tables import Suppress
from recount.reference.record_clock import Operator
from recount.reference.records import Partition, Record


@dataclass(kw_only=True)
class SuppressOperator(Operator):
    """Holds the latest update of each key and window, with the time of the first one held."""

    node: Suppress
    _held: dict[Any, tuple[int, Record]] = field(default_factory=dict)

    def receive(self, record: Record, port: int) -> Iterator[Record]:  # noqa: ARG002 - it has one input
        """A later update replaces the row and keeps the time; what is due or too much goes."""
        row = record.row
        about = (row[self.node.key], row.get(WINDOW_START), row.get(WINDOW_END))
        first_ms, _ = self._held.get(about, (record.timestamp_ms, record))
        self._held[about] = (first_ms, self.held_back(record))
        self.clock.observe_arriving()
        yield from self.on_time()
        while self.node.max_rows is not None and len(self._held) > self.node.max_rows:
            yield self._held.pop(self._in_order()[0])[1]

    def on_time(self) -> Iterator[Record]:
        """The updates whose limit has passed, the oldest first."""
        frontier_ms = self.clock.frontier_ms
        if frontier_ms is not None:
            for about in self._in_order():
                if self._held[about][0] <= frontier_ms - self.node.limit_ms:
                    yield self._held.pop(about)[1]

    def _in_order(self) -> list[Any]:
        return sorted(self._held, key=lambda about: (self._held[about][0], str(about[0]), about[1] or 0))


@dataclass(kw_only=True)
class HoldingOperator(Operator):
    """Holds records until none before them can come on time."""

    _waiting: list[Record] = field(default_factory=list)

    def hold(self, record: Record) -> tuple[Record, ...]:
        self._waiting.append(self.held_back(record))
        self.journal.note(record.entry, "waiting")
        return ()

    def let_go(self, grace_ms: int) -> list[Record]:
        """The records with ``ts + grace`` less than the frontier, by (event time, topic, partition, offset)."""
        frontier_ms = self.clock.frontier_ms
        if frontier_ms is None:
            return []
        due = [record for record in self._waiting if record.timestamp_ms + grace_ms < frontier_ms]
        self._waiting = [record for record in self._waiting if record.timestamp_ms + grace_ms >= frontier_ms]
        return sorted(due, key=lambda record: (record.timestamp_ms, record.order))


@dataclass(kw_only=True)
class DeduplicateOperator(HoldingOperator):
    """The winners so far, by id; where ids do not determine the partition, also all that may still win."""

    node: Deduplicate
    _winners: dict[Any, list[int]] = field(default_factory=dict)

    def receive(self, record: Record, port: int) -> Iterable[Record]:  # noqa: ARG002 - it has one input
        """The first by offset leaves at once; the first by event time is known only later."""
        identity = evaluate(self.node.by, record.row)
        if identity is None:
            return self.drop(record, "null key")
        if self.is_late(record, identity, self.node.horizon_ms):
            return self.drop(record, "late")
        return self._judged(record) if self.node.partitioned else self.hold(record)

    def on_time(self) -> Iterator[Record]:
        """The winners among the records that are due."""
        for record in self.let_go(self.node.horizon_ms):
            yield from self._judged(record)

    def _judged(self, record: Record) -> Iterable[Record]:
        winners = self._winners.setdefault(evaluate(self.node.by, record.row), [])
        if any(abs(record.timestamp_ms - winner_ms) <= self.node.horizon_ms for winner_ms in winners):
            return self.drop(record, "deduplicated")
        winners.append(record.timestamp_ms)
        self.journal.note(record.entry, "counted")
        return (record,)


@dataclass(kw_only=True)
class InOrderOperator(HoldingOperator):
    """The records before which an earlier one may still come; ``_left_ms`` is how far the last batch has let go."""

    node: InOrder
    _left_ms: int | None = None

    def receive(self, record: Record, port: int) -> Iterable[Record]:  # noqa: ARG002 - it has one input
        """A record that comes after later ones have left is late, however far its own partition has come."""
        if self.is_late(record, record.row[self.node.key], self.node.grace_ms, self._left_ms):
            return self.drop(record, "late")
        return self.hold(record)

    def on_time(self) -> Iterator[Record]:
        """The records that are due, each behind all that are earlier."""
        for record in self.let_go(self.node.grace_ms):
            self.journal.let_go(record.entry)
            yield replace(record, order=("", record.timestamp_ms, 0, "", *record.order))

    def end_batch(self) -> Iterable[Record]:
        """The frontier up to which records have left binds the next batch."""
        self._left_ms = self.clock.frontier_ms
        return ()


@dataclass(kw_only=True)
class ProcessOperator(Operator):
    """One state per key, and its timers: a function of the log for keys that live in one partition."""

    node: Process
    _states: dict[Any, KeyState] = field(default_factory=dict)
    _sources: dict[Any, Partition] = field(default_factory=dict)

    def receive(self, record: Record, port: int) -> Iterator[Record]:  # noqa: ARG002 - it has one input
        """Hand the record to the key's processor, after the timers that its own partition had reached before it.

        Null keys have no state, null values no row. The frontier may be behind the partition: had the record not come,
        the timers would have waited for it.
        """
        key = record.row[self.node.key]
        if key is None or record.is_null:
            self.drop(record, "null key" if key is None else "null value")
            return
        state = self._states.setdefault(key, KeyState(key=key))
        self._require_one_partition(record, state)
        self.clock.accept(record.entry)
        reached_ms = self.clock.reached_ms(record.entry)
        while reached_ms is not None and (at_ms := min(state.timers_ms, default=reached_ms + 1)) <= reached_ms:
            yield from self._fire(at_ms, state)
        before = deepcopy(state)
        state.timestamp_ms, state.fired = record.timestamp_ms, 0
        try:
            rows = self.node.on_record(handed(record.row, self.node.input.fields), state)
            returned = [own_values({**row, self.node.key: key}) for row in rows]
            settle(state, key)
        except Exception as error:
            self._states[key] = before
            self.raised(self.node, record, error)
            return
        made = [record.with_row(as_declared(row, self.node.fields, self.node)) for row in returned]
        self.journal.note(record.entry, "counted")
        yield from made

    def _require_one_partition(self, record: Record, state: KeyState) -> None:
        """Refuse the record of a second partition while the key remembers something; in order of time any may come."""
        if record.entry is None or not record.order[0]:
            return
        source = self._sources.get(state.key, record.entry.source)
        if source != record.entry.source and (state.remembered or state.timers_ms):
            raise two_partitions(self.node, state.key, source, record.entry.source)
        self._sources[state.key] = record.entry.source

    def on_time(self) -> Iterator[Record]:
        """The timers that the frontier has reached, by time, then key; a timer may set further ones."""
        frontier_ms = self.clock.frontier_ms
        while frontier_ms is not None and (due := self._due(frontier_ms)):
            at_ms, _, state = due[0]
            yield from self._fire(at_ms, state)

    def _fire(self, at_ms: int, state: KeyState) -> Iterator[Record]:
        key, state.timestamp_ms = state.key, at_ms
        state.timers_ms.discard(at_ms)
        try:
            count_timer(state, at_ms, self.node)
            rows = (self.node.on_timer or _nothing)(at_ms, state)
            returned = [own_values({**row, self.node.key: key}) for row in rows]
            settle(state, key)
        except Exception as error:
            raise failed(self.node, f"the timer {at_ms} of key {key!r}", error) from error
        for row in returned:
            yield Record(
                row=as_declared(row, self.node.fields, self.node),
                timestamp_ms=at_ms,
                order=("", at_ms, at_ms, str(key)),
                entry=None,
            )

    def _due(self, frontier_ms: int) -> list[tuple[int, str, KeyState]]:
        timers = [(at, str(key), state) for key, state in self._states.items() for at in state.timers_ms]
        return sorted((timer for timer in timers if timer[0] <= frontier_ms), key=lambda timer: timer[:2])


def _nothing(_at_ms: int, _state: KeyState) -> Iterable[Row]:
    return ()
