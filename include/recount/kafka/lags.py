"""How far streams are behind the ends of their topics: the figure of Kafka's own tool, for all at once."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel
from confluent_kafka.admin import OffsetSpec

from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failing
from recount.kafka.offsets import Partition, list_offsets
from recount.runtime.times import clock_ms

ASKED_EVERY_S = 2.0
Read = Callable[[str], Mapping[Partition, int]]
"""Up to where a stream has read, by its name; asked where its group has no offset."""


@dataclass(frozen=True, kw_only=True)
class PartitionLag:
    """How far a group is behind in one partition, in offsets (transaction markers included, as in Kafka's tools).

    ``read`` is the next offset to be read: the one that is ``committed``, where there is one. ``end`` is the end of the
    log; ``decided`` is the last stable offset, up to which a reader of committed records gets.
    """

    committed: int | None
    read: int
    decided: int
    end: int

    @property
    def lag(self) -> int:
        """LAG of ``kafka-consumer-groups``: the log's end minus what is committed."""
        return max(0, self.end - self.read)

    @property
    def readable(self) -> int:
        """Records of the lag that can be read now: the rest belongs to an open transaction, or is behind one."""
        return max(0, self.decided - self.read)

    @property
    def is_blocked(self) -> bool:
        """Whether all that can be read is read, and an open transaction hides the rest."""
        return self.read >= self.decided and self.decided < self.end


@dataclass(frozen=True, kw_only=True)
class StreamLag:
    """How far a stream is behind, as the brokers said after ``at_ms``."""

    at_ms: int
    partitions: Mapping[Partition, PartitionLag] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(part.lag for part in self.partitions.values())

    @property
    def readable(self) -> int:
        """How much of it can be read now."""
        return sum(part.readable for part in self.partitions.values())


def _nothing(_stream: str) -> Mapping[Partition, int]:
    return {}


def lags_of(
    connection: Connection, topics: Mapping[str, Iterable[str]], read: Read = _nothing, at_ms: int | None = None
) -> dict[str, StreamLag]:
    """How far each stream is behind on its ``topics``; those that are not there have no part in it.

    A partition of which the group has no offset (any more) counts from where the stream has ``read`` to, and without
    that from the first record that is kept. The brokers are asked once for the ends of all topics, and once a stream
    for what is committed. Raises ``Transient`` where they do not say.
    """
    at_ms = clock_ms() if at_ms is None else at_ms
    places = _places(connection, topics)
    every = sorted({place for own in places.values() for place in own})
    if not every:
        return {stream: StreamLag(at_ms=at_ms) for stream in places}
    # what is committed first: a lag is never too small
    reached = _committed(connection, list(places))
    known = {stream: {**read(stream), **reached[stream]} if set(own) - reached[stream].keys() else reached[stream]
             for stream, own in places.items()}  # fmt: skip
    decided = list_offsets(connection, every, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    ends = list_offsets(connection, every, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    unknown = sorted({place for stream, own in places.items() for place in own if place not in known[stream]})
    starts = (
        list_offsets(connection, unknown, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED) if unknown else {}
    )
    return {
        stream: StreamLag(
            at_ms=at_ms,
            partitions={
                place: PartitionLag(
                    committed=reached[stream].get(place),
                    read=known[stream][place] if place in known[stream] else starts[place],
                    decided=decided[place],
                    end=ends[place],
                )
                for place in own
            },
        )
        for stream, own in places.items()
    }


def _places(connection: Connection, topics: Mapping[str, Iterable[str]]) -> dict[str, list[Partition]]:
    with failing("listing the topics"):
        there = connection.admin().list_topics(timeout=REQUEST_TIMEOUT_S).topics
    return {
        stream: [(topic, number) for topic in own if topic in there for number in sorted(there[topic].partitions)]
        for stream, own in topics.items()
    }


def _committed(connection: Connection, streams: list[str]) -> dict[str, dict[Partition, int]]:
    """Committed offsets of each stream's group; a commit that is not decided yet does not count, nor is it awaited.

    The answers are awaited together.
    """
    asked = {
        stream: connection.admin().list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(connection.group(stream))], request_timeout=REQUEST_TIMEOUT_S
        )[connection.group(stream)]
        for stream in streams
    }
    found = {}
    for stream, answer in asked.items():
        with failing(f"reading the offsets of group {connection.group(stream)}"):
            parts = answer.result().topic_partitions
        found[stream] = {(part.topic, part.partition): part.offset for part in parts if part.offset >= 0}
    return found


@dataclass(eq=False)
class LagWatch:
    """Knows how far streams are behind; the brokers are asked when the last answer is older than ``max_age_s``.

    One of it serves a whole process: while one thread asks, the others wait for its answer. ``last`` is what is known,
    however old it is.
    """

    ask: Callable[[Mapping[str, Collection[str]]], Mapping[str, StreamLag]]
    max_age_s: float = ASKED_EVERY_S
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.last: Mapping[str, StreamLag] = {}
        self._topics: dict[str, Collection[str]] = {}
        self._asked_s = float("-inf")
        self._busy = threading.Lock()

    def follow(self, stream: str, topics: Collection[str]) -> None:
        with self._busy:
            self._topics[stream] = topics
            self._asked_s = float("-inf")

    def forget(self, stream: str) -> None:
        with self._busy:
            self._topics.pop(stream, None)
            self.last = {name: one for name, one in self.last.items() if name != stream}

    def now(self) -> Mapping[str, StreamLag]:
        """The lags by stream. Raises what asking raises; then ``last`` stays as it was."""
        with self._busy:
            if self.clock() - self._asked_s >= self.max_age_s:
                found = self.ask(dict(self._topics))
                self.last, self._asked_s = found, self.clock()
            return self.last
