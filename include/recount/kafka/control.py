"""Orders to a running driver: a compacted topic that every driver polls."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError

from recount.core.errors import Terminal, Transient
from recount.kafka.compacted import CompactedView
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure
from recount.kafka.platform import CONTROL

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Command:
    """An order to the drivers of a stream up to and including ``lease_epoch``; a later driver ignores it."""

    command: Literal["stop"]
    lease_epoch: int


def request_stop(connection: Connection, stream: str, lease_epoch: int, *, topic: str = CONTROL) -> None:
    """Ask the driver with this lease epoch to finish its batch, commit and end; returns once the order is stored."""
    _send(connection, topic, stream, json.dumps({"command": "stop", "lease_epoch": lease_epoch}).encode())


def withdraw_stop(connection: Connection, stream: str, *, topic: str = CONTROL) -> None:
    """Take back whatever order stands for ``stream``."""
    _send(connection, topic, stream, None)


class StandingOrders:
    """The orders that stand, one view held open: each question reads only what is new.

    Orders are written without transactions and read uncommitted: a transaction that somebody leaves open on the topic
    hides none of them. An order in a transaction that is aborted counts, too; whoever can abort one here could write
    the order as well. What is no order is passed over with a warning, and the last one before it stands.
    """

    def __init__(self, connection: Connection, topic: str = CONTROL) -> None:
        self._view = CompactedView(connection, topic, _command, isolation="read_uncommitted")

    def stop_of(self, stream: str) -> int | None:
        """The lease epoch up to which drivers of ``stream`` are to stop; None when no order stands."""
        order = self._view.refresh().get(stream)
        return None if order is None else _command(order).lease_epoch

    def close(self) -> None:
        self._view.close()


def _send(connection: Connection, topic: str, stream: str, order: bytes | None) -> None:
    answers: list[KafkaError | None] = []
    producer = connection.producer({"linger.ms": 0})
    producer.produce(connection.own(topic), value=order, key=stream, on_delivery=lambda error, _: answers.append(error))
    if producer.flush(REQUEST_TIMEOUT_S):
        raise Transient(f"the order to {stream} was not stored in {REQUEST_TIMEOUT_S} s")
    if problem := answers[0]:
        raise failure(f"giving an order to {stream}", problem)


class ControlChannel:
    """A driver's ear: one consumer, held open while the driver runs."""

    def __init__(self, connection: Connection, stream: str, lease_epoch: int, *, topic: str = CONTROL) -> None:
        self._orders = StandingOrders(connection, topic)
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
        self._orders.close()


def _command(text: bytes) -> Command:
    try:
        said = json.loads(text)
        if said["command"] != "stop":
            raise ValueError(said["command"])
        return Command(command="stop", lease_epoch=int(said["lease_epoch"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise Terminal("an unknown order on the control topic", given=text[:200], expected="a stop") from error
