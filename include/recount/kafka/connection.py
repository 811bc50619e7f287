"""How to reach the Kafka cluster: the one place that builds confluent-kafka clients, and the options of Spark's source.

What clients, and Spark's failed jobs, say of brokers that refuse is named as an error of ours.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from recount.declare.topics import FARTHEST_AHEAD
from recount.kafka.security import UNSECURED, HiddenValues, Security, forget_admissions, require_admission, security_of
from recount.runtime.errors import RecountError, RegistryRefused, RegistryUnreachable, Terminal, Transient
from recount.runtime.settings import Settings
from recount.runtime.times import told_time

_LOG = logging.getLogger("recount.kafka")
_QUIET: Mapping[str, Any] = {"log_level": 4, "reconnect.backoff.ms": 200, "reconnect.backoff.max.ms": 5_000}

_NONE: Mapping[str, Any] = {}
_DEFAULT = "recount."

BACKFILL_SLOT = "backfill"
"""The output slot of a stream's backfills."""

REQUEST_TIMEOUT_S = 15.0
_GROUP_ANSWER_S = 2.0
ANSWER_S = 10.0
"""How long a call may take of which the client does not keep the time by itself, see ``answered``."""

_REFUSED = frozenset(
    {
        # a record, or a batch of them
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.INVALID_REQUIRED_ACKS,
        # the offsets of a batch
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError.INVALID_GROUP_ID,
        # a topic
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_CONFIG,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_DELETION_DISABLED,
        # the client
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.SECURITY_DISABLED,
        KafkaError.UNACCEPTABLE_CREDENTIAL,
        KafkaError.INVALID_PRINCIPAL_TYPE,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._INVALID_ARG,
        KafkaError._NOT_IMPLEMENTED,
    }
)
"""What the brokers, or the client, say of the same call each time, until a human has acted.

librdkafka marks none of the brokers' codes as final, so they are listed. Not here: what another broker, leader or
coordinator may answer otherwise, too few replicas or brokers, a quota, what is over with a new producer, and what may
be created meanwhile (a topic, a partition of it).
"""
_NOT_ALLOWED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


class Fenced(Terminal):
    """Another process took over this transactional.id: this one must stop and must not retry."""


class NotAllowed(Terminal):
    def __init__(self, doing: str, said: str) -> None:
        super().__init__(
            f"Kafka does not allow {doing}",
            given=said,
            expected="the ACLs that `recount acls` prints, for the principal of this process",
            remedy="make those that are missing: compare with kafka-acls.sh --list",
        )


class Refused(Terminal):
    """Brokers refuse a call, and will refuse it again, also from another client."""


