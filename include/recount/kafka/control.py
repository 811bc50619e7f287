"""Orders to a running driver: a compacted topic that every driver polls."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError

from recount.kafka.compacted import CompactedView
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure
from recount.kafka.topic_drift import CONTROL
from recount.runtime.errors import Terminal, Transient

_LOG = logging.getLogger(__name__)


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
        said = json.loads(text)
        if said["command"] not in ("stop", "run"):
            raise ValueError(said["command"])
        return Command(command=said["command"], lease_epoch=int(said["lease_epoch"]), order=str(said.get("order", "")))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise Terminal(
            "an unknown order on the control topic",
            given=text[:200],
            expected="a stop or a run",
            remedy="see who else writes to the topic: only Recount may, and only one version of it",
        ) from error
