"""Clock and base class of the interpreter's operators: stream times, the frontier, stateless operators, sinks.

    partition 0   10 s ── 20 s ── 15 s ── 40 s        stream time 40 s
    partition 1    5 s ── 12 s                        stream time 12 s
                                                      frontier    12 s, the smallest

A record is late by its own partition's stream time; a result is due by the frontier.

A row that leaves an operator without state keeps its place in the log, and so its stream time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

from recount.declare.evaluation import evaluate
from recount.declare.functions import as_declared, failed, handed, is_of_the_record, message_of, own_values, reason_of
from recount.declare.operators.event_time import is_held_back
from recount.declare.operators.nodes import (
    KEY,
    WINDOW_END,
    WINDOW_START,
    Filter,
    Node,
    SelectKey,
    Stateless,
    WithFields,
)
from recount.declare.operators.placement import can_be_withdrawn
from recount.declare.operators.stateless import MERGED_FROM, FlatMap, Foreach, Merge, Peek, Select
from recount.declare.topology import Written
from recount.reference.records import Entry, Fate, Journal, LateRecord, Partition, Record, Row


class Above(NamedTuple):
    """The clock of an operator further up, and how far behind its frontier its results can be here.

    ``hands_on``: its records come here themselves, so that those it refuses do not.
    """

    clock: Clock
    delay_ms: int
    hands_on: bool = True


@dataclass(eq=False)
class Clock:
    """Stream times as one operator sees them, over the ``topics`` it is fed from.

    Every operator that judges time has a clock of its own, because a record with a null key does not advance the stream
    time of an operator that needs the key, while it advances those of the others. ``partitions`` says of a topic how
    many it has; the frontier waits for each of them. No clock runs ahead of those ``above``, the nearest operators
    further up that judge time: what they refused does not advance it, and its frontier waits for theirs. Below an
    operator that ``holds_back`` records all of them advance it as they are read: whether one has a key shows only
    later. A record that was held back is not asked about here: it knows by which stream time it is judged.
    """

    topics: Iterable[str]
    delay_ms: int = 0
    partitions: Mapping[str, int] = field(default_factory=dict)
    _: KW_ONLY
    above: Sequence[Above] = ()
    holds_back: bool = False

    def __post_init__(self) -> None:
        self._topics = frozenset(self.topics)
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
        refused = entry == self._refused or any(one.clock.passed_over(entry) for one in self.above if one.hands_on)
        accepted = self.holds_back or entry == self._accepted
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

        None for any other record: the time that it found is not kept.
        """
        found_ms = None if entry is None or entry != self.arriving else self._stream_times.get(entry.source)
        return None if found_ms is None else found_ms - self.delay_ms

    def declare_idle(self, topic: str, partition: int | None) -> None:
        """The partition (None: the whole topic) holds the frontier back no more until it speaks again."""
        if topic in self._topics:
            self._idle.add(topic if partition is None else (topic, partition))

    def sources(self) -> set[Partition]:
        """Every partition that has spoken or is known to be there; of a topic without any, partition 0."""
        silent = self._topics - {topic for topic, _ in self._stream_times}
        known = {topic: self.partitions.get(topic, int(topic in silent)) for topic in self._topics}
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
        reached_ms = [min(self._stream_times[source] for source in awake) - self.delay_ms]
        for clock, delay_ms, _ in self.above:
            if clock._awake():
                if clock.frontier_ms is None:
                    return None
                reached_ms.append(clock.frontier_ms - delay_ms)
        return min(reached_ms)

    def _awake(self) -> list[Partition]:
        return [source for source in self.sources() if not self._idle & {source, source[0]}]


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


@dataclass(kw_only=True)
class StatelessOperator(Operator):
    node: Stateless

    def receive(self, record: Record, port: int) -> Iterable[Record]:
        """The records that the operator makes of the record."""
        row, given = record.row, self.node.inputs[0].fields
        match self.node:
            case Filter(predicate=predicate):
                if evaluate(predicate, row, given) is True:
                    return (record,)
                is_replaced = record.revision > 0 and can_be_withdrawn(self.node.input)
                return (replace(record, is_null=True),) if is_replaced else ()
            case WithFields(added=added):
                made = {name: evaluate(tree, row, given) for name, tree in added.items()}
                return (record.with_row({**row, **made}),)
            case SelectKey(key=key, by=by):
                return (record.with_row({**row, key: evaluate(by, row, given)}),)
            case Select(chosen=chosen, key=key):
                made = {name: evaluate(tree, row, given) for name, tree in chosen.items()}
                return (record.with_row({key: row[key], **made}),)
            case FlatMap() as node:
                return self._mapped(node, record)
            case Merge(names=names, fields=fields):
                source = {} if names is None else {MERGED_FROM: names[port]}
                return (record.with_row({**dict.fromkeys(fields), **row, **source}),)
            case Foreach() as node:
                self._show(node, record)
                self.journal.note(record.entry, "counted")
                return ()
            case Peek() as node:
                self._show(node, record)
        return (record,)

    def _mapped(self, node: FlatMap, record: Record) -> Iterable[Record]:
        key = {node.key: record.row[node.key]}
        try:
            made = [{}] if record.is_null else node.function(handed(record.row, node.input.fields))
            returned = [own_values({**row, **key}) for row in made]
        except Exception as error:
            return self.raised(node, record, error)
        return [record.with_row(as_declared(row, node.fields, node)) for row in returned]

    def _show(self, node: Peek, record: Record) -> None:
        try:
            node.action(handed(record.row, node.fields))
        except Exception as error:
            raise failed(node, place_of(record, node), error) from error


@dataclass(frozen=True, kw_only=True)
class Output:
    """A record that was written to a sink's topic; ``value`` None is a deletion.

    ``timestamp_ms`` is the largest event time behind it. ``revision`` 0 is the first result of its key and window.
    """

    key: Any
    value: Mapping[str, Any] | None
    timestamp_ms: int
    revision: int = 0
    window: tuple[int, int] | None = None


@dataclass(kw_only=True)
class SinkOperator(Operator):
    """Writes what it gets to the end of its topic, and hands it on (``through``)."""

    node: Written
    written: list[Output]

    def receive(self, record: Record, port: int) -> Iterable[Record]:  # noqa: ARG002 - it has one input
        """Write the fields of the record; the record key is not one of them until ``select_key`` names it.

        A plain value that is null is a deletion: the topic cannot tell one from the other.
        """
        self.journal.note(record.entry, "counted")
        row = record.row
        plain = self.node.topic.plain_field
        is_null = record.is_null or (plain is not None and row[plain] is None)
        value = None if is_null else {name: row[name] for name in self.node.fields if name != KEY}
        window = (row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in self.node.fields else None
        self.written.append(
            Output(
                key=row[self.node.key],
                value=value,
                timestamp_ms=record.timestamp_ms,
                revision=record.revision,
                window=window,
            )
        )
        return (record,)


def table_of(outputs: Iterable[Output]) -> list[Row]:
    """The rows that remain when every output replaces the one before it of the same key and window."""
    latest: dict[Any, Mapping[str, Any] | None] = {}
    for output in outputs:
        latest[output.key, output.window] = output.value
    return [value for value in latest.values() if value is not None]
