"""Log ends, and the explanation of offsets that no reader gets to see."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, committed_of_group, failing, failure
from recount.runtime.errors import Terminal, Transient

Partition = tuple[str, int]

_READ_BATCH = 10_000
_TOPIC_KNOWN_WITHIN_S = 3.0
_LED_ELSEWHERE = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,  # librdkafka's own: of a topic that was just created it knows no leader
    }
)
"""The client does not know yet which broker leads a partition now."""
TO_THE_END = {"enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
"""Settings of a consumer that reads a range: it may end in a transaction marker, of which only the end of the partition
tells, and the brokers hold that back for as long as a fetch may wait."""


@dataclass(frozen=True, kw_only=True)
class LogRange:
    """The offsets a partition holds: ``start`` is the first kept one, ``end`` the next to be written or decided.

    ``end`` is the last stable offset: records of a transaction that is still open are not before it.
    """

    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Offsets of ``[start, end)`` that are not among the committed records, by reason; each field counts offsets.

    ``visible + aborted + control + compacted + expired == end - start`` always holds. On a topic that is compacted, a
    marker and a compacted record cannot be distinguished, and both count as ``compacted``.
    """

    topic: str
    partition: int
    start: int
    end: int
    visible: int
    aborted: int
    control: int
    compacted: int
    expired: int


class MissingTopics(Terminal):
    """Topics of a stream are not there, or not yet: they may be about to be created."""


class UnreadRecordsGone(Terminal):
    """Kafka no longer holds records that a stream was to read next."""


def partitions_of(connection: Connection, topic: str) -> list[Partition]:
    """All partitions of an existing topic; ``Terminal`` when there is no such topic."""
    with failing(f"describing topic {topic}"):
        found = connection.admin().list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    if found.error is not None:
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise Terminal.of("no-such-topic", given=topic)
        raise failure(f"describing topic {topic}", found.error)
    return [(topic, partition) for partition in sorted(found.partitions)]


def require_topics(connection: Connection, read: Iterable[str], written: Iterable[str]) -> None:
    """Raise ``MissingTopics`` that names every topic of a stream that is not there, and who is to create it.

    A topic that was created a moment ago is waited for: not every broker knows of it at once.
    """
    needed = {
        **dict.fromkeys(written, "the stream writes to it: `recount topics --apply`"),
        **dict.fromkeys(read, "the stream reads it: its owner creates it"),
    }
    admin, deadline = connection.admin(), time.monotonic() + _TOPIC_KNOWN_WITHIN_S
    while missing := {name: needed[name] for name in needed.keys() - _listed(admin)}:
        if time.monotonic() < deadline:
            time.sleep(0.5)
            continue
        _require_allowed(admin, sorted(missing))
        raise MissingTopics.of(
            "topics-missing",
            given=sorted(missing),
            remedy="; ".join((f"{name}: {who}" for name, who in sorted(missing.items()))),
        )


def _require_allowed(admin: AdminClient, topics: Iterable[str]) -> None:
    """Raise ``NotAllowed`` where a topic is not listed because this user may not see it."""
    for topic in topics:
        with failing("listing the topics"):
            error = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].error
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise failure(f"looking at topic {topic}", error)


def _listed(admin: AdminClient) -> set[str]:
    with failing("listing the topics"):
        return set(admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)


