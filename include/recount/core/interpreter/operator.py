"""What every operator of the interpreter can do: take a record, notice that time has passed, end a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from recount.core.event_time import is_held_back
from recount.core.interpreter.clock import Clock
from recount.core.interpreter.journal import Fate, Journal, LateRecord
from recount.core.interpreter.record import Record
from recount.core.nodes import Node
from recount.core.user_functions import failed, is_of_the_record, message_of, reason_of


@dataclass(kw_only=True)
class Operator(ABC):
    """An operator at work: it holds the state, and returns the records that leave."""

    journal: Journal
    clock: Clock

    @abstractmethod
    def receive(self, record: Record, port: int) -> Iterable[Record]:
        """Take a record from the input number ``port``."""

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

    def raised(self, node: Node, record: Record, error: Exception) -> tuple[Record, ...]:
        """A function of ``node`` raised: set the record aside, or raise where there is none that is read just now."""
        if record.entry is None or is_held_back(node) or not is_of_the_record(error):
            raise failed(node, place_of(record, node), error) from error
        self.journal.set_aside(record.entry, reason_of(node, error), message_of(error))
        return ()

    def stream_time_ms(self, record: Record) -> int | None:
        """The stream time by which a record is judged: its own if it was held back, else that of the clock here.

        None for a derived record, which is never late.
        """
        if record.entry is None or record.stream_time_ms is not None:
            return record.stream_time_ms
        return self.clock.stream_time_ms(record.entry)

    def is_late(self, record: Record, key: Any, bound_ms: int, left_ms: int | None = None) -> bool:
        """Whether ``ts + bound`` is less than the stream time of the record's partition, or than ``left_ms``."""
        entry, stream_time_ms = record.entry, self.stream_time_ms(record)
        if entry is None or stream_time_ms is None:
            return False
        reached_ms = stream_time_ms if left_ms is None else max(stream_time_ms, left_ms)
        margin_ms = reached_ms - record.timestamp_ms - bound_ms - 1
        if margin_ms < 0:
            return False
        self.journal.late.append(
            LateRecord(
                topic=entry.topic,
                partition=entry.partition,
                offset=entry.offset,
                key=key,
                timestamp_ms=record.timestamp_ms,
                stream_time_ms=reached_ms,
                margin_ms=margin_ms,
            )
        )
        return True

    def held_back(self, record: Record) -> Record:
        """The record as it goes on from an operator that holds records back: judged by what that has seen."""
        return replace(record, stream_time_ms=self.stream_time_ms(record))


def place_of(record: Record, node: Node) -> str:
    """Where the record came from, in words."""
    at = record.entry
    return (
        f"a derived row: key {record.row[node.inputs[0].key]!r}"
        if at is None
        else f"{at.topic}-{at.partition}@{at.offset}"
    )
