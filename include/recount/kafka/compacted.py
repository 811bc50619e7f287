"""The latest value per key of a compacted topic, kept up to date on request, and the heads of chains of certificates.

A head is published in a transaction whose transactional.id is the stream's. A later opener fences the process that had
it open, so of two audits that read the same head at once only one can publish the next.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Literal, Self

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition

from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failing, failure, patiently
from recount.kafka.offsets import Partition, log_ranges, messages, partitions_of
from recount.kafka.topic_drift import CERTIFICATES
from recount.runtime.errors import RecountError, Terminal, Transient

_LOG = logging.getLogger(__name__)

Isolation = Literal["read_committed", "read_uncommitted"]


class CompactedView:
    """A small compacted topic read to its end; each ``refresh`` reads only what is new.

    A null value removes its key. ``read_committed`` leaves out what was aborted, and shows nothing behind the first
    record of a transaction that is open, whosever it is; ``read_uncommitted`` shows all that was written.

    A record whose key is not UTF-8, or whose value ``readable`` raises a ``RecountError`` for, is passed over with a
    warning that names it: anybody may write to a topic, and one bad record must not stop every stream. Not safe for use
    by several threads.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        readable: Callable[[bytes], object] = bytes,
        *,
        isolation: Isolation = "read_committed",
    ) -> None:
        self._connection = connection
        self._topic = connection.own(topic)
        self._readable = readable
        self._values: dict[str, bytes] = {}
        self._read: dict[Partition, int] = {}
        self._consumer = connection.consumer(
            connection.own("recount.view"),
            {
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            },
        )

    def refresh(self, timeout_s: float = 20.0) -> Mapping[str, bytes]:
        """The value of every key at the topic's end as of this call; ``Transient`` when that takes too long."""
        if not self._read:
            self._read = dict.fromkeys(partitions_of(self._connection, self._topic), 0)
            self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self._read])
        ends = {key: self._end(key) for key in self._read}
        deadline = time.monotonic() + timeout_s
        while any(self._read[key] < end for key, end in ends.items()):
            if time.monotonic() > deadline:
                raise Transient.of(
                    "compacted-topic-too-slow", given=dict(self._read), topic=self._topic, timeout_s=timeout_s
                )
            self._poll()
        return self._values

    def undecided(self, key: str) -> str | None:
        """The place of a record of ``key`` that a read_committed view does not show yet, as topic-partition@offset.

        None when every record of it that was written before this call is decided. Whether the record will be committed
        is not known. It is decided when the transaction on the topic that holds it up is, at the latest when that times
        out.
        """
        places = partitions_of(self._connection, self._topic)
        # the ends are asked for first: what is written in between has not to be taken for undecided
        written = log_ranges(self._connection, places, IsolationLevel.READ_UNCOMMITTED)
        for place, decided in log_ranges(self._connection, places).items():
            hidden = messages(self._connection, *place, decided.end, written[place].end, "read_uncommitted")
            for message in hidden:
                if message.key() == key.encode():
                    return f"{self._topic}-{place[1]}@{message.offset()}"
        return None

    def close(self) -> None:
        self._consumer.close()

    def _end(self, partition: Partition) -> int:
        """The end that the view's consumer gets to: the last stable offset, or the log's end for read_uncommitted."""
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*partition), REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                # it was there when it was assigned: the brokers that are left do not know it yet
                raise Transient.of("topic-without-a-leader", given=str(error), topic=self._topic) from error
            raise failure(f"reading {self._topic}", error) from error
        return int(end)

    def _poll(self) -> None:
        with failing(f"reading {self._topic}"):
            first = self._consumer.poll(0.2)
            # a message has the length of its value: one without a value is as false as None
            messages = [] if first is None else [first, *self._consumer.consume(1_000, 0)]
        for message in messages:
            self._take(message)

    def _take(self, message: Message) -> None:
        problem = message.error()
        if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
            raise failure(f"reading {self._topic}", problem)
        where, offset = (self._topic, message.partition() or 0), message.offset() or 0
        if problem is None:
            self._apply(message)
            offset += 1
        self._read[where] = max(offset, self._read[where])

    def _apply(self, message: Message) -> None:
        value = message.value()
        try:
            key = (message.key() or b"").decode()
            if value is not None:
                self._readable(value)
        except (UnicodeDecodeError, RecountError) as error:
            _LOG.warning("ignored %s-%s@%s: %s", self._topic, message.partition(), message.offset(), error)
            return
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value


