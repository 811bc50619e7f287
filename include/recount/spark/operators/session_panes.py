"""Sessions of one key, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recount.core.windows import SessionWindows
from recount.spark.operators.placed import ByTime, Placed, Placement, Window, by_place


class SessionPane:
    """Session: records that follow each other closely enough are one session, cut at the longest duration.

    gap 5:   0──3──7        14──16        one session [0, 7], another [14, 16]; a record at 10 makes them [0, 16]

    A record is judged by the session that it would be in among the accepted records of its ``source``, and is late
    altogether where even one that ends ``reach_ms`` after it would be closed.
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
        if record.is_late(self._windows, record.timestamp_ms + self._windows.reach_ms):
            return Placement(accepted=False, late=[moment])
        own = self._own.setdefault(record.source, ByTime(())) if record.source else ByTime(())
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

    def settled(self, settled_ms: int) -> list[Placed]:
        """The records that no other can join any more, and that move no cut.

        They end where a session begins, and no session of a partition alone goes on.
        """
        sessions = list(self._sessions(self._accepted.all))
        begin_ms = next((start for start, end in sessions if self._windows.settles_ms(end) > settled_ms), None)
        if begin_ms is None:
            return self._accepted.all
        own = [window for source, ones in self._own.items() if source for window in self._sessions(ones.all)]
        while earlier := [start for start, end in own if start < begin_ms <= end]:
            begin_ms = max(start for start, _ in sessions if start <= min(earlier))
        return [one for one in self._accepted.all if one.timestamp_ms < begin_ms]

    def _around(self, others: ByTime, record: Placed) -> tuple[Window, dict[Window, list[Placed]]]:
        """The session that holds ``record`` among ``others``, and all that hang together with it by their gaps."""
        chain = [*others.chain(record.timestamp_ms, self._windows.gap_ms), record]
        sessions = self._sessions(sorted(chain, key=by_place))
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
