"""Output records and input offsets in one Kafka transaction, exactly once per batch.

How a batch is written once, whatever dies when:

* The output records and the batch's end offsets (consumer group ``recount.<stream>``) are committed by the same
  transaction, so a reader with ``read_committed`` sees all of the records or none, and the offsets tell which.
* ``open`` calls ``init_transactions``: the coordinator fences every older producer with the same transactional.id and
  completes or aborts what it left behind. Only then are the committed offsets read, and by a ``read_committed``
  consumer, whose request says ``require_stable``: while a commit is still being written the broker makes it wait.
  So what a driver killed in mid-commit left behind is decided before anybody looks.
* A replayed batch finds its end offsets committed and writes nothing. A zombie is fenced at its next commit.

The consumer exists for its group.id only; it never subscribes. The broker accepts transactional offset commits with an
empty member id and generation -1 as long as the group has no members, and fencing is the transactional.id's task.
Offsets of a group without members expire ``offsets.retention.minutes`` (7 days by default) after the last commit: so
same transaction writes the stream's ``Position`` too, which has the offsets when those have expired.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Literal

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from recount.declare.output import kafka_time_ms
from recount.kafka.connection import (
    ANSWER_S,
    REQUEST_TIMEOUT_S,
    Connection,
    Fenced,
    NotAllowed,
    Refused,
    Unanswered,
    answered,
    committed_of_group,
    failing,
    failure,
    patiently,
)
from recount.kafka.dead_letters import KafkaRecord, largest, limit_of, too_large
from recount.kafka.offsets import Partition, require_topics
from recount.kafka.positions import Batch, Committed, Position, last_position, position_key
from recount.kafka.topic_drift import POSITIONS
from recount.runtime.errors import RecountError, Terminal, Transient
from recount.runtime.times import readable

Offsets = Mapping[Partition, int]
TRANSACTION_TIMEOUT_MS = 60_000
LARGEST_BATCH = 1_000_000
"""Bytes of a batch of several records, unless a topic takes less. A larger record is a batch of its own."""
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


class Aborted(Transient):
    """A transaction that the brokers aborted while its producer had the right to write: most often it took too long."""


class OffsetsDisagree(Terminal):
    """The committed offsets are neither where this batch starts nor where it ends."""


class OutputTransaction:
    """The transactional producer of one output slot of one stream.

    Not safe for use by several threads. ``transaction_timeout_ms`` bounds how long a killed driver's open transaction
    can hold up readers before the broker aborts it (a restart aborts it at once), and how long one may take.

    The broker fences the producer whose transaction it has aborted just as it does when a newer one was opened. So
    ``confirm``, where there is one, is asked after a fencing: it raises ``Fenced`` unless the right to write is still
    held, and then the transaction is tried again by a new producer, once. So it is where a producer does not answer:
    when the broker that keeps the group's offsets was away, its call can wait for ever (librdkafka 5456 and 5511).

    ``limits`` are the sizes that topics take, of those that have refused one: asked then, for few do. Small records go
    out in batches of up to a megabyte, which a topic may refuse that takes each of them: then batches are smaller from
    there on.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        slot: str = "0",
        *,
        group: str | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        confirm: Callable[[], None] | None = None,
    ) -> None:
        self.stream = stream
        self.group = group or connection.group(stream)
        self.transactional_id = connection.own(f"recount.{stream}.{slot}")
        self._connection = connection
        self._positions = connection.own(POSITIONS)
        self._key = position_key(connection, self.group)
        self._position: Position | None = None
        self._knows_position = False
        self._timeout_ms = transaction_timeout_ms
        self._confirm = confirm
        self._delivery_error: KafkaError | None = None
        self._too_large_for: list[str] = []
        self.limits: dict[str, int] = {}
        self._consumer = connection.consumer(self.group)
        self._producer = self._open()

    def _open(self) -> Producer:
        require_topics(self._connection, (), [self._positions])
        producer = self._connection.producer(
            {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self._timeout_ms,
                "queue.buffering.max.messages": 500_000,  # a full queue costs twice the time of its records
                "linger.ms": 100,  # a commit does not wait for it; with 5 ms brokers work thrice as much
                "batch.size": min([LARGEST_BATCH, *self.limits.values()]),
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
            }
        )
        deadline = time.monotonic() + self._timeout_ms / 1_000
        while True:
            try:
                producer.init_transactions(REQUEST_TIMEOUT_S)
                return producer
            except KafkaException as error:
                if error.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                    raise Terminal.of(
                        "transaction-too-long", given=f"--transaction-timeout-ms {self._timeout_ms}", stream=self.stream
                    ) from None
                problem = failure(f"opening transactional.id {self.transactional_id}", error)
                if isinstance(problem, Terminal) or time.monotonic() > deadline:
                    raise problem from error

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Committed]:
        """The committed offsets, pending commits decided; partitions that were never committed are left out.

        Those of the group count. Where it has none (any more), those of the last ``Position``.
        """
        wanted = sorted(partitions)
        asked = [TopicPartition(topic, partition) for topic, partition in wanted]
        answers = committed_of_group(self._consumer, asked, self.group)
        found = {}
        for answer in answers:
            if answer.error:
                raise failure(f"reading the offsets of group {self.group}", answer.error)
            if answer.offset >= 0:
                found[answer.topic, answer.partition] = Committed.of(answer.offset, answer.metadata)
        if len(found) < len(asked):
            position = self._last_position()
            found = {**(position.committed(wanted) if position else {}), **found}
        return found

    def forget_position(self) -> None:
        """Forget where Kafka is with the stream, for one that begins again; the group has to be deleted as well."""
        with failing(f"forgetting the position of {self._key}"):
            self._producer.begin_transaction()
            self._producer.produce(self._positions, key=self._key, value=None)
            patiently(lambda: self._producer.commit_transaction(REQUEST_TIMEOUT_S), time.monotonic() + 60)
        self._knows_position = False

    def _last_position(self) -> Position | None:
        """Read once: nobody else can change it while this producer is the newest."""
        if not self._knows_position:
            self._position = last_position(self._connection, self._key)
            self._knows_position = True
        return self._position

    def commit_once(
        self,
        records: Iterable[KafkaRecord],
        *,
        start_offsets: Offsets,
        end_offsets: Offsets,
        batch: Batch,
        timestamp_ms: int | None = None,
        checkpoint_id: str | None = None,
        retry_for_s: float = 120.0,
    ) -> Literal["committed", "replayed"]:
        """Write ``records`` and commit ``end_offsets`` (the next offsets to read) in one transaction, or skip a replay.

        ``records`` is iterated again when an attempt is aborted: give a list, or an object whose ``__iter__`` starts
        over. A partition without a committed offset counts as standing at its start offset. An empty offset range is
        identified by the batch in the commit's metadata, where ``timestamp_ms``, the batch's own time, and the
        ``checkpoint_id`` of its plan are kept too: so it can be repeated when its plan is lost.

        Raises ``OffsetsDisagree`` when the group stands elsewhere, ``Fenced`` when a newer producer took over,
        ``Terminal`` when no retry can help (a record too large, no permission), ``Transient`` when ``retry_for_s`` is
        over. After an error the outcome may be open: close this object, open a new one and call again with the same
        batch; what is committed decides.
        """
        if iter(records) is records:
            raise Terminal.of("records-only-once", given=type(records))
        patience_s = max(retry_for_s, self._timeout_ms / 1_000)
        deadline = time.monotonic() + patience_s
        has_been_aborted = False
        position = Position(
            stream=self.stream,
            batch=batch,
            timestamp_ms=timestamp_ms,
            checkpoint_id=checkpoint_id,
            spans={key: (start_offsets.get(key, 0), end) for key, end in end_offsets.items()},
        )
        while True:
            problem: Transient | None
            try:
                if self._replayed(start_offsets, end_offsets, batch):
                    return "replayed"
                problem = self._attempt(records, position, deadline)
            except Unanswered:  # nobody to ask for the right to open a new producer: this one can do no more
                raise
            except Transient as error:  # the offsets could not be read, or no new producer be opened
                problem = error
            if problem is None:
                return "committed"
            if isinstance(problem, Aborted) and not has_been_aborted:
                has_been_aborted, deadline = True, time.monotonic() + patience_s
            elif isinstance(problem, Aborted) or time.monotonic() > deadline:
                raise problem
            time.sleep(0.2)

    def close(self) -> None:
        """Release the connections; whatever is uncommitted is never committed."""
        self._producer.purge()
        self._producer.flush(0)
        self._consumer.close()

    def _replayed(self, start: Offsets, end: Offsets, batch: Batch) -> bool:
        committed = self.committed(end)
        if committed and all(key in committed and committed[key].offset == end[key] for key in end):
            if any(start.get(key) != end[key] for key in end):
                return True
            return all(commit.batch == batch for commit in committed.values())
        astray = {key: commit.offset for key, commit in committed.items() if commit.offset != start.get(key)}
        if astray:
            raise OffsetsDisagree.of(
                "offsets-disagree", given=astray, group=self.group, batch=batch, start=dict(start), end=dict(end)
            )
        return False

    def _attempt(self, records: Iterable[KafkaRecord], position: Position, deadline: float) -> Transient | None:
        """One try: None when committed, the reason when it was aborted and may be tried again."""
        self._delivery_error, self._too_large_for = None, []
        begun_s, written = time.monotonic(), 0
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record, deadline)
                written += 1
            # last, so that other streams' positions lie behind an open transaction for no longer than a commit takes
            self._produce(
                KafkaRecord(topic=self._positions, key=self._key.encode(), value=position.to_json()), deadline
            )
            self._commit(position, deadline)
            self._knows_position = False
            return None
        except KafkaException as error:
            # the call may say only that the transaction has failed; a delivery report says why
            with suppress(KafkaException):
                self._producer.poll(0)
            problem = failure(f"committing batch {position.batch} of {self.stream}", self._delivery_error or error)
            try:
                if not error.args[0].fatal():
                    self._abort(deadline)
            except Fenced as fenced:
                problem = fenced
            except RecountError:
                if not isinstance(problem, NotAllowed | Refused):
                    raise
            if isinstance(problem, Transient):
                return problem
            if isinstance(problem, Fenced) and self._confirm is not None:
                self._reopen(self._confirm)
                return self._aborted(position.batch, written, time.monotonic() - begun_s, problem)
            if self._too_large_for:
                return self._with_smaller_batches(self._too_large_for[0], records, problem)
            raise problem from error
        except Unanswered as unanswered:
            if self._confirm is None:
                raise
            self._reopen(self._confirm)
            return unanswered
        except BaseException:
            self._abort(deadline)
            raise

    def _with_smaller_batches(self, topic: str, records: Iterable[KafkaRecord], problem: RecountError) -> Transient:
        """Limit batches to the size that ``topic`` takes; raises where one record alone is too large."""
        limit = None if topic in self.limits else limit_of(self._connection, topic)
        if limit is None:
            found = largest(records, topic)
            raise (problem if found is None else too_large(found, self.limits.get(topic))) from None
        self.limits[topic] = limit
        if self._confirm is not None:
            self._reopen(self._confirm)
        else:
            self._producer.purge()
            self._producer = self._open()
        return Transient.of(
            "batch-too-large-for-topic",
            given=f"batches of up to {LARGEST_BATCH} bytes",
            topic=topic,
            stream=self.stream,
            limit=limit,
        )

    def _reopen(self, confirm: Callable[[], None]) -> None:
        """Take the outputs back. Who was held up before this asks again: a newer driver may have begun meanwhile."""
        confirm()
        self._producer.purge()
        self._producer = self._open()
        self._knows_position = False
        confirm()

    def _aborted(self, batch: Batch, written: int, took_s: float, fenced: Fenced) -> Aborted:
        timeout = readable(self._timeout_ms)
        return Aborted.of(
            "transaction-aborted",
            given=f"{written} records in {took_s:.1f} s, transaction timeout {timeout} ({fenced.given})",
            batch=batch,
            stream=self.stream,
        )

    def _produce(self, record: KafkaRecord, deadline: float) -> None:
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=0 if record.timestamp_ms is None else kafka_time_ms(record.timestamp_ms),
                    headers=list(record.headers),
                )
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise Transient(f"the brokers did not take the records of {self.stream} in time") from None
                self._producer.poll(0.1)

    def _commit(self, position: Position, deadline: float) -> None:
        offsets = [
            TopicPartition(topic, partition, end, position.metadata(start))
            for (topic, partition), (start, end) in position.spans.items()
        ]
        group = self._consumer.consumer_group_metadata()
        producer = self._producer
        patiently(lambda: answered(lambda: producer.send_offsets_to_transaction(offsets, group, ANSWER_S)), deadline)
        patiently(lambda: producer.commit_transaction(REQUEST_TIMEOUT_S), deadline)

    def _abort(self, deadline: float) -> None:
        self._producer.purge()
        with failing(f"aborting a transaction of {self.stream}"):
            patiently(lambda: self._producer.abort_transaction(REQUEST_TIMEOUT_S), deadline + REQUEST_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._delivery_error = self._delivery_error or error
            if self._delivery_error.code() in _TOO_LARGE:
                self._too_large_for.append(str(message.topic()))
