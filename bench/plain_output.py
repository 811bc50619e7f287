"""What exactly once costs: Recount's own work with a producer that is neither transactional nor idempotent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from confluent_kafka import TopicPartition

from recount.engine.exchange.work import Attempt, Processor, Work
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.transaction import KafkaRecord, Offsets


class PlainOutput:
    """Stands in for an ``OutputTransaction``: writes the records, then commits the offsets, at least once."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._producer = connection.producer({"acks": "all", "enable.idempotence": False})
        self.group = connection.group(stream)
        self._consumer = connection.consumer(self.group)

    def commit_once(self, records: Iterable[KafkaRecord], *, end_offsets: Offsets, **_told: Any) -> str:
        """Write and commit; a batch that is tried again is written again."""
        for record in records:
            self._producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
            )
        self._producer.flush(REQUEST_TIMEOUT_S)
        ends = [TopicPartition(topic, partition, offset) for (topic, partition), offset in end_offsets.items()]
        self._consumer.commit(offsets=ends, asynchronous=False)
        return "committed"


class PlainWork:
    """``work`` with a ``PlainOutput``."""

    def __init__(self, work: Work, connection: Connection) -> None:
        self._work = work
        self._connection = connection
        self.name, self.topics, self.with_headers = work.name, work.topics, work.with_headers
        self.outputs, self.history, self.declared = work.outputs, work.history, work.declared
        self.layers, self.delta_first, self.lacks = work.layers, work.delta_first, work.lacks

    def create(self) -> None:
        """As the work itself."""
        self._work.create()

    def processor(self, attempt: Attempt) -> Processor:
        """The work's own, with the other output."""
        plain: Any = PlainOutput(self._connection, self.name)
        return self._work.processor(replace(attempt, transaction=plain))
