"""Never two drivers for one stream: a lease with an epoch, fenced by Kafka itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from recount.core.errors import Terminal
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure, patiently
from recount.kafka.platform import HISTORY, STATUS
from recount.kafka.status import LARGEST_EPOCH, StreamStatus, last_epoch

_LOG = logging.getLogger(__name__)
_PUBLISH_TIMEOUT_S = 60.0


class Lease:
    """The right to drive one stream; whoever acquires it last has it.

    ``acquire`` opens the transactional.id ``recount.<stream>.lease``, which fences the former holder, and takes the
    epoch after the last one on the status board. Every status is published in a transaction of this lease, so a former
    holder can neither overwrite the board nor overlook that it lost: its next ``publish`` raises ``Fenced``.

    Order for a driver: acquire, open the ``OutputTransaction``s, publish, first batch. The publish in between makes
    sure that a driver which was held up before it opened its outputs does not go on after a newer one began. It has
    fenced the outputs of the newer one, though: that one finds its lease confirmed, and opens them again.

    May be used by several threads.
    """

    def __init__(
        self, producer: Producer, stream: str, epoch: int, topics: tuple[str, str], undelivered: list[KafkaError]
    ) -> None:
        self.stream = stream
        self.epoch = epoch
        self._producer = producer
        self._topics = topics
        self._undelivered = undelivered
        self._busy = threading.Lock()
        self._last: StreamStatus | None = None

    @classmethod
    def acquire(
        cls, connection: Connection, stream: str, *, status_topic: str = STATUS, history_topic: str = HISTORY
    ) -> Self:
        """Take the lease; the former holder is fenced when this returns.

        After ``LARGEST_EPOCH``, which somebody made up, epochs begin again with 1: it is Kafka that fences the former
        holder, whatever its epoch, and the next one would be unreadable to everybody.
        """
        undelivered: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
                undelivered.append(error)

        named = {"transactional.id": connection.own(f"recount.{stream}.lease"), "linger.ms": 0}
        producer = connection.producer({**named, "delivery.report.only.error": True, "on_delivery": delivered})
        _checked(f"acquiring the lease of {stream}", lambda: producer.init_transactions(REQUEST_TIMEOUT_S))
        epoch = last_epoch(connection, stream, status_topic) + 1
        if epoch > LARGEST_EPOCH:
            _LOG.warning("stream %s: a status has the lease epoch %d, epochs begin again with 1", stream, epoch - 1)
            epoch = 1
        return cls(producer, stream, epoch, (connection.own(status_topic), connection.own(history_topic)), undelivered)

    def publish(self, status: StreamStatus) -> None:
        """Put ``status`` on the board and into the history; raises ``Fenced`` when the lease was lost."""
        if (status.stream, status.lease_epoch) != (self.stream, self.epoch):
            raise Terminal(
                "a status of another lease",
                given=(status.stream, status.lease_epoch),
                expected=f"stream {self.stream}, lease epoch {self.epoch}",
                remedy="a fault of Recount: report it, with the log of the driver",
            )
        with self._busy:
            self._last = status
            _checked(f"publishing the status of {self.stream}", lambda: self._publish(status))

    def confirm(self) -> None:
        """Publish the last status once more; returns when the lease is held, raises ``Fenced`` when it was lost."""
        assert self._last is not None, "publish comes first"
        self.publish(self._last)

    def release(self) -> None:
        """Close the connection; publish a last status with state stopped or failed before."""
        # after a fatal error, which publish has told, this would raise it once more
        with suppress(KafkaException):
            self._producer.flush(1.0)

    def _publish(self, status: StreamStatus) -> None:
        deadline = time.monotonic() + _PUBLISH_TIMEOUT_S
        self._undelivered.clear()
        self._producer.begin_transaction()
        try:
            for topic in self._topics:
                self._producer.produce(topic, value=status.to_json(), key=self.stream)
            patiently(lambda: self._producer.commit_transaction(REQUEST_TIMEOUT_S), deadline)
        except KafkaException as error:
            if not error.args[0].fatal():
                # why the transaction failed is what has to be told, not that it could not be aborted either
                with suppress(KafkaException):
                    patiently(lambda: self._producer.abort_transaction(REQUEST_TIMEOUT_S), deadline + REQUEST_TIMEOUT_S)
            if self._undelivered and error.args[0].code() == KafkaError._INCONSISTENT:
                raise KafkaException(self._undelivered[0]) from error  # the call says no more than that some were not
            raise


def _checked(doing: str, call: Callable[[], None]) -> None:
    try:
        call()
    except KafkaException as error:
        raise failure(doing, error) from error
