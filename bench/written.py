"""All that a stream has written, so that two deployments can be held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl
from confluent_kafka import KafkaError, Message, TopicPartition

from bench.deployment import Deployment
from recount.declare.topology import Topology
from recount.engine.commit.batch import TopologyWork
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.offsets import partitions_of
from recount.runtime.errors import Transient
from recount.tables.places import Tables

_RECORDS: dict[str, pl.DataType] = {
    "partition": pl.Int32(),
    "key": pl.Binary(),
    "value": pl.Binary(),
    "headers": pl.String(),
    "timestamp_ms": pl.Int64(),
}
_BATCHES = ["generation", "batch", "topic", "partition", "start", "end"]


@dataclass(frozen=True, kw_only=True)
class Written:
    """What one stream left: the records of its topic, the rows of its tables, and which offsets each batch read.

    Streams that cut the log alike agree in all of it. The records of a partition stand in the order of the log, the
    rows of a table in none.
    """

    parts: Mapping[str, pl.DataFrame]

    @classmethod
    def by(cls, deployment: Deployment, topology: Topology) -> Written:
        """What ``topology`` left in ``deployment``, as a ``read_committed`` reader finds it."""
        places, stream = Tables(deployment.data(topology.name)), topology.name
        tables = {"state": places.state(stream), "late": places.late(stream), "rejected": places.rejected(stream)}
        parts = {f"table of {name}": _rows(path) for name, path in tables.items()}
        for sink in topology.sinks:
            parts["results in Kafka"] = _records(deployment.connection, sink.topic.name)
            parts["results in Delta"] = _rows(places.output(sink.table))
        batches = TopologyWork(topology, places.root).history.newest_first()
        ranges = [
            (proof.generation, proof.batch, part.topic, part.partition, part.start, part.end)
            for proof in (entry.proof for entry in batches)
            for part in proof.partitions
        ]
        parts["ranges of the batches"] = pl.DataFrame(ranges, _BATCHES, orient="row").sort(_BATCHES)
        return cls(parts=parts)

    def differences(self, other: Written) -> list[str]:
        """Which parts differ, and in how many rows; empty when all is the same to the byte."""
        return [
            f"{name}: {mine.height:,} against {other.parts[name].height:,}"
            for name, mine in self.parts.items()
            if not mine.equals(other.parts[name])
        ]


def _rows(path: str) -> pl.DataFrame:
    rows = pl.read_delta(path)
    return rows.sort(rows.columns)


def _records(connection: Connection, topic: str) -> pl.DataFrame:
    rows = [
        (message.partition(), message.key(), message.value(), repr(message.headers()), message.timestamp()[1])
        for message in _committed(connection, topic)
    ]
    return pl.DataFrame(rows, _RECORDS, orient="row")


def _committed(connection: Connection, topic: str) -> Iterator[Message]:
    """The committed records of ``topic``, partition by partition."""
    consumer = connection.consumer("benchmark", {"enable.partition.eof": True})
    try:
        for _, partition in partitions_of(connection, topic):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(REQUEST_TIMEOUT_S)
                if message is None:
                    raise Transient(f"no answer while reading {topic}", remedy="see that the brokers are up")
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    break
    finally:
        consumer.close()
