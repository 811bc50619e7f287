"""One key's windows, record by record: for the kinds that cannot be had from merged accumulators alone.

A pane holds a key's accepted records, by time. ``add`` places one more and says which windows that changed, withdrew
(sessions that were merged away) or was late for; ``members`` are the records of a window as it is now. A record is
judged by ``judged_ms``, the stream time of its partition at its own offset; without one (derived) it is never late.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recount.core.windows import (
    ClosingWindows,
    GlobalWindow,
    LastN,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    Windows,
)

Window = tuple[int, int]
"""Start and end in milliseconds."""
UNBOUNDED: Window = (0, 0)
"""The one window of kinds that have no bounds."""
Source = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Placed:
    """A record as panes see it; ``number`` counts up as records arrive. Sorted by time, log order, arrival."""

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


class Pane(Protocol):
    """One key's windows, begun with records that were accepted before."""

    def add(self, record: Placed) -> Placement:
        """Place a record."""

    def members(self, window: Window) -> list[Placed]:
        """The records in ``window``; none where there is no such window."""

    def contents(self) -> Mapping[Window, list[Placed]]:
        """All windows there are, with their records."""

    def records(self) -> Sequence[Placed]:
        """All accepted records, also those in no window now."""


def pane_of(windows: Windows, accepted: Iterable[Placed] = ()) -> Pane:
    """A key's windows with the records that were ``accepted`` so far."""
    match windows:
        case TimeWindows():
            return TimePane(windows, accepted)
        case SlidingWindows():
            return SlidingPane(windows, accepted)
        case SessionWindows():
            return SessionPane(windows, accepted)
        case GlobalWindow():
            return LastPane(None, accepted)
        case LastN(n=n):
            return LastPane(n, accepted)


class ByTime:
    """Records by time, and those of them between two times."""

    def __init__(self, records: Iterable[Placed]) -> None:
        self.all = sorted(records, key=_place)

    def add(self, record: Placed) -> None:
        """Put it where its time says."""
        insort(self.all, record, key=_place)

    def between(self, start_ms: int, end_ms: int) -> list[Placed]:
        """Those with ``start_ms <= time <= end_ms``."""
        first = bisect_left(self.all, start_ms, key=_time)
        return self.all[first : bisect_right(self.all, end_ms, lo=first, key=_time)]

    def chain(self, timestamp_ms: int, gap_ms: int) -> list[Placed]:
        """Those that lead from ``timestamp_ms`` to both sides in steps of at most ``gap_ms``."""
        first = last = bisect_left(self.all, timestamp_ms, key=_time)
        at_ms = timestamp_ms
        while first > 0 and at_ms - self.all[first - 1].timestamp_ms <= gap_ms:
            first -= 1
            at_ms = self.all[first].timestamp_ms
        at_ms = timestamp_ms
        while last < len(self.all) and self.all[last].timestamp_ms - at_ms <= gap_ms:
            at_ms = self.all[last].timestamp_ms
            last += 1
        return self.all[first:last]


def _place(record: Placed) -> tuple[int, str, int]:
    return record.place


def _time(record: Placed) -> int:
    return record.timestamp_ms


class TimePane:
    """Tumbling and hopping: a record's windows follow from its time alone."""

    def __init__(self, windows: TimeWindows, accepted: Iterable[Placed]) -> None:
        self._windows = windows
        self._records: list[Placed] = []
        self._members: dict[Window, list[Placed]] = {}
        for record in accepted:
            self.add(record)

    def add(self, record: Placed) -> Placement:
        """A hopping record may be late for some of its windows and on time for the others."""
        starts = self._windows.starts(record.timestamp_ms)
        holding = [(start, start + self._windows.size_ms) for start in starts]
        late = [window for window in holding if record.is_late(self._windows, window[1])]
        changed = [window for window in holding if window not in late]
        for window in changed:
            self._members.setdefault(window, []).append(record)
        self._records += [record] if changed else []
        return Placement(accepted=bool(changed), changed=changed, late=late)

    def members(self, window: Window) -> list[Placed]:
        """The records that were on time for ``window``."""
        return self._members.get(window, [])

    def contents(self) -> Mapping[Window, list[Placed]]:
        """Every window that a record fell into."""
        return self._members

    def records(self) -> Sequence[Placed]:
        """All accepted records."""
        return self._records


class LastPane:
    """Global (``n`` None) and last n: one window, with all records or the ``n`` most recent."""

    def __init__(self, n: int | None, accepted: Iterable[Placed]) -> None:
        self._n = n
        self._records = ByTime(accepted)

    def add(self, record: Placed) -> Placement:
        """No record is late; one that is older than the n most recent changes nothing."""
        self._records.add(record)
        held = self._n is None or record in self.members(UNBOUNDED)
        return Placement(changed=[UNBOUNDED] if held else [])

    def members(self, window: Window) -> list[Placed]:  # noqa: ARG002 - there is but one
        """The records held."""
        return self._records.all if self._n is None else self._records.all[-self._n :]

    def contents(self) -> Mapping[Window, list[Placed]]:
        """The one window."""
        return {UNBOUNDED: list(self.members(UNBOUNDED))}

    def records(self) -> Sequence[Placed]:
        """All records, also older ones than the n most recent."""
        return self._records.all


