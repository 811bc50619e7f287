"""Where Kafka stands with a stream, remembered for longer than a group's offsets, which expire after 7 days.

The transaction of a batch writes a record with the batch's name, time and offsets to the compacted topic
``recount.positions``, keyed by the stream. It is asked only where the group of the stream has no offsets.

How many backfills of a stream are on Kafka is the offset that their group commits with each of them, for the first
partition of ``recount.positions``, to which no sink may write.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, Message

from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import KafkaRecord
from recount.kafka.offsets import Partition, committed_offsets, log_ranges, messages, require_topics
from recount.kafka.topic_drift import POSITIONS
from recount.runtime.errors import Terminal, Transient

if TYPE_CHECKING:
    from recount.kafka.transaction import OutputTransaction

_LOG = logging.getLogger(__name__)
_AT_A_TIME = 20_000
_PAUSE_S = 0.5

Span = tuple[int, int]
"""The first offset that a batch read of a partition, and the one after the last."""


Batch = int | str


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A committed offset and what is said with it: the stream and batch that committed it, the batch's own time, where
    it began in the partition and the id of the checkpoint that planned it.
    """

    offset: int
    stream: str | None = None
    batch: Batch | None = None
    timestamp_ms: int | None = None
    start: int | None = None
    checkpoint_id: str | None = None

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> Committed:
        """The ``offset`` with what ``Position.metadata`` says; alone where that is of somebody else."""
        try:
            said = json.loads(metadata or "")
            return cls(
                offset=offset,
                stream=said["stream"],
                batch=said["batch"],
                timestamp_ms=said.get("timestamp_ms"),
                start=said.get("start"),
                checkpoint_id=said.get("checkpoint_id"),
            )
        except (ValueError, KeyError, TypeError):
            return cls(offset=offset)


class UnreadablePosition(Terminal): ...


@dataclass(frozen=True, kw_only=True)
class Position:
    """The last batch that Kafka has of ``stream``, and what it read.

    ``checkpoint_id`` is that of its plan, ``timestamp_ms`` the time that was recorded for it.
    """

    stream: str
    batch: Batch
    timestamp_ms: int | None
    checkpoint_id: str | None
    spans: Mapping[Partition, Span]

    def to_json(self) -> bytes:
        spans = [[topic, partition, *span] for (topic, partition), span in sorted(self.spans.items())]
        return self._said(spans=spans).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Position:
        try:
            said = json.loads(text)
            return cls(
                stream=str(said["stream"]),
                batch=said["batch"],
                timestamp_ms=said["timestamp_ms"],
                checkpoint_id=said["checkpoint_id"],
                spans={(str(topic), int(part)): (int(start), int(end)) for topic, part, start, end in said["spans"]},
            )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise UnreadablePosition.of("position-unreadable", given=text[:200]) from error

    def metadata(self, start: int) -> str:
        """The text that is committed with the end of a partition in which the batch began at ``start``."""
        return self._said(start=start)

    def _said(self, **more: object) -> str:
        names = ("stream", "batch", "timestamp_ms", "checkpoint_id")
        return json.dumps({**{name: getattr(self, name) for name in names}, **more}, separators=(",", ":"))

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Committed]:
        return {
            key: Committed(
                offset=self.spans[key][1],
                stream=self.stream,
                batch=self.batch,
                timestamp_ms=self.timestamp_ms,
                start=self.spans[key][0],
                checkpoint_id=self.checkpoint_id,
            )
            for key in partitions
            if key in self.spans
        }


def position_key(connection: Connection, group: str) -> str:
    """The key of the positions of the stream, or of its backfills, that commits to ``group``."""
    return group.removeprefix(f"{connection.prefix}.")


def published_offsets(connection: Connection, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The offsets that ``group`` has committed; of partitions where they have expired, those of its last position."""
    wanted = sorted(partitions)
    found = committed_offsets(connection, group, wanted)
    if len(found) == len(wanted):
        return found
    return {**last_ends(connection, group, wanted), **found}


def last_ends(connection: Connection, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The offsets that the last position of ``group`` has of ``partitions``."""
    position = last_position(connection, position_key(connection, group))
    known = position.spans if position else {}
    return {place: known[place][1] for place in partitions if place in known}


def last_position(
    connection: Connection, key: str, *, topic: str = POSITIONS, patience_s: float = 90.0
) -> Position | None:
    """The last committed position with ``key``; None where there is none, or it was forgotten.

    A transaction of another stream that is open does not hold this up, unless a record with ``key`` is behind its
    first record: only then it hides whether that one was committed. Raises ``Transient`` when it does so for longer
    than ``patience_s``, or when the brokers do not answer for as long.
    """
    place = (connection.own(topic), 0)
    require_topics(connection, (), [place[0]])
    deadline = time.monotonic() + patience_s
    while True:
        try:
            written = log_ranges(connection, [place], IsolationLevel.READ_UNCOMMITTED)[place]
            decided = log_ranges(connection, [place])[place]
            hidden = _newest_first(connection, place, key, decided.end, written.end, "read_uncommitted")
            if next(hidden, None) is None:
                found = _newest_first(connection, place, key, decided.start, decided.end, "read_committed")
                return next(_readable(found), None)
            problem = Transient.of(
                "last-position-undecided",
                given=f"a transaction of another stream is open on {place[0]} since offset {decided.end}",
                key=key,
            )
        except Transient as error:
            problem = error
        if time.monotonic() > deadline:
            raise problem
        time.sleep(_PAUSE_S)


def _readable(found: Iterator[Message]) -> Iterator[Position | None]:
    """Positions in ``found``; a record that anybody else wrote and cannot be read is passed over."""
    for message in found:
        value = message.value()
        try:
            yield None if value is None else Position.from_json(value)
        except UnreadablePosition as error:
            _LOG.warning("ignored %s@%s: %s", message.topic(), message.offset(), error)


def _newest_first(
    connection: Connection, place: Partition, key: str, start: int, end: int, isolation_level: str
) -> Iterator[Message]:
    """The records with ``key`` at ``start`` <= offset < ``end``."""
    while start < end:
        begin = max(start, end - _AT_A_TIME)
        found = messages(connection, *place, begin, end, isolation_level)
        yield from reversed([message for message in found if message.key() == key.encode()])
        end = begin


def backfill_counter(connection: Connection) -> Partition:
    """The partition for which the number of backfills on Kafka is committed."""
    return connection.own(POSITIONS), 0


def published_backfills(connection: Connection, topology: Topology) -> int:
    """Ask this before the ends of the sinks' topics: the topics hold these backfills then."""
    counter = backfill_counter(connection)
    return published_offsets(connection, connection.backfill_group(topology.name), [counter]).get(counter, 0)


def backfills_of(output: OutputTransaction, connection: Connection) -> int:
    """The same count, read by ``output``, the outputs of the backfills. Nobody else can publish one meanwhile."""
    return max((one.offset for one in output.committed([backfill_counter(connection)]).values()), default=0)


def publish_backfill(
    output: OutputTransaction, connection: Connection, number: int, name: str, records: Iterable[KafkaRecord]
) -> None:
    """Publish the backfill ``name`` and count it, in one transaction; do nothing where it has been published."""
    counter = backfill_counter(connection)
    output.commit_once(records, start_offsets={counter: number}, end_offsets={counter: number + 1}, batch=name)
