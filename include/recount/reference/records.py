"""Records on their way through the interpreter: from raw bytes to a row, and what became of every offset.

``Intake`` tests what makes a record bad, in a fixed order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from recount.declare.operators.keys_and_fields import key_of, key_text, topics_needing_a_key
from recount.declare.operators.nodes import Source
from recount.declare.schema import BadRecord, Headers, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.tables.ledger import unit_ahead
from recount.tables.signed_orders import SET_ASIDE, RecordPlace

Partition = tuple[str, int]
"""A topic and a partition of it."""
Row = Mapping[str, Any]
# A waiting record is held until time has passed (a lookup with grace, a deduplication by event time).
Fate = Literal["counted", "late", "deduplicated", "null value", "null key", "filtered", "waiting", "dead-lettered"]
_OF_OPERATORS: tuple[Fate, ...] = ("counted", "late", "deduplicated", "null value", "null key", "filtered", "waiting")
_PRECEDENCE: tuple[Fate, ...] = ("dead-lettered", *_OF_OPERATORS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The place at which a record entered from the log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def source(self) -> Partition:
        return self.topic, self.partition


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One record between two operators.

    ``row`` has every field of the operator it left, the key included. ``is_null``: the value is null (in a table: the
    key was deleted); then all fields but the key, and a window's bounds, mean nothing. ``order`` sorts records as the
    log does, by (topic, partition, offset). ``entry`` is where it entered; None for a derived record (a join's
    result, a window's), which is never late, because what made it was on time. ``stream_time_ms`` is by what it is
    judged further down, where an operator has held it back; None for any other, which the clock of the judging operator
    judges. ``revision`` counts the results of one key and window. ``superseded``: a change of a versioned table that is
    older than the key's latest one.
    """

    row: Row
    timestamp_ms: int
    order: tuple[Any, ...]
    entry: Entry | None
    stream_time_ms: int | None = None
    is_null: bool = False
    revision: int = 0
    superseded: bool = False

    def with_row(self, row: Row) -> Record:
        # each step of each record makes one: ``replace`` takes nearly twice as long
        return Record(
            row=row,
            timestamp_ms=self.timestamp_ms,
            order=self.order,
            entry=self.entry,
            stream_time_ms=self.stream_time_ms,
            is_null=self.is_null,
            revision=self.revision,
            superseded=self.superseded,
        )

    @property
    def source(self) -> Partition | None:
        """The partition among whose records it is judged.

        None for a record that is judged by itself: a derived one, and one that was held back, because others of its
        partition may have overtaken it.
        """
        return None if self.entry is None or self.stream_time_ms is not None else self.entry.source


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
    _holders: Counter[Entry] = field(default_factory=Counter)
    _let_go: set[Entry] = field(default_factory=set)

    def set_aside(self, entry: Entry, reason: str, detail: str) -> None:
        """A function raised for the record; of several the first by reason is kept, however they were called."""
        self.raised[entry] = min((reason, detail), self.raised.get(entry, (reason, detail)))
        self.note(entry, "dead-lettered")

    def close(self, entry: Entry) -> None:
        """The record has passed all operators; one that nothing took up, nor holds, was filtered."""
        self.fates.setdefault(entry, "filtered")

    def note(self, entry: Entry | None, fate: Fate) -> None:
        """Say what an operator did with a record; where operators differ the first of ``_PRECEDENCE`` holds."""
        if entry is not None:
            known = fate if entry in self._let_go else self.fates.get(entry, fate)
            self.fates[entry] = min(fate, known, key=_PRECEDENCE.index)
            self._holders[entry] += fate == "waiting"
            self._let_go.discard(entry)

    def let_go(self, entry: Entry | None) -> None:
        """One operator holds the record no more; where no other does, it was filtered unless one below takes it."""
        if entry is not None:
            self._holders[entry] -= 1
            if not self._holders[entry] and self.fates[entry] == "waiting":
                self.fates[entry] = "filtered"
                self._let_go.add(entry)

    def count(self) -> dict[Fate, int]:
        """How many records met which fate: every record that was read has exactly one."""
        return dict(Counter(self.fates.values()))


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A good record: where it entered, its decoded key and its fields."""

    entry: Entry
    key: str | None
    fields: Row

    def row(self, source: Source) -> Row:
        """The fields and the key as ``source`` names it."""
        return {**self.fields, source.key: self.key}


class Intake:
    """Decodes the records of a topology's source topics; those that are ``set_aside`` are bad."""

    def __init__(self, topology: Topology, set_aside: Iterable[RecordPlace] = ()) -> None:
        self._topics: dict[str, Topic] = {source.topic.name: source.topic for source in topology.sources}
        self._keyed = topics_needing_a_key(topology)
        self._max_future_ms = topology.max_future_ms
        self._set_aside = frozenset(set_aside)

    def take(
        self,
        *,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        wall_clock_ms: int | None,
        headers: Headers = (),
    ) -> Taken | DeadLetter:
        """The record decoded, or its dead letter."""
        declared = self._topics[topic]
        try:
            if RecordPlace(topic=topic, partition=partition, offset=offset) in self._set_aside:
                raise BadRecord(SET_ASIDE, "somebody ordered to set the record aside")
            fields = _fields(declared, value, headers, key)
            text = self._key(topic, key, fields)
            event_time_ms = _event_time_ms(declared, fields, timestamp_ms)
            if wall_clock_ms is not None and event_time_ms > wall_clock_ms + self._max_future_ms:
                unit = unit_ahead(event_time_ms, timestamp_ms)
                looks = f", it looks like {unit}" if unit else ""
                raise BadRecord("future-timestamp", f"event time {event_time_ms} ms{looks}")
        except BadRecord as bad:
            return DeadLetter(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp_ms,
                key=key,
                value=value,
                reason=bad.reason,
                detail=bad.detail,
            )
        entry = Entry(topic=topic, partition=partition, offset=offset, timestamp_ms=event_time_ms)
        return Taken(entry=entry, key=text, fields=fields)

    def _key(self, topic: str, key: bytes | None, fields: Mapping[str, Any]) -> str | None:
        needed = topic in self._keyed
        if key is None:
            if needed:
                raise BadRecord("null-key", "the record has no key")
            return None
        declared = self._topics[topic]
        names = declared.key_fields
        text = key_of({name: fields[name] for name in names}) if names else key_text(declared, key)
        if text is None and needed:
            raise BadRecord("undecodable", "the key is no text")
        return text


def _fields(topic: Topic, value: bytes | None, headers: Headers, key: bytes | None) -> dict[str, Any]:
    assert topic.value is not None, "checked by Source"
    if isinstance(topic.value, RecordSchema):
        if value is not None:
            return topic.value.decode(value, headers, key)
        return dict.fromkeys(topic.value.fields) | topic.value.of_raw_key(key)
    return dict.fromkeys(topic.value.fields) if value is None else topic.value.decode(value)


def _event_time_ms(topic: Topic, fields: Mapping[str, Any], timestamp_ms: int) -> int:
    event_time_ms = timestamp_ms if topic.event_time is None else fields[topic.event_time]
    if event_time_ms is None:
        raise BadRecord("schema", f"event time {topic.event_time} is missing")
    if event_time_ms < 0:
        raise BadRecord("negative-timestamp", f"event time {event_time_ms} ms")
    return int(event_time_ms)
