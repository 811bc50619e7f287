"""The heads of the chains of certificates, on a compacted topic keyed by stream.

A head is published in a transaction whose transactional.id is the stream's. A later opener fences the process that had
it open, so of two audits that read the same head at once only one can publish the next.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Self

from confluent_kafka import IsolationLevel, KafkaException, Producer

from recount.kafka.compacted import CompactedView
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure, patiently
from recount.kafka.offsets import log_ranges, partitions_of
from recount.kafka.topic_drift import CERTIFICATES
from recount.runtime.errors import RecountError, Terminal, Transient

Head = Mapping[str, Any]
_TIMEOUT_MS = 10_000
_STABLE_S = 45.0
"""How long a killed audit's open transaction can hide what was published after it began."""
_FIELDS = {"stream": str, "sequence": int, "audit": str, "sha256": str}


def head_id(connection: Connection, stream: str) -> str:
    """The transactional.id of who publishes the heads of ``stream``."""
    return connection.own(f"{CERTIFICATES}.{stream}")


class UnreadableHead(Terminal):
    """A record of the topic is no head."""


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
        try:
            self._producer.begin_transaction()
            # no callback: one that is called with a fatal error on its way out turns it into another
            self._producer.produce(self._topic, key=self._stream, value=value)
            patiently(lambda: self._producer.commit_transaction(REQUEST_TIMEOUT_S), time.monotonic() + _STABLE_S)
        except KafkaException as error:
            raise failure(f"publishing the head of {self._stream}", error) from error

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
            raise Transient(f"a transaction on {topic} stays open", remedy="it times out: try again")
        time.sleep(0.5)


def _head(value: bytes, stream: str, topic: str) -> Head:
    try:
        said = json.loads(value)
        if all(type(said[name]) is kind for name, kind in _FIELDS.items()) and said["stream"] == stream:
            return dict(said)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise UnreadableHead(
        f"the head of {stream} on {topic} cannot be read",
        given=value[:200],
        expected="stream, sequence, audit, sha256, key_id and signature as JSON",
        remedy="somebody wrote to the topic: see who may, and compare the chain with a copy kept elsewhere",
    )