class Unanswered(Transient):
    """A call of Kafka's client that does not come back: no other call of that client can be made beside it."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Bootstrap servers and security, plus any further client property that all clients share."""

    bootstrap_servers: str
    security: Security = UNSECURED
    properties: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = "recount"
    """Of every group, transactional.id and platform topic: what tells one installation on a cluster from another."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The connection of the installation with these ``settings``; raises ``InvalidSecurity``."""
        security = security_of(settings.acting_as("admin").kafka_security)
        return cls(bootstrap_servers=settings.bootstrap_servers, security=security, prefix=settings.prefix)

    @property
    def of_spark(self) -> HiddenValues:
        return HiddenValues({"kafka.bootstrap.servers": self.bootstrap_servers, **self.security.of_spark()})

    def own(self, name: str) -> str:
        """This installation's name of the group, transactional.id or platform topic that is ``name`` by default."""
        return f"{self.prefix}.{name.removeprefix(_DEFAULT)}" if name.startswith(_DEFAULT) else name

    def group(self, stream: str) -> str:
        """The consumer group under which ``stream`` commits its offsets, and by which its dead letters name it."""
        return self.own(f"{_DEFAULT}{stream}")

    def backfill_group(self, stream: str) -> str:
        """The group whose offset counts the backfills of ``stream`` that are published."""
        return f"{self.group(stream)}.{BACKFILL_SLOT}"

    def admin(self) -> AdminClient:
        """The client for questions about the cluster, one for all threads of this process.

        A new one takes 100 ms, and of twenty one takes 3 s: librdkafka drops the bootstrap broker once it knows the
        cluster, with what was asked of it meanwhile, and asks for the leaders of partitions again only then.
        """
        return _admin(os.getpid(), tuple(sorted(self._config({}).items())))

    def consumer(self, group: str, properties: Mapping[str, Any] = _NONE) -> Consumer:
        """A consumer that reads committed records only and never commits by itself.

        Use it with ``assign``; a subscription would join the
        group, and offsets committed from a transaction need the group to be without members.
        """
        defaults = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
        return Consumer(self._config({**defaults, **properties}), logger=_LOG)

    def producer(self, properties: Mapping[str, Any] = _NONE) -> Producer:
        """An idempotent producer with acks=all that sends a key to the partition Java's producer would choose.

        How large a record may be is the topic's setting: by itself the client would send none of a megabyte, which
        brokers and other clients take.
        """
        defaults = {
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "message.max.bytes": 1_000_000_000,
        }
        return Producer(self._config({**defaults, **properties}), logger=_LOG)

    def _config(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        if self.security:
            require_admission(os.getpid(), self.bootstrap_servers, self.security)
        own = {"bootstrap.servers": self.bootstrap_servers, **self.security.of_clients(), **self.properties}
        return {**_QUIET, **own, **properties}


@lru_cache(maxsize=8)
def _admin(_process: int, config: tuple[tuple[str, Any], ...]) -> AdminClient:
    """Not shared with the process that has forked this one: its threads do not run here."""
    return AdminClient(dict(config), logger=_LOG)


def failure(doing: str, error: KafkaException | KafkaError) -> RecountError:
    """The exception for ``error``: ``Fenced``, ``NotAllowed``, ``Refused``, ``Terminal`` or ``Transient``.

    A plain ``Terminal`` is final for this client: another one may have better luck.
    """
    cause = error.args[0] if isinstance(error, KafkaException) else error
    if cause.code() in _FENCED:
        return Fenced.of("fenced", given=str(cause), doing=doing)
    if cause.code() == KafkaError.INVALID_TIMESTAMP:
        # a time that is too far ahead of the broker's clock is taken once it is near
        return Transient.of("time-of-a-record-refused", given=str(cause), doing=doing, setting=FARTHEST_AHEAD)
    if cause.code() in _NOT_ALLOWED:
        return NotAllowed(doing, str(cause))
    if cause.code() in _REFUSED:
        return Refused.of("kafka-refused", given=str(cause), doing=doing)
    if cause.code() == KafkaError._UNKNOWN_PARTITION or (cause.fatal() and not cause.retriable()):
        return Terminal.of("kafka-refused", given=str(cause), doing=doing)
    forget_admissions()
    return Transient.of("kafka-failed", given=str(cause), doing=doing)


@contextmanager
def failing(doing: str) -> Iterator[None]:
    """Raise what Kafka's client raises as the ``failure`` of ``doing`` it."""
    try:
        yield
    except KafkaException as error:
        raise failure(doing, error) from error


def committed_of_group(consumer: Consumer, asked: list[TopicPartition], group: str) -> list[TopicPartition]:
    """Committed offsets of ``group`` of ``consumer``. Raises ``NotAllowed`` within seconds.

    Where the group is not allowed, the client says so to who polls, and lets the call itself time out.
    """
    doing, deadline = f"reading the offsets of group {group}", time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return consumer.committed(asked, _GROUP_ANSWER_S)
        except KafkaException as error:
            told = consumer.poll(0)
            refused = None if told is None else told.error()
            if refused is not None and refused.code() in _NOT_ALLOWED:
                raise failure(doing, refused) from None
            if error.args[0].code() != KafkaError._TIMED_OUT or time.monotonic() > deadline:
                raise failure(doing, error) from error


def patiently(call: Callable[[], None], deadline: float) -> None:
    """Repeat ``call`` while Kafka says that repeating the same call is how to go on, until ``deadline`` (monotonic)."""
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def answered(call: Callable[[], None]) -> None:
    """Make a ``call`` that should end within ``ANSWER_S`` and may never do; then its thread is left to itself.

    Raises what the call raises, or ``Unanswered``.
    """
    raised: list[BaseException] = []

    def calls() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=calls, name="kafka call", daemon=True)
    thread.start()
    thread.join(ANSWER_S + 2)
    if thread.is_alive():
        raise Unanswered.of("client-does-not-return", given=f"{ANSWER_S:.0f} s and 2 more")
    if raised:
        raise raised[0]


_SAID = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+): ([^\n]*)")
_OF_REGISTRY = re.compile(r"\b(RegistryUnreachable|RegistryRefused): [^\n]*?given: '([^'\n]*)'")
_TIME = re.compile(r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+) that overflows")
_LATEST_MS = (2**63 - 1) // 1_000
_NOT_ADMITTED = frozenset({"SaslAuthenticationException", "SslAuthenticationException", "AuthenticationException"})
SCAN_OPTIONS: Mapping[str, str] = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.fetch.min.bytes": str(512 << 10),
    "kafka.fetch.max.wait.ms": "20",
}
"""Measured: 1.7 times the throughput of the defaults on a bare scan; the short wait keeps small batches quick."""


@contextmanager
def refusals_told() -> Iterator[None]:
    """Raise ours instead of Spark's exception where it tells of one of the refusals that ``refusal_in`` knows."""
    try:
        yield
    except RecountError:
        raise
    except Exception as error:
        if refusal := refusal_in(str(error)):
            raise refusal from error
        raise


def refusal_in(said: str) -> RecountError | None:
    """The refusal that a stack trace tells of; None where it tells of none."""
    for name, text in _OF_REGISTRY.findall(said):
        return RegistryUnreachable(text) if name == "RegistryUnreachable" else RegistryRefused(text)
    for name, text in _SAID.findall(said):
        if name.endswith("AuthorizationException"):
            return NotAllowed("Spark to read", f"{name}: {text}")
        if name in _NOT_ADMITTED:
            return Terminal.of("spark-not-admitted", given=f"{name}: {text}")
    for topic, partition, offset, time_ms in _TIME.findall(said):
        return Terminal.of(
            "time-beyond-spark",
            given=f"{topic}-{partition}@{offset}: {told_time(int(time_ms))}",
            topic=topic,
            latest=told_time(_LATEST_MS),
        )
    return None