Head = Mapping[str, Any]
_TIMEOUT_MS = 10_000
_STABLE_S = 45.0
"""How long a killed audit's open transaction can hide what was published after it began."""
_FIELDS = {"stream": str, "sequence": int, "audit": str, "sha256": str}


def head_id(connection: Connection, stream: str) -> str:
    """The transactional.id of who publishes the heads of ``stream``."""
    return connection.own(f"{CERTIFICATES}.{stream}")


class UnreadableHead(Terminal): ...


def published_head(connection: Connection, stream: str, *, topic: str = CERTIFICATES) -> Head | None:
    """The newest head of ``stream``; None where none was published, or it was deleted.

    Raises ``UnreadableHead`` for a record that is none, ``Transient`` where a transaction stays open.
    """
    topic = connection.own(topic)
    with closing(CompactedView(connection, topic)) as view:
        _wait_until_stable(connection, topic)
        value = view.refresh().get(stream)
    return None if value is None else _head(value, stream, topic)


class HeadPublisher:
    """The only one that may publish the next head of ``stream``, until another one is opened."""

    def __init__(self, connection: Connection, stream: str, *, topic: str = CERTIFICATES) -> None:
        self._connection = connection
        self._stream = stream
        self._topic = connection.own(topic)
        self._producer = self._opened()

    def read(self) -> Head | None:
        """The head that stands. Nobody can replace it without fencing this publisher."""
        return published_head(self._connection, self._stream, topic=self._topic)

    def publish(self, head: Head) -> None:
        """Make ``head`` the newest; raises ``Fenced`` when another publisher was opened since."""
        value = json.dumps(dict(head), sort_keys=True).encode()
        with failing(f"publishing the head of {self._stream}"):
            self._producer.begin_transaction()
            # no callback: one that is called with a fatal error on its way out turns it into another
            self._producer.produce(self._topic, key=self._stream, value=value)
            patiently(lambda: self._producer.commit_transaction(REQUEST_TIMEOUT_S), time.monotonic() + _STABLE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # what was not committed is aborted by the next publisher, or when it times out
        self._producer.purge()

    def _opened(self) -> Producer:
        producer = self._connection.producer(
            {
                "transactional.id": head_id(self._connection, self._stream),
                "transaction.timeout.ms": _TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        deadline = time.monotonic() + _STABLE_S
        while True:
            try:
                producer.init_transactions(REQUEST_TIMEOUT_S)
                return producer
            except KafkaException as error:
                problem: RecountError = failure(f"opening the head of {self._stream}", error)
                if isinstance(problem, Terminal) or time.monotonic() > deadline:
                    raise problem from error


def _wait_until_stable(connection: Connection, topic: str) -> None:
    """Wait until no transaction that began before this call is open: a reader sees nothing behind an open one."""
    places, deadline = partitions_of(connection, topic), time.monotonic() + _STABLE_S
    written = log_ranges(connection, places, IsolationLevel.READ_UNCOMMITTED)
    while any(decided.end < written[place].end for place, decided in log_ranges(connection, places).items()):
        if time.monotonic() > deadline:
            raise Transient.of("transaction-stays-open", topic=topic)
        time.sleep(0.5)


def _head(value: bytes, stream: str, topic: str) -> Head:
    try:
        said = json.loads(value)
        if all(type(said[name]) is kind for name, kind in _FIELDS.items()) and said["stream"] == stream:
            return dict(said)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise UnreadableHead.of("head-unreadable", given=value[:200], stream=stream, topic=topic)
