"""Windowed aggregation: place the record, aggregate the windows it changed, and let results leave when it is time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from recount.declare.operators.event_time import tries_folds
from recount.declare.operators.keys_and_fields import folds_by_key, out_of_order
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows
from recount.reference.record_aggregates import folded_as_declared, results, takes, try_fold
from recount.reference.record_clock import Operator
from recount.reference.record_panes import Panes, Placement, Window, panes_of
from recount.reference.records import Entry, LateRecord, Partition, Record

Result = tuple[Any, Window]
"""A key and a window: what one result is about."""


@dataclass(kw_only=True)
class WindowedOperator(Operator):
    """Holds every key's windows, the results that are due later, and how often each result was emitted."""

    node: WindowedAggregate
    _panes: dict[Any, Panes] = field(default_factory=dict)
    _placed: dict[Any, list[tuple[Record, int | None]]] = field(default_factory=dict)
    _pending: dict[Result, Record] = field(default_factory=dict)
    _emitted: dict[Result, int] = field(default_factory=dict)
    _passed_over: dict[tuple[str, Any, Window | None], list[Record]] = field(default_factory=dict)
    _folded: dict[Any, tuple[Any, ...]] = field(default_factory=dict)

    def receive(self, record: Record, port: int) -> Iterable[Record]:  # noqa: ARG002 - it has one input
        """Null keys belong to no group; null values are aggregated by time and session windows only."""
        key = record.row[self.node.key]
        if key is None:
            return self.drop(record, "null key")
        if record.revision and record.entry is None and record.order[0] == "":
            return [*self._revised(record), *(() if record.is_null else self._place(key, record))]
        if record.is_null and isinstance(self.node.windows, SlidingWindows | GlobalWindow | LastN):
            return self.drop(record, "null value")
        return self._place(key, record)

    def _place(self, key: Any, record: Record) -> list[Record]:
        self._require_order(key, record)
        stream_time_ms = self.stream_time_ms(record)
        placement = self._panes.setdefault(key, panes_of(self.node.windows)).add(record, stream_time_ms)
        if record.entry is not None and stream_time_ms is not None:
            self._journal_late(record.entry, key, placement, stream_time_ms)
        self.journal.note(record.entry, "counted" if placement.accepted else "late")
        if tries_folds(self.node) and record.entry is not None:
            self._try(record, record.entry.source, key, placement)
        self._placed.setdefault(key, []).append((record, stream_time_ms))
        return self._emit(key, placement, record)

    def _require_order(self, key: Any, record: Record) -> None:
        """Refuse a value of a fold of all time that would come before one that it has taken."""
        folds = [one for one in self.node.aggregates.values() if one.fold is not None and takes(one, record)]
        if folds and folds_by_key(self.node):
            before = self._folded.get(key, record.order)
            if record.order < before:
                raise out_of_order(self.node, key, _place_of(before), _place_of(record.order))
            self._folded[key] = record.order

    def _try(self, record: Record, source: Partition, key: Any, placement: Placement) -> None:
        """Pass over a record for which a fold raises, after the values of its partition that are before it."""
        for window in placement.changed:
            own = [one for one in self._records((key, window)) if one.entry is not None and one.entry.source == source]
            if not any(one is record for one in own):
                continue
            for name, aggregate in self.node.aggregates.items():
                if aggregate.fold is None or not takes(aggregate, record):
                    continue
                taken = [one for one in own if not self._is_passed_over(name, key, window, one)]
                try:
                    try_fold(aggregate, taken, self._gap_ms)
                except Exception as error:
                    self.raised(self.node, record, error)
                    self._passed_over.setdefault((name, key, self._lasting(window)), []).append(record)

    def _is_passed_over(self, name: str, key: Any, window: Window, record: Record) -> bool:
        return any(one is record for one in self._passed_over.get((name, key, self._lasting(window)), ()))

    def _lasting(self, window: Window) -> Window | None:
        """The window, unless it is a session: these grow, and a record is in one of them."""
        return None if isinstance(self.node.windows, SessionWindows) else window

    @property
    def _gap_ms(self) -> int | None:
        return self.node.windows.gap_ms if isinstance(self.node.windows, SessionWindows) else None

    def _revised(self, record: Record) -> list[Record]:
        """A window's result in a higher revision stands in place of the one before, wherever that was placed.

        The update of a table is a record of its own: its order is that of the change that caused it.
        """
        left = []
        for key, placed in self._placed.items():
            kept = [(one, at) for one, at in placed if one.order != record.order or one.revision >= record.revision]
            if len(kept) < len(placed):
                left += self._emit(key, Placement(changed=self._replaced(key, kept)), record)
        return left

    def _replaced(self, key: Any, placed: list[tuple[Record, int | None]]) -> list[Window]:
        """Place the key's records again, and return the windows that this changed."""
        before, after = self._panes[key], panes_of(self.node.windows)
        windows = {window for other, window in [*self._emitted, *self._pending] if other == key}
        for record, stream_time_ms in placed:
            windows |= set(after.add(record, stream_time_ms).changed)
        self._placed[key], self._panes[key] = placed, after
        return sorted(window for window in windows if before.records(window) != after.records(window))

    def _emit(self, key: Any, placement: Placement, cause: Record) -> list[Record]:
        withdrawn = [(key, window) for window in placement.withdrawn]
        changed = [(key, window) for window in placement.changed]
        if self.node.emission.kind == "each record":
            return [self._withdrawal(result, cause) for result in withdrawn] + [
                self._result(result, cause) if self._records(result) else self._withdrawal(result, cause)
                for result in changed
            ]
        self._pending |= dict.fromkeys([*withdrawn, *changed], cause)
        return []

    def on_time(self) -> Iterator[Record]:
        """Final results whose window the frontier has closed, by window end, then key; later changes are revisions."""
        frontier_ms = self.clock.frontier_ms
        if self.node.emission.kind == "final" and frontier_ms is not None:
            windows = self.node.windows
            assert not isinstance(windows, GlobalWindow | LastN), "refused at declaration"
            yield from self._leave([held for held in self._pending if windows.is_closed(held[1][1], frontier_ms)])

    def end_batch(self) -> Iterator[Record]:
        """The latest of every result that the batch changed."""
        if self.node.emission.kind == "each batch":
            yield from self._leave(list(self._pending))

    def _leave(self, due: list[Result]) -> Iterator[Record]:
        for result in sorted(due, key=lambda held: (held[1][1], str(held[0]), held[1][0])):
            cause = self._pending.pop(result)
            if self._records(result):
                yield self._result(result, cause)
            elif result in self._emitted:
                yield self._withdrawal(result, cause)

    def _records(self, result: Result) -> list[Record]:
        key, window = result
        return self._panes[key].records(window)

    def _result(self, result: Result, cause: Record) -> Record:
        key, window = result
        records = self._records(result)
        made = results(
            self.node.aggregates,
            records,
            self._gap_ms,
            lambda name, record: self._is_passed_over(name, key, window, record),
            about={self.node.key: key, **self._bounds(window)},
        )
        folded = folded_as_declared(made, self.node.aggregates, self.node.fields)
        row = {self.node.key: key, **self._bounds(window), **folded}
        return self._left(result, row, max(record.timestamp_ms for record in records), cause)

    def _withdrawal(self, result: Result, cause: Record) -> Record:
        key, window = result
        row = {**dict.fromkeys(self.node.fields), self.node.key: key, **self._bounds(window)}
        return self._left(result, row, window[1], cause, is_null=True)

    def _left(
        self, result: Result, row: dict[str, Any], timestamp_ms: int, cause: Record, is_null: bool = False
    ) -> Record:
        revision = self._emitted.get(result, -1) + 1
        self._emitted[result] = revision
        return Record(
            row=row,
            timestamp_ms=timestamp_ms,
            order=cause.order if not self.node.has_bounds else ("", *result[1], str(result[0])),
            entry=None,
            is_null=is_null,
            revision=revision,
        )

    def _bounds(self, window: Window) -> dict[str, int]:
        return {WINDOW_START: window[0], WINDOW_END: window[1]} if self.node.has_bounds else {}

    def _journal_late(self, entry: Entry, key: Any, placement: Placement, stream_time_ms: int) -> None:
        windows = self.node.windows
        if isinstance(windows, GlobalWindow | LastN):
            return
        for start, end in placement.late:
            self.journal.late.append(
                LateRecord(
                    topic=entry.topic,
                    partition=entry.partition,
                    offset=entry.offset,
                    key=key,
                    timestamp_ms=entry.timestamp_ms,
                    stream_time_ms=stream_time_ms,
                    margin_ms=stream_time_ms - windows.closes_ms(end),
                    window_start=start,
                    window_end=end,
                )
            )


def _place_of(order: tuple[Any, ...]) -> str:
    topic, partition, offset = order[:3]
    return f"{topic}-{partition}@{offset}"
