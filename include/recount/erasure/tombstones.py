"""A null value under the erased key on each compacted topic of results, so that compaction takes its rows.

The audit after the erasure reads these topics from behind the tombstones, and so never meets them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException

from recount.audit.committed import CommittedRecord, read_committed
from recount.audit.kept import kept, kept_if_any
from recount.audit.shape import flow_of
from recount.audit.store import Run
from recount.core.errors import Terminal, Transient
from recount.core.output import encode_key
from recount.core.topology import Topology, Written
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure, patiently
from recount.kafka.offsets import log_ranges, partitions_of

ERASURE_HEADER = "recount-erasure"
_PATIENCE_S = 60.0
_PAUSE_S = 0.1


def read_until(topology: Topology, run: Run) -> dict[str, Mapping[int, int]]:
    """By topic of a sink, up to where ``run`` has read it."""
    if flow_of(topology) is None:
        return dict(run.read_to)
    return {topology.written[0].topic.name: run.published_ends}


def strange_since(connection: Connection, topology: Topology, run: Run) -> list[str]:
    """The compacted topics to which somebody has written since ``run`` read them."""
    found = []
    for node in _compacted(topology):
        topic = node.topic.name
        seen, ends = read_until(topology, run).get(topic, {}), kept_if_any(connection, topic)
        if any(end > seen.get(partition, 0) for partition, (_, end) in ends.items()):
            found.append(topic)
    return found


@dataclass(frozen=True, kw_only=True)
class Tombstones:
    """Those of the erasure ``erasure`` of ``key`` in ``topology``, whose newest audit is ``run``."""

    connection: Connection
    topology: Topology
    run: Run
    erasure: str
    key: str

    def publish(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Write what is not there yet to ``topics``, in one transaction; returns where the compacted topics end then.

        Raises ``Terminal`` where anybody else has written to one of them since the audit.
        """
        topics = [topic for topic in topics if topic in {node.topic.name for node in _compacted(self.topology)}]
        missing = [topic for topic in topics if not self._written_to(topic)]
        if missing:
            self._write(missing)
        return {topic: self._ends(topic) for topic in topics}

    def _written_to(self, topic: str) -> bool:
        """Whether the tombstone is there; a run that was killed may have written it."""
        seen = read_until(self.topology, self.run).get(topic, {})
        ends = self._ends(topic)
        since = {partition: (seen.get(partition, 0), end) for partition, end in ends.items()}
        found = list(read_committed(self.connection, topic, since))
        strange = [one for one in found if not self._is_mine(one)]
        if strange:
            raise Terminal(
                f"somebody has written to {topic} since the audit {self.run.audit}",
                given=f"{topic}-{strange[0].partition}@{strange[0].offset}",
                expected="no record but the tombstone of this erasure",
                remedy=f"see who can write to it, then `recount audit --stream {self.topology.name}`",
            )
        return bool(found)

    def _is_mine(self, record: CommittedRecord) -> bool:
        told = record.header(ERASURE_HEADER)
        return record.value is None and record.key == encode_key(self.key) and told == self.erasure

    def _write(self, topics: Iterable[str]) -> None:
        named = self.connection.own(f"recount.{self.topology.name}.erasure")
        producer = self.connection.producer({"transactional.id": named, "linger.ms": 0})
        try:
            producer.init_transactions(REQUEST_TIMEOUT_S)
            producer.begin_transaction()
            for topic in topics:
                headers: list[tuple[str, str | bytes | None]] = [(ERASURE_HEADER, self.erasure.encode())]
                producer.produce(topic, key=encode_key(self.key), value=None, headers=headers)
            patiently(lambda: producer.commit_transaction(REQUEST_TIMEOUT_S), time.monotonic() + _PATIENCE_S)
        except KafkaException as error:
            raise failure(f"publishing the tombstones of {self.erasure}", error) from error

    def _ends(self, topic: str) -> dict[int, int]:
        """Where the partitions of ``topic`` end, once everything in them is decided."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            decided = {partition: span.end for partition, span in kept(self.connection, topic).items()}
            spans = log_ranges(self.connection, partitions_of(self.connection, topic), IsolationLevel.READ_UNCOMMITTED)
            if decided == {partition: span.end for (_, partition), span in spans.items()}:
                return decided
            if time.monotonic() > deadline:
                raise Transient(
                    f"a transaction is open on {topic}",
                    given=decided,
                    expected="all of it to be decided",
                    remedy="run the erasure again",
                )
            time.sleep(_PAUSE_S)


def _compacted(topology: Topology) -> list[Written]:
    return [node for node in topology.written if "compact" in node.topic.cleanup_policy]
