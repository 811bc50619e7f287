"""One key's windows, record by record: for the kinds that cannot be had from merged accumulators alone.

A pane holds a key's accepted records. ``add`` places one more and says which windows that changed, withdrew (sessions
that were merged away) or was late for; ``members`` are the records of a window as it is now. A record is judged by
``judged_ms``, the stream time of its partition at its own offset; without one (derived) it is never late.
``Placing`` takes the records of one batch, one after the other, as they happen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import polars as pl

from recount.declare.columns import REVISION, STREAM_TIME, TIMESTAMP
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows, Windows
from recount.engine.operators.batch_rows import JUDGED, OFFSET, ORDER, PARTITION, TOPIC
from recount.engine.operators.pane_kinds import ByTime, Placed, Placement, SessionPane, SlidingPane, Window
from recount.engine.state.keyed_rows import NUMBER

UNBOUNDED: Window = (0, 0)
"""The one window of kinds that have no bounds."""
PLACE = (NUMBER, TOPIC, PARTITION, OFFSET, TIMESTAMP, STREAM_TIME, JUDGED, ORDER, REVISION)
_IN_PARTITION = pl.col(OFFSET).is_not_null() & pl.col(STREAM_TIME).is_null()
PLACED = (
    pl.col(TIMESTAMP),
    pl.col(ORDER),
    pl.col(NUMBER),
    pl.when(_IN_PARTITION).then(TOPIC).alias(TOPIC),
    pl.when(_IN_PARTITION).then(PARTITION).alias(PARTITION),
    pl.col(JUDGED),
    pl.col(REVISION),
)
"""The fields of a ``Placed`` from the columns ``PLACE``."""


class Pane(Protocol):
    """One key's windows, begun with records that were accepted before."""

    def add(self, record: Placed) -> Placement: ...

    def members(self, window: Window) -> list[Placed]: ...

    def contents(self) -> Mapping[Window, list[Placed]]: ...

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
        return self._members

    def records(self) -> Sequence[Placed]:
        return self._records


class LastPane:
    """Global (``n`` None) and last n: one window, with all records or the ``n`` most recent."""

    def __init__(self, n: int | None, accepted: Iterable[Placed]) -> None:
        self._n = n
        self._records = ByTime(accepted)

    def add(self, record: Placed) -> Placement:
        """No record is late; one that is older than the n most recent changes nothing."""
        place = self._records.add(record)
        held = self._n is None or place >= len(self._records.all) - self._n
        return Placement(changed=[UNBOUNDED] if held else [])

    def members(self, window: Window) -> list[Placed]:  # noqa: ARG002 - there is but one
        return self._records.all if self._n is None else self._records.all[-self._n :]

    def contents(self) -> Mapping[Window, list[Placed]]:
        return {UNBOUNDED: list(self.members(UNBOUNDED))}

    def records(self) -> Sequence[Placed]:
        """All records, also older ones than the n most recent."""
        return self._records.all


class Step(NamedTuple):
    """A window of a key that changed, with the numbers of its ``members``, or was withdrawn, without any.

    ``order`` is that of the row that caused it.
    """

    key: Any
    window: Window
    order: str
    members: Sequence[int] = ()


@dataclass
class Placing:
    """The effect of a batch on the ``panes``, which hold the records accepted before.

    ``lists_members``: steps list the members of their window at that time, many for a window that changes often.
    """

    windows: Windows
    panes: dict[Any, Pane]
    lists_members: bool
    steps: list[Step] = field(default_factory=list)
    missed: list[tuple[int, int, int]] = field(default_factory=list)
    """A late record's number, and the start and end of the window that it missed."""
    late: set[int] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    """Records that need not be kept: late for all windows, or replaced."""

    def add(self, key: Any, record: Placed) -> None:
        pane = self.panes.setdefault(key, pane_of(self.windows))
        placement = pane.add(record)
        if placement.accepted:
            self.counted.add(record.number)
        else:
            self.late.add(record.number)
            self.gone.add(record.number)
        self.missed += [(record.number, *window) for window in placement.late]
        self.steps += [Step(key, window, record.order) for window in placement.withdrawn]
        self._change(key, placement.changed, record.order)

    def replace(self, record: Placed) -> None:
        """Take the earlier revisions of ``record`` out, wherever they were placed."""
        for key, pane in self.panes.items():
            held = pane.records()
            kept = [one for one in held if one.order != record.order or one.revision >= record.revision]
            if len(kept) < len(held):
                self.gone |= {one.number for one in held} - {one.number for one in kept}
                before, self.panes[key] = pane.contents(), pane_of(self.windows, kept)
                self._change(key, _differing(before, self.panes[key].contents()), record.order)

    def _change(self, key: Any, windows: Iterable[Window], order: str) -> None:
        for window in windows:
            members = [one.number for one in self.panes[key].members(window)] if self.lists_members else []
            self.steps.append(Step(key, window, order, members))


def _differing(before: Mapping[Window, Sequence[Placed]], after: Mapping[Window, Sequence[Placed]]) -> list[Window]:
    windows = sorted(before.keys() | after.keys())
    return [window for window in windows if list(before.get(window, ())) != list(after.get(window, ()))]
