"""One key's windows, record by record: for the kinds that cannot be had from merged accumulators alone.

A pane holds a key's accepted records. ``add`` places one more and says which windows that changed, withdrew (sessions
that were merged away) or was late for; ``members`` are the records of a window as it is now. A record is judged by
``judged_ms``, the stream time of its partition at its own offset; without one (derived) it is never late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from recount.core.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows, Windows
from recount.spark.operators.placed import ByTime, Placed, Placement, Window
from recount.spark.operators.session_panes import SessionPane
from recount.spark.operators.sliding_panes import SlidingPane

UNBOUNDED: Window = (0, 0)
"""The one window of kinds that have no bounds."""


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
        place = self._records.add(record)
        held = self._n is None or place >= len(self._records.all) - self._n
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
