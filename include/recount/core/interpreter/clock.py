"""Time as the log tells it: the stream time of each source partition, and the frontier over all of them.

    partition 0   10 s ── 20 s ── 15 s ── 40 s        stream time 40 s
    partition 1    5 s ── 12 s                        stream time 12 s
                                                      frontier    12 s, the smallest

A record is late by its own partition's stream time; a result is due by the frontier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from recount.core.interpreter.record import Entry, Partition


class Above(NamedTuple):
    """The clock of an operator further up, and how far behind its frontier its results can be here.

    ``hands_on``: its records come here themselves, so that those it refuses do not.
    """

    clock: Clock
    delay_ms: int
    hands_on: bool = True


class Clock:
    """Stream times as one operator sees them, over the ``topics`` it is fed from.

    Every operator that judges time has a clock of its own, because a record with a null key does not advance the stream
    time of an operator that needs the key, while it advances those of the others. ``partitions`` says of a topic how
    many it has; the frontier waits for each of them. No clock runs ahead of those ``above``, the nearest operators
    further up that judge time: what they refused does not advance it, and its frontier waits for theirs. Below an
    operator that ``holds_back`` records all of them advance it as they are read: whether one has a key shows only
    later. A record that was held back is not asked about here: it knows by which stream time it is judged.
    """

    def __init__(
        self,
        topics: Iterable[str],
        delay_ms: int = 0,
        partitions: Mapping[str, int] = MappingProxyType({}),
        *,
        above: Sequence[Above] = (),
        holds_back: bool = False,
    ) -> None:
        self._topics = frozenset(topics)
        self._above = above
        self._holds_back = holds_back
        self._partitions = partitions
        self._delay_ms = delay_ms
        self._stream_times: dict[Partition, int] = {}
        self._at: dict[Entry, int] = {}
        self._idle: set[Partition | str] = set()
        self._reached_ms: int | None = None
        self._refused: Entry | None = None
        self._accepted: Entry | None = None
        self.arriving: Entry | None = None

    def observe_arriving(self) -> None:
        """Advance by the record that is being processed: an operator that sees what it led to knows that it counts."""
        if self.arriving is not None:
            self.observe(self.arriving)

    def refuse(self, entry: Entry | None) -> None:
        """The record that entered there has no key: it shall not advance the stream time."""
        self._refused = entry

    def accept(self, entry: Entry | None) -> None:
        """A row of the record that entered there has a key: it counts, whatever becomes of its other rows."""
        self._accepted = entry

    def observe(self, entry: Entry) -> None:
        """Advance the stream time of the record's partition, once per record, unless it was refused, here or above."""
        refused = entry == self._refused or any(one.clock.passed_over(entry) for one in self._above if one.hands_on)
        accepted = self._holds_back or entry == self._accepted
        if self.passed_over(entry) and (accepted or not refused):
            self._take(entry)

    def passed_over(self, entry: Entry) -> bool:
        """Whether the record could have advanced this clock, and has not."""
        return entry.topic in self._topics and entry not in self._at

    def _take(self, entry: Entry) -> None:
        self.advance(entry.source, entry.timestamp_ms)
        self._at[entry] = self._stream_times[entry.source]

    def advance(self, source: Partition, timestamp_ms: int) -> None:
        """Stream time never goes back; a partition that speaks is not idle."""
        self._stream_times[source] = max(timestamp_ms, self._stream_times.get(source, timestamp_ms))
        self._idle -= {source, source[0]}

    def stream_time_ms(self, entry: Entry) -> int:
        """The stream time at the record's own offset: the record has advanced it before its lateness is judged.

        Of the rows that a flat-map made of one record, or that came on several paths, one with a key is enough.
        """
        self._refused = None
        if entry not in self._at:
            self._take(entry)
        return self._at[entry]

    def reached_ms(self, entry: Entry | None) -> int | None:
        """The stream time that the record that is being processed found, less the delay of the operators above.

        None for any other record: the time that it found is gone.
        """
        found_ms = None if entry is None or entry != self.arriving else self._stream_times.get(entry.source)
        return None if found_ms is None else found_ms - self._delay_ms

    def declare_idle(self, topic: str, partition: int | None) -> None:
        """The partition (None: the whole topic) holds the frontier back no more until it speaks again."""
        if topic in self._topics:
            self._idle.add(topic if partition is None else (topic, partition))

    def sources(self) -> set[Partition]:
        """Every partition that has spoken or is known to be there; of a topic without any, partition 0."""
        silent = self._topics - {topic for topic, _ in self._stream_times}
        known = {topic: self._partitions.get(topic, int(topic in silent)) for topic in self._topics}
        return set(self._stream_times) | {(topic, n) for topic, count in known.items() for n in range(count)}

    def end_batch(self) -> None:
        """Hold the frontier where it is: a partition that was idle and speaks again does not draw it back."""
        self._reached_ms = self.frontier_ms

    @property
    def frontier_ms(self) -> int | None:
        """The smallest stream time of the partitions that are not idle, less the delay of the operators above.

        Never later than the frontiers of those operators allow, nor earlier than after the last batch. None while there
        is none: a topic that has never spoken holds it back. A partition that has never spoken, of a topic that has,
        counts as idle unless it is known to be there.
        """
        found = [ms for ms in (self._now_ms(), self._reached_ms) if ms is not None]
        return max(found, default=None)

    def _now_ms(self) -> int | None:
        awake = self._awake()
        if not awake or any(source not in self._stream_times for source in awake):
            return None
        reached_ms = [min(self._stream_times[source] for source in awake) - self._delay_ms]
        for clock, delay_ms, _ in self._above:
            if clock._awake():
                if clock.frontier_ms is None:
                    return None
                reached_ms.append(clock.frontier_ms - delay_ms)
        return min(reached_ms)

    def _awake(self) -> list[Partition]:
        return [source for source in self.sources() if not self._idle & {source, source[0]}]
