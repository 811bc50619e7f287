"""Records that a driver's streams have not read: how many, since when, and which open transaction blocks them.

Kafka's Java client says who has a transaction open on a partition: the client for Python cannot ask that.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from recount.declare.limits import Health
from recount.kafka.connection import Connection
from recount.kafka.lags import ASKED_EVERY_S, LagWatch, StreamLag, lags_of
from recount.kafka.offsets import TO_THE_END, Partition
from recount.kafka.status import StreamStatus
from recount.runtime.errors import RecountError
from recount.runtime.times import clock_ms, roughly

_LOG = logging.getLogger(__name__)
_AGE_EVERY_S = 10.0
_PATIENCE_S = 2.0
_NAMED_AFTER_MS = 5_000
_NAMED_EVERY_MS = 60_000
_ALARM_AFTER_MS = Health().open_transaction_ms
_ONE_RECORD = {"isolation.level": "read_uncommitted", "queued.min.messages": 1, "max.partition.fetch.bytes": 16_384}
"""Settings of a consumer that wants the first record of a partition, and not the megabytes after it."""
Place = tuple[Partition, int]
"""A partition and an offset."""
NameProducer = Callable[[Partition, int], str | None]
"""Who has a transaction open that begins at an offset of a partition; None where that cannot be found out."""
_CLIENT = "kafka."
_CLIENT_PATIENCE_S = 10


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Reading of ``place`` stands at ``offset`` since ``since_ms``: a transaction ``by`` somebody is open there."""

    place: Partition
    offset: int
    since_ms: int
    by: str | None = None

    def __str__(self) -> str:
        return (
            f"reading of {self.place[0]}-{self.place[1]} stands at offset {self.offset}: an open transaction"
            f" of {self.by or 'a producer that could not be named'}"
        )


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Unread records of one stream: ``lag``, the time of the oldest, and the partition that was blocked first."""

    lag: StreamLag
    oldest_ms: int | None = None
    blocked: Blocked | None = None


def with_unread(status: StreamStatus, unread: Unread) -> StreamStatus:
    """``status`` with what is ``unread``."""
    blocked = unread.blocked
    return replace(
        status,
        lag=unread.lag.records,
        lag_at_ms=unread.lag.at_ms,
        oldest_unread_ms=unread.oldest_ms,
        blocked_place=f"{blocked.place[0]}-{blocked.place[1]}" if blocked else None,
        blocked_offset=blocked.offset if blocked else None,
        blocked_since_ms=blocked.since_ms if blocked else None,
        blocked_by=blocked.by if blocked else None,
    )


def blocked_in(lag: StreamLag, known: Collection[Blocked]) -> list[Blocked]:
    """The partitions that open transactions block in ``lag``, the first one first; those ``known`` still are.

    One is known as long as the last stable offset stands where it stood.
    """
    before = {(one.place, one.offset): one for one in known}
    found = [
        before.get((place, part.decided), Blocked(place=place, offset=part.decided, since_ms=lag.at_ms))
        for place, part in lag.partitions.items()
        if part.is_blocked
    ]
    return sorted(found, key=lambda one: (one.since_ms, one.place))


class UnreadRecords:
    """Asks the brokers for all streams of a driver together, in a thread of its own: no stream waits for an answer.

    What they last said stands, with its time, while they do not answer.
    """

    def __init__(self, connection: Connection, name_producer: NameProducer, every_s: float = ASKED_EVERY_S) -> None:
        self._connection = connection
        self._name_producer = name_producer
        self._every_s = every_s
        self._read: dict[str, Callable[[], Mapping[Partition, int]]] = {}
        self._lags = LagWatch(lambda topics: lags_of(connection, topics, self._read_to), max_age_s=0)
        self._known: dict[str, Unread] = {}
        self._blocked: dict[str, list[Blocked]] = {}
        self._names: dict[Place, tuple[int, str | None]] = {}
        self._aged: dict[str, tuple[float, Collection[Place]]] = {}
        self._ending = threading.Event()
        self._consumer: Consumer | None = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="unread records", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join(_PATIENCE_S)

    @contextmanager
    def following(
        self, stream: str, topics: Collection[str], read: Callable[[], Mapping[Partition, int]]
    ) -> Iterator[None]:
        """Ask meanwhile for ``stream`` and its ``topics``; ``read`` says where it stands if its group has no offset."""
        self._read[stream] = read
        self._lags.follow(stream, topics)
        try:
            yield
        finally:
            self._lags.forget(stream)
            for known in (self._read, self._known, self._blocked, self._aged):
                known.pop(stream, None)

    def of(self, stream: str) -> Unread | None:
        """The last known of ``stream``; None before anything was."""
        return self._known.get(stream)

    def _read_to(self, stream: str) -> Mapping[Partition, int]:
        read = self._read.get(stream)
        return read() if read else {}

    def _run(self) -> None:
        while not self._ending.wait(self._every_s if self._known else min(self._every_s, ASKED_EVERY_S)):
            try:
                for stream, lag in self._lags.now().items():
                    self._take(stream, lag)
                blocked = {(one.place, one.offset) for several in self._blocked.values() for one in several}
                self._names = {at: known for at, known in self._names.items() if at in blocked}
            except (RecountError, KafkaException) as error:
                _LOG.warning("how far the streams are behind is not known: %s", error)
            except Exception:
                _LOG.exception("how far the streams are behind is not known")
        if self._consumer is not None:
            self._consumer.close()

    def _take(self, stream: str, lag: StreamLag) -> None:
        blocked = [self._named(one) for one in blocked_in(lag, self._blocked.get(stream, ()))]
        self._tell(stream, self._blocked.get(stream, ()), blocked, lag)
        if stream in self._read:
            self._blocked[stream] = blocked
            self._known[stream] = Unread(
                lag=lag, oldest_ms=self._oldest_of(stream, lag), blocked=blocked[0] if blocked else None
            )

    def _named(self, blocked: Blocked) -> Blocked:
        """``blocked`` with who holds it, asked again and again until that is known."""
        if blocked.by or clock_ms() - blocked.since_ms < _NAMED_AFTER_MS:
            return blocked
        at = (blocked.place, blocked.offset)
        asked_ms, by = self._names.get(at, (0, None))
        if by is None and clock_ms() - asked_ms >= _NAMED_EVERY_MS:
            by = self._name_producer(*at)
            self._names[at] = clock_ms(), by
        return replace(blocked, by=by)

    def _tell(self, stream: str, before: Collection[Blocked], blocked: Collection[Blocked], lag: StreamLag) -> None:
        """Log what has stood for long, once, and that it goes on."""
        for one in blocked:
            stood_ms = lag.at_ms - one.since_ms
            stood_before_ms = self._known[stream].lag.at_ms - one.since_ms if stream in self._known else 0
            if stood_before_ms <= _ALARM_AFTER_MS < stood_ms:
                _LOG.warning("stream %s: %s for %s", stream, one, roughly(stood_ms))
        for one in before:
            if one.place not in {other.place for other in blocked} and lag.at_ms - one.since_ms > _ALARM_AFTER_MS:
                _LOG.info("stream %s: reading of %s-%s goes on", stream, *one.place)

    def _oldest_of(self, stream: str, lag: StreamLag) -> int | None:
        """The time of the oldest unread record, read at most every ten seconds; what is open counts as well."""
        firsts = {(place, part.read) for place, part in lag.partitions.items() if part.lag}
        if not firsts:
            return None
        known = self._known.get(stream)
        read_s, then = self._aged.get(stream, (float("-inf"), ()))
        is_new = known is None or known.oldest_ms is None
        if known and time.monotonic() - read_s < _AGE_EVERY_S and (then == firsts or not is_new):
            return known.oldest_ms
        self._aged[stream] = time.monotonic(), firsts
        return min(self._times_of(firsts).values(), default=None)

    def _times_of(self, firsts: Collection[tuple[Partition, int]]) -> Mapping[Partition, int]:
        """The time of the first record at or after each offset; of a partition that does not answer in time none."""
        if self._consumer is None:
            self._consumer = self._connection.consumer(
                self._connection.own("recount.offsets"), {**TO_THE_END, **_ONE_RECORD}
            )
        waited = {place for place, _ in firsts}
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in firsts])
        found: dict[Partition, int] = {}
        deadline = time.monotonic() + _PATIENCE_S
        while waited and time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            place = (message.topic() or "", message.partition() or 0)
            if place in waited and message.error() is None:
                found[place] = message.timestamp()[1]
            waited.discard(place)
        self._consumer.unassign()
        return found


def producer_at(session: SparkSession, kafka: Mapping[str, str], place: Partition, offset: int) -> str | None:
    """The producer whose open transaction begins at ``offset`` of ``place``, in words; None where nobody can say.

    Its transactional.id is named where this user may see it. ``kafka`` are the options of Spark's Kafka source.
    """
    jvm: Any = session._jvm
    try:
        properties = jvm.java.util.Properties()
        for name, value in kafka.items():
            properties.put(name.removeprefix(_CLIENT), value)
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            found = _producer_at(jvm, admin, place, offset)
            return None if found is None else _worded(found, _transactional_id(jvm, admin, found))
        finally:
            admin.close(jvm.java.time.Duration.ofSeconds(_CLIENT_PATIENCE_S))
    except Exception as error:
        _LOG.info("who has a transaction open at %s-%s@%d is not known: %s", *place, offset, error)
        return None


def _producer_at(jvm: Any, admin: Any, place: Partition, offset: int) -> int | None:
    asked = jvm.org.apache.kafka.common.TopicPartition(*place)
    answer = admin.describeProducers(jvm.java.util.Collections.singletonList(asked)).partitionResult(asked)
    for producer in answer.get(_CLIENT_PATIENCE_S, jvm.java.util.concurrent.TimeUnit.SECONDS).activeProducers():
        if producer.currentTransactionStartOffset().orElse(-1) == offset:
            return int(producer.producerId())
    return None


def _transactional_id(jvm: Any, admin: Any, producer: int) -> str | None:
    """A user that may not see the id is given none."""
    options = jvm.org.apache.kafka.clients.admin.ListTransactionsOptions()
    # Py4J would make an Integer of a number that fits one
    as_long = jvm.java.util.stream.LongStream.range(producer, producer + 1).boxed()
    options.filterProducerIds(as_long.collect(jvm.java.util.stream.Collectors.toSet()))
    listed = admin.listTransactions(options).all().get(_CLIENT_PATIENCE_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
    return next((str(one.transactionalId()) for one in listed), None)


def _worded(producer: int, transactional_id: str | None) -> str:
    return f"producer {producer}" + (f" (transactional.id {transactional_id})" if transactional_id else "")