def log_ranges(
    connection: Connection,
    partitions: Iterable[Partition],
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[Partition, LogRange]:
    """The log of each partition: by default what is decided of it, as a read_committed reader finds it."""
    asked = sorted(partitions)
    starts = list_offsets(connection, asked, OffsetSpec.earliest(), isolation_level)
    ends = list_offsets(connection, asked, OffsetSpec.latest(), isolation_level)
    return {key: LogRange(start=starts[key], end=ends[key]) for key in asked}


def require_kept(connection: Connection, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
    """Raise ``Terminal`` unless Kafka still holds the offsets from ``starts`` to ``ends``."""
    kept = log_ranges(connection, ends)
    lost = {
        key: f"{starts[key]} to {end}, kept from {kept[key].start} to {kept[key].end}"
        for key, end in ends.items()
        if starts[key] < end and not (kept[key].start <= starts[key] and end <= kept[key].end)
    }
    if lost:
        raise Terminal.of("records-to-repeat-gone", given=lost)


def require_unread_kept(connection: Connection, stream: str, starts: Mapping[Partition, int]) -> None:
    """Raise ``UnreadRecordsGone`` unless Kafka holds what ``stream`` reads next, from the offsets ``starts`` on.

    Spark would fail with advice of its own, and again with every relaunch. A log that starts, or ends, at the offset
    itself holds all of it.
    """
    kept = log_ranges(connection, starts, IsolationLevel.READ_UNCOMMITTED)
    gone = [
        f"{topic}-{partition}: from {start} on, kept from {span.start} to {span.end}"
        for (topic, partition), start in sorted(starts.items())
        if not (span := kept[topic, partition]).start <= start <= span.end
    ]
    if gone:
        raise UnreadRecordsGone.of("unread-records-gone", given="; ".join(gone), stream=stream)


def deleted_before(connection: Connection, stream: str, partitions: Iterable[Partition]) -> str | None:
    """The warning for a ``stream`` that has read nothing yet: of which ``partitions`` the first records are deleted."""
    kept = log_ranges(connection, partitions, IsolationLevel.READ_UNCOMMITTED)
    gone = [
        f"{topic}-{partition} before {span.start}" for (topic, partition), span in sorted(kept.items()) if span.start
    ]
    return (
        f"{stream} begins with what Kafka still has; it has deleted the offsets of {', '.join(gone)}. Were they to be "
        "read, for instance records of former years: keep the topic for longer (retention_ms), and send them again"
        if gone
        else None
    )


def committed_offsets(connection: Connection, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The group's committed offsets, waiting for pending transactions; partitions without one are left out."""
    asked = [TopicPartition(topic, partition) for topic, partition in sorted(partitions)]
    consumer = connection.consumer(group)
    try:
        answers = committed_of_group(consumer, asked, group)
    finally:
        consumer.close()
    return {(answer.topic, answer.partition): answer.offset for answer in answers if answer.offset >= 0}


def classify_gap(connection: Connection, topic: str, partition: int, start: int, end: int) -> Gap:
    """Account for every offset of ``[start, end)``: visible, aborted, a transaction marker, compacted or expired.

    Reads the range twice, read_committed and read_uncommitted, so give it the gaps of an audit, not its whole range.
    An offset that neither reading shows is below the log's start (expired), or was compacted away where the topic is
    compacted, or else is a transaction marker: nothing else takes up an offset where records are only ever deleted by
    age or size.

    Raises ``Terminal`` when ``end`` is beyond the committed log.
    """
    kept = log_ranges(connection, [(topic, partition)])[topic, partition]
    if end > kept.end or start > end:
        raise Terminal.of("offsets-not-in-the-log", given=f"{topic}-{partition}@[{start}, {end})", end=kept.end)
    first = min(max(start, kept.start), end)
    written = {message.offset() for message in messages(connection, topic, partition, first, end, "read_uncommitted")}
    visible = {message.offset() for message in messages(connection, topic, partition, first, end, "read_committed")}
    unseen = end - first - len(written)
    compacted = is_compacted(connection, topic)
    return Gap(
        topic=topic,
        partition=partition,
        start=start,
        end=end,
        visible=len(visible),
        aborted=len(written - visible),
        control=0 if compacted else unseen,
        compacted=unseen if compacted else 0,
        expired=first - start,
    )


def messages(
    connection: Connection, topic: str, partition: int, start: int, end: int, isolation_level: str
) -> Iterator[Message]:
    """The records of ``[start, end)`` that a reader of this isolation level is given, in order.

    That there are no more, the end of the partition tells, whose offset counts transaction markers; a consumer's own
    position stays before a marker that no record follows.
    """
    if start >= end:
        return
    consumer = connection.consumer(
        connection.own("recount.offsets"), {"isolation.level": isolation_level, **TO_THE_END}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            for message in _consume(consumer, topic):
                if message.error() is not None or (message.offset() or 0) >= end:
                    return
                yield message
    finally:
        consumer.close()


def _consume(consumer: Consumer, topic: str) -> Iterator[Message]:
    """Messages that have come; a message with an error is the end of the partition."""
    first = consumer.poll(REQUEST_TIMEOUT_S)
    if first is None:
        raise Transient.of("no-answer-while-reading", topic=topic)
    for message in (first, *consumer.consume(_READ_BATCH, 0)):
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise failure(f"reading {topic}", error)
        yield message


def list_offsets(
    connection: Connection, partitions: list[Partition], spec: OffsetSpec, isolation_level: IsolationLevel
) -> dict[Partition, int]:
    """The offset of each partition that ``spec`` means.

    Asked for again, as long as a request may take, where the leader of a partition has moved or is not known yet.
    """
    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    admin, deadline = connection.admin(), time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            futures = admin.list_offsets(asked, isolation_level=isolation_level, request_timeout=REQUEST_TIMEOUT_S)
            return {(key.topic, key.partition): answer.result().offset for key, answer in futures.items()}
        except KafkaException as error:
            if error.args[0].code() not in _LED_ELSEWHERE or time.monotonic() > deadline:
                raise failure("listing offsets", error) from error
        # the client learns from it who leads now
        _listed(admin)
        time.sleep(0.2)


def is_compacted(connection: Connection, topic: str) -> bool:
    """Whether the brokers remove records of ``topic`` that a later one of the same key replaces."""
    return "compact" in setting_of(connection, topic, "cleanup.policy")


def retention_ms_of(connection: Connection, topic: str) -> int:
    """For how long the brokers keep the records of ``topic``; -1: for ever."""
    return int(setting_of(connection, topic, "retention.ms"))


def setting_of(connection: Connection, topic: str, name: str) -> str:
    """The setting that the brokers use for ``topic``; raises the ``failure`` of a refusal."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = connection.admin()
    with failing(f"describing topic {topic}"):
        settings = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
    return str(settings[name].value)


def spans_of(connection: Connection, topics: Iterable[str]) -> dict[str, dict[int, LogRange]]:
    """The first offset that is kept, and the one after the last, by topic and partition."""
    admin = connection.admin()
    there = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    found: dict[str, dict[int, LogRange]] = {}
    for topic in topics:
        if topic in there:
            ranges = log_ranges(connection, partitions_of(connection, topic))
            found[topic] = {partition: span for (_, partition), span in ranges.items()}
    return found


def ends_of(connection: Connection, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """The offset of the next record, by topic and partition."""
    spans = spans_of(connection, topics)
    return {topic: {part: span.end for part, span in found.items()} for topic, found in spans.items()}
