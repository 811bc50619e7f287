"""Tombstones of an erased key in compacted topics of results.

The audit after the erasure reads these topics from behind the tombstones. So nobody else may have written to them since
the audit before it.
"""

import time
from collections.abc import Sequence

from confluent_kafka import KafkaException

from recount.audit.carry.store import Run
from recount.audit.compare.committed import CommittedRecord, read_committed
from recount.audit.cut.kept_log import decided, decided_if_any
from recount.declare.output import encode_key
from recount.declare.topology import Topology
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure, patiently
from recount.runtime.errors import Terminal
from recount.tables.signed_orders import Erasure

ERASURE_HEADER = "recount-erasure"
_PATIENCE_S = 60.0


def compacted(topology: Topology) -> list[str]:
    return [node.topic.name for node in topology.written if "compact" in node.topic.cleanup_policy]


def records_since(connection: Connection, run: Run, topic: str) -> list[CommittedRecord]:
    """The records of a sink's ``topic`` that ``run`` had not read."""
    seen = run.read_to.get(topic, {})
    ends = decided_if_any(connection, topic)
    since = {partition: (seen.get(partition, 0), end) for partition, (_, end) in ends.items()}
    return list(read_committed(connection, topic, since))


def publish_tombstones(
    connection: Connection, topology: Topology, run: Run, erasure: Erasure, key: str
) -> dict[str, dict[int, int]]:
    """Write what is not there yet, in one transaction, where the key had rows; returns where the topics end then.

    Raises ``Terminal`` where anybody else has written to one of them since ``run``, the newest audit.
    """
    held = {name.partition("/")[2] for name in erasure.counts if name.startswith(("outputs/", "corrections/"))}
    of_held = {node.topic.name for node in topology.written if node.table in held}
    topics = [topic for topic in compacted(topology) if topic in of_held]
    missing = []
    for topic in topics:
        found = records_since(connection, run, topic)
        for one in found:
            is_mine = one.value is None and one.key == encode_key(key)
            if not is_mine or one.header(ERASURE_HEADER) != erasure.erasure:
                raise Terminal.of(
                    "tombstones-overwritten",
                    given=f"{topic}-{one.partition}@{one.offset}",
                    topic=topic,
                    audit=run.audit,
                    name=topology.name,
                )
        if not found:
            missing.append(topic)
    _write(connection, topology.name, missing, erasure.erasure, key)
    return {topic: {partition: span.end for partition, span in decided(connection, topic).items()} for topic in topics}


def _write(connection: Connection, stream: str, topics: Sequence[str], erasure: str, key: str) -> None:
    if not topics:
        return
    named = connection.own(f"recount.{stream}.erasure")
    producer = connection.producer({"transactional.id": named, "linger.ms": 0})
    headers: list[tuple[str, str | bytes | None]] = [(ERASURE_HEADER, erasure.encode())]
    try:
        producer.init_transactions(REQUEST_TIMEOUT_S)
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, key=encode_key(key), value=None, headers=headers)
        patiently(lambda: producer.commit_transaction(REQUEST_TIMEOUT_S), time.monotonic() + _PATIENCE_S)
    except KafkaException as error:
        raise failure(f"publishing the tombstones of {erasure}", error) from error
