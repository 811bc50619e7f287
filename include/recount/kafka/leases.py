"""Leases with an epoch, fenced by Kafka: a stream never has two drivers; and ``recount stop``, which ends one.

A stop is an order to end, for any holder of a lease. Orders are on a compacted topic that every driver polls.
"""

import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import msgspec
import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from recount.declare.registry import Declarations
from recount.kafka.compacted import CompactedView
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failing, failure, patiently
from recount.kafka.status import LARGEST_EPOCH, StatusBoard, StreamStatus, last_epoch, status_of_group
from recount.kafka.topic_drift import CONTROL, HISTORY, STATUS
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms, roughly

_LOG = logging.getLogger(__name__)
_PUBLISH_TIMEOUT_S = 60.0
HEARD_WITHIN_MS = 60_000
"""A driver without a status for so long counts as dead: the slowest publish one every ten seconds."""
STARTS_WITHIN_MS = 180_000
"""One that is starting does not speak while it recovers."""
PATIENCE_S = 180.0


class Lease:
    """The right to drive one stream; the last to acquire it has it.

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
        with failing(f"acquiring the lease of {stream}"):
            producer.init_transactions(REQUEST_TIMEOUT_S)
        epoch = last_epoch(connection, stream, status_topic) + 1
        if epoch > LARGEST_EPOCH:
            _LOG.warning("stream %s: a status has the lease epoch %d, epochs begin again with 1", stream, epoch - 1)
            epoch = 1
        return cls(producer, stream, epoch, (connection.own(status_topic), connection.own(history_topic)), undelivered)

    def publish(self, status: StreamStatus) -> None:
        """Put ``status`` on the board and into the history; raises ``Fenced`` when the lease was lost."""
        if (status.stream, status.lease_epoch) != (self.stream, self.epoch):
            raise Terminal.of(
                "status-of-another-lease",
                given=(status.stream, status.lease_epoch),
                stream=self.stream,
                epoch=self.epoch,
            )
        with self._busy, failing(f"publishing the status of {self.stream}"):
            self._last = status
            self._publish(status)

    def confirm(self) -> None:
        """Publish the last status once more; returns when the lease is held, raises ``Fenced`` when it was lost."""
        assert self._last is not None, "publish comes first"
        self.publish(self._last)

    def release(self) -> None:
        """Close the connection; publish a last status with state stopped or failed before."""
        # after a fatal error, which publish has raised, this would raise it once more
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
                # the reason why the transaction failed is raised, not that it could not be aborted either
                with suppress(KafkaException):
                    patiently(lambda: self._producer.abort_transaction(REQUEST_TIMEOUT_S), deadline + REQUEST_TIMEOUT_S)
            if self._undelivered and error.args[0].code() == KafkaError._INCONSISTENT:
                raise KafkaException(self._undelivered[0]) from error  # the call says no more than that some were not
            raise


def undeclared(statuses: Mapping[str, StreamStatus], declarations: Declarations) -> list[StreamStatus]:
    """Streams that a driver has not reported as over, and of whose name no stream or group is declared any more."""
    known = {*declarations.streams, *map(status_of_group, declarations.groups)}
    return [statuses[name] for name in sorted(statuses) if name not in known and not statuses[name].is_over]


def is_heard(status: StreamStatus, now_ms: int) -> bool:
    """Whether a driver is at work, as far as its last status tells."""
    quiet_ms = STARTS_WITHIN_MS if status.state == "starting" else HEARD_WITHIN_MS
    return not status.is_over and now_ms - status.heartbeat_ms <= quiet_ms


def driver_of(status: StreamStatus, now_ms: int) -> str:
    """The driver in words: where it is, and since when it was heard of."""
    ago = roughly(max(0, now_ms - status.heartbeat_ms))
    return f"{status.state}, pid {status.pid} on {status.host}, heard of {ago} ago"


def require_declared(statuses: Mapping[str, StreamStatus], declarations: Declarations, now_ms: int) -> None:
    """Raise ``Terminal`` where drivers are at work for streams or groups that nothing declares."""
    found = [status for status in undeclared(statuses, declarations) if is_heard(status, now_ms)]
    if not found:
        return
    many = "streams run" if len(found) > 1 else "stream runs"
    raise Terminal.of(
        "streams-without-a-declaration",
        given="; ".join(f"{status.stream}: {driver_of(status, now_ms)}" for status in found),
        number=len(found),
        streams=many,
        remedy=" and ".join(f"`recount retire {status.stream}`" for status in found)
        + ", or declare what was removed or renamed again",
    )


def stop_driver(
    connection: Connection, name: str, *, patience_s: float = PATIENCE_S, now_ms: Callable[[], int] = clock_ms
) -> StreamStatus:
    """Order the holder of the lease ``name`` to end after its batch; returns the last status once it has, or is dead.

    The order stands afterwards. Statuses are read uncommitted: an open transaction on the topic hides no driver.
    Raises ``Terminal`` where it was never held, or where the driver goes on for longer than ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    ordered = 0
    with closing(StatusBoard(connection, isolation="read_uncommitted")) as board:
        while True:
            status = board.of(name)
            if status is None:
                raise _never_held(name, board.latest().values())
            if not status.is_over and status.lease_epoch > ordered:
                request_stop(connection, name, status.lease_epoch)
                ordered = status.lease_epoch
            if not is_heard(status, now_ms()):
                return status
            if time.monotonic() > deadline:
                raise Terminal.of(
                    "driver-does-not-end", given=driver_of(status, now_ms()), name=name, patience_s=patience_s
                )
            time.sleep(0.5)


def _never_held(name: str, statuses: Iterable[StreamStatus]) -> Terminal:
    holding = sorted(status.stream for status in statuses if not status.is_over)
    return Terminal.of(
        "no-driver-ever",
        given=name,
        name=name,
        expected=f"one of {', '.join(holding)}" if holding else "a stream that runs; there is none",
    )


