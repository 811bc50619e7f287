"""What every operator of the interpreter can do: take a record, notice that time has passed, end a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recount.core.interpreter.clock import Clock
from recount.core.interpreter.journal import Fate, Journal
from recount.core.interpreter.record import Entry, Record


@dataclass(kw_only=True)
class Operator:
    """An operator at work: it holds the state, and returns the records that leave."""

    journal: Journal
    clock: Clock

    def receive(self, record: Record, port: int) -> Iterable[Record]:
        """Take a record from the input number ``port``."""
        raise NotImplementedError

    def on_time(self) -> Iterable[Record]:
        """The frontier may have moved: let go what is due."""
        return ()

    def end_batch(self) -> Iterable[Record]:
        """A batch of records has ended."""
        return ()

    def drop(self, record: Record, fate: Fate) -> tuple[Record, ...]:
        """End the record here; one without the key that is needed does not advance stream time either."""
        if fate == "null key":
            self.clock.refuse(record.entry)
        self.journal.note(record.entry, fate)
        return ()

    def stream_time_ms(self, entry: Entry | None) -> int | None:
        """The stream time by which a record is judged; None for a derived record, which is never late."""
        return None if entry is None else self.clock.stream_time_ms(entry)