class SlidingPane:
    """Sliding: the records define the windows, ``[ts - difference, ts]`` and ``[ts + 1, ts + 1 + difference]``.

    difference 10:   records   15        22      28
        [5, 15] ends at 15; [16, 26] begins after 15 and holds 22; [12, 22] ends at 22; [23, 33] holds 28; ...

    A window is there when a record defines it and one is in it, both on time for it.
    """

    def __init__(self, windows: SlidingWindows, accepted: Iterable[Placed]) -> None:
        self._windows = windows
        self._accepted = ByTime(accepted)

    def add(self, record: Placed) -> Placement:
        """The ledger names, of the windows missed, the record's own and those that its own partition had defined."""
        at_ms, left = record.timestamp_ms, self._windows.left_of(record.timestamp_ms)
        if record.is_late(self._windows, at_ms + self._windows.difference_ms):
            return Placement(accepted=False, late=[left])
        before = self._defined(self._near(at_ms))
        self._accepted.add(record)
        near = self._near(at_ms)
        known = self._defined(near)
        own = self._defined([one for one in near if one.source == record.source]) | {left}
        holding = {window for window in known | {left} if window[0] <= at_ms <= window[1]}
        late = {window for window in holding if record.is_late(self._windows, window[1])}
        return Placement(changed=sorted((holding & known - late) | (known - before)), late=sorted(late & own))

    def members(self, window: Window) -> list[Placed]:
        """The records inside ``window`` that were on time for it."""
        return [one for one in self._accepted.between(*window) if not one.is_late(self._windows, window[1])]

    def contents(self) -> Mapping[Window, list[Placed]]:
        """Every window that is there."""
        return {window: self.members(window) for window in self._defined(self._accepted.all)}

    def records(self) -> Sequence[Placed]:
        """All accepted records."""
        return self._accepted.all

    def _near(self, timestamp_ms: int) -> list[Placed]:
        """The records that can be in one window with ``timestamp_ms``, or define one that holds it."""
        reach_ms = self._windows.difference_ms + 1
        return self._accepted.between(timestamp_ms - reach_ms, timestamp_ms + reach_ms)

    def _defined(self, records: list[Placed]) -> set[Window]:
        """The windows that ``records`` define and are in."""
        defined = {
            window
            for one in records
            for window in (self._windows.left_of(one.timestamp_ms), self._windows.right_of(one.timestamp_ms))
            if not one.is_late(self._windows, window[1])
        }
        return {
            window
            for window in defined
            if any(
                window[0] <= one.timestamp_ms <= window[1] and not one.is_late(self._windows, window[1])
                for one in records
            )
        }


class SessionPane:
    """Session: records that follow each other closely enough are one session, cut at the longest duration.

    gap 5:   0──3──7        14──16        one session [0, 7], another [14, 16]; a record at 10 makes them [0, 16]

    A record is judged by the session that it would be in among the accepted records of its own partition.
    """

    def __init__(self, windows: SessionWindows, accepted: Iterable[Placed]) -> None:
        self._windows = windows
        records = list(accepted)
        self._accepted = ByTime(records)
        self._own = {
            source: ByTime(one for one in records if one.source == source) for source in {one.source for one in records}
        }

    def add(self, record: Placed) -> Placement:
        """A session that takes others in withdraws them; not where it is just the record's own moment."""
        moment = (record.timestamp_ms, record.timestamp_ms)
        own = self._own.setdefault(record.source, ByTime(()))
        would_be, _ = self._around(own, record)
        if record.is_late(self._windows, would_be[1]):
            return Placement(accepted=False, late=[would_be])
        own.add(record)
        window, after = self._around(self._accepted, record)
        before = self._sessions(self._accepted.chain(record.timestamp_ms, self._windows.gap_ms))
        self._accepted.add(record)
        taken_in = {old for old in before if old not in after or old == window}
        withdrawn = taken_in - {moment} if window == moment else taken_in
        changed = (after.keys() - before.keys()) | {window}
        return Placement(changed=sorted(changed), withdrawn=sorted(withdrawn, key=lambda old: (old[1], old[0])))

    def members(self, window: Window) -> list[Placed]:
        """The records of the session."""
        around = self._accepted.chain(window[0], self._windows.gap_ms)
        return self._sessions(around).get(window, [])

    def contents(self) -> Mapping[Window, list[Placed]]:
        """All sessions."""
        return self._sessions(self._accepted.all)

    def records(self) -> Sequence[Placed]:
        """All accepted records."""
        return self._accepted.all

    def _around(self, others: ByTime, record: Placed) -> tuple[Window, dict[Window, list[Placed]]]:
        """The session that holds ``record`` among ``others``, and all that hang together with it by their gaps."""
        chain = [*others.chain(record.timestamp_ms, self._windows.gap_ms), record]
        sessions = self._sessions(sorted(chain, key=_place))
        return next(window for window, members in sessions.items() if record in members), sessions

    def _sessions(self, records: Iterable[Placed]) -> dict[Window, list[Placed]]:
        """Taking ``records`` by time: each continues the session at hand or begins a new one."""
        sessions: list[list[Placed]] = []
        for record in records:
            at_hand = sessions[-1] if sessions else None
            if at_hand and self._windows.continues(
                at_hand[0].timestamp_ms, at_hand[-1].timestamp_ms, record.timestamp_ms
            ):
                at_hand.append(record)
            else:
                sessions.append([record])
        return {(members[0].timestamp_ms, members[-1].timestamp_ms): members for members in sessions}