def stop(
    name: Annotated[str, typer.Argument(help="A stream, declared or not; or group.NAME, the driver of a group.")],
    patience_s: Annotated[float, typer.Option(min=0, help="How long to wait for its end.")] = PATIENCE_S,
) -> None:
    """Stop a stream after its batch, and wait until it has ended.

    The order stands until it is withdrawn (DAG stream_control, order start): Airflow does not launch it before.
    """
    connection = Connection.of(Settings.from_environment(os.environ))
    last = stop_driver(connection, name, patience_s=patience_s)
    how = "it said so" if last.is_over else "it has ended without a word"
    print(f"{name} does not run: {how} ({driver_of(last, clock_ms())})")


_RUN = "run."
"""Begins the key of an order to run, which stands beside an order to stop; no name of a stream has a dot."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """An order to the drivers of a stream up to and including ``lease_epoch``; a later driver ignores it.

    ``stop`` is for the driver that has the lease. ``run`` is for the driver that hosts the stream's group: it is done
    when the stream has a later lease. ``order`` tells one order from another.
    """

    command: Literal["stop", "run"]
    lease_epoch: int
    order: str = ""


def request_stop(connection: Connection, stream: str, lease_epoch: int, *, topic: str = CONTROL) -> None:
    """Ask the driver with this lease epoch to finish its batch, commit and end; returns once the order is stored.

    An earlier order to run the stream in its group is withdrawn.
    """
    _send(connection, topic, f"{_RUN}{stream}", None)
    _send(connection, topic, stream, json.dumps({"command": "stop", "lease_epoch": lease_epoch}).encode())


def request_run(connection: Connection, stream: str, after_epoch: int, *, topic: str = CONTROL) -> None:
    """Ask the driver that hosts the group of ``stream`` to run it with a lease epoch above ``after_epoch``."""
    order = {"command": "run", "lease_epoch": after_epoch, "order": str(uuid.uuid4())}
    _send(connection, topic, f"{_RUN}{stream}", json.dumps(order).encode())


def withdraw_stop(connection: Connection, stream: str, *, topic: str = CONTROL) -> None:
    """Take back whatever order stands for ``stream``."""
    _send(connection, topic, stream, None)


class StandingOrders:
    """The orders that stand, one view held open: each question reads only what is new.

    Orders are written without transactions and read uncommitted: a transaction that somebody leaves open on the topic
    hides none of them. An order in a transaction that is aborted counts, too; a client that can abort one could write
    the order as well. What is no order is passed over with a warning, and the last one before it stands.

    An answer may be ``max_age_s`` old: streams of one driver share a view, and need not ask the broker for each. May be
    used by several threads.
    """

    def __init__(self, connection: Connection, topic: str = CONTROL, *, max_age_s: float = 0.0) -> None:
        self._view = CompactedView(connection, topic, _command, isolation="read_uncommitted")
        self._max_age_s = max_age_s
        self._busy = threading.Lock()
        self._read_s = float("-inf")
        self._orders: Mapping[str, bytes] = {}

    def stop_of(self, stream: str) -> int | None:
        """The lease epoch up to which drivers of ``stream`` are to stop; None when no order stands."""
        order = self._of(stream)
        return None if order is None or order.command != "stop" else order.lease_epoch

    def run_of(self, stream: str) -> Command | None:
        """The last order to run ``stream``, whether it is done or not; None when there was none."""
        order = self._of(f"{_RUN}{stream}")
        return None if order is None or order.command != "run" else order

    def read_anew(self) -> None:
        """Let the next answer be of the moment, whatever its age may be."""
        with self._busy:
            self._read_s = float("-inf")

    def close(self) -> None:
        self._view.close()

    def _of(self, key: str) -> Command | None:
        with self._busy:
            if time.monotonic() - self._read_s >= self._max_age_s:
                self._orders = self._view.refresh()
                self._read_s = time.monotonic()
            order = self._orders.get(key)
        return None if order is None else _command(order)


def _send(connection: Connection, topic: str, stream: str, order: bytes | None) -> None:
    answers: list[KafkaError | None] = []
    producer = connection.producer({"linger.ms": 0})
    producer.produce(connection.own(topic), value=order, key=stream, on_delivery=lambda error, _: answers.append(error))
    if producer.flush(REQUEST_TIMEOUT_S):
        raise Transient(f"the order to {stream} was not stored in {REQUEST_TIMEOUT_S} s")
    if problem := answers[0]:
        raise failure(f"giving an order to {stream}", problem)


class ControlChannel:
    """Control listener of a driver: one consumer, open while it runs; or ``shared`` with others, who close it."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        lease_epoch: int,
        *,
        topic: str = CONTROL,
        shared: StandingOrders | None = None,
    ) -> None:
        self._orders = shared or StandingOrders(connection, topic)
        self._is_shared = shared is not None
        self._stream = stream
        self._lease_epoch = lease_epoch

    def stop_requested(self) -> bool:
        """Whether a stop for this lease epoch, or a later one, has been given.

        False while the brokers cannot say, when one of them is lost, for instance: an order is kept, and heard later.
        """
        try:
            up_to = self._orders.stop_of(self._stream)
        except Transient as error:
            _LOG.warning("no word from the control topic, asking again: %s", error)
            return False
        return up_to is not None and up_to >= self._lease_epoch

    def close(self) -> None:
        if not self._is_shared:
            self._orders.close()


def _command(text: bytes) -> Command:
    try:
        return msgspec.json.decode(text, type=Command)
    except (ValueError, RecursionError) as error:
        raise Terminal.of("order-unknown", given=text[:200]) from error
