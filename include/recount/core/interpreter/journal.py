"""What became of every record: the late ledger, the dead letters, and one fate for each offset."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from recount.core.interpreter.record import Entry

# A waiting record is held until time has passed (a lookup with grace, a deduplication by event time).
Fate = Literal["counted", "late", "deduplicated", "null value", "null key", "filtered", "waiting", "dead-lettered"]
_OF_OPERATORS: tuple[Fate, ...] = ("counted", "late", "deduplicated", "null value", "null key", "filtered", "waiting")
_PRECEDENCE: tuple[Fate, ...] = ("dead-lettered", *_OF_OPERATORS)


@dataclass(frozen=True, kw_only=True)
class LateRecord:
    """A record that was late for one window (a join: for its partners, without window bounds).

    ``margin_ms`` is how far the stream time had passed the last moment at which it would have been on time.
    """

    topic: str
    partition: int
    offset: int
    key: object
    timestamp_ms: int
    stream_time_ms: int
    margin_ms: int
    window_start: int | None = None
    window_end: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A record that could not be processed, with the reason by which its dead-letter topic is sorted."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    reason: str
    detail: str


@dataclass
class Journal:
    """Written by the operators, read by the driver."""

    late: list[LateRecord] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    fates: dict[Entry, Fate] = field(default_factory=dict)
    raised: dict[Entry, tuple[str, str]] = field(default_factory=dict)

    def set_aside(self, entry: Entry, reason: str, detail: str) -> None:
        """A function raised for the record; of several the first by reason is told, however they were called."""
        self.raised[entry] = min((reason, detail), self.raised.get(entry, (reason, detail)))
        self.note(entry, "dead-lettered")

    def close(self, entry: Entry) -> None:
        """The record has passed all operators; one that nothing took up, nor holds, was filtered."""
        self.fates.setdefault(entry, "filtered")

    def note(self, entry: Entry | None, fate: Fate) -> None:
        """Say what an operator did with a record; where operators differ the first of ``_PRECEDENCE`` holds."""
        if entry is not None:
            known = self.fates.get(entry, fate)
            self.fates[entry] = min(fate, known, key=_PRECEDENCE.index)

    def count(self) -> dict[Fate, int]:
        """How many records met which fate: every record that was read has exactly one."""
        return dict(Counter(self.fates.values()))
