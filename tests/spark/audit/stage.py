"""A topology on a real broker: run, audited, and tampered with row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from delta.tables import DeltaTable
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F
from tests.spark.audit.conftest import MINUTE_MS, START_MS, Scene
from tests.unit.topologies.shop_log import Arrival

from recount.audit.findings.finding_register import Source
from recount.audit.night import CertifiedAudit, audited
from recount.declare.columns import BATCH, GENERATION, ORIGIN, RESULT_TIME, REVISION
from recount.declare.groups import Archive
from recount.declare.output import Origin, output_record
from recount.declare.plain_values import PlainValue
from recount.declare.schema import RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, Written
from recount.engine.commit.batch import TopologyWork
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.kafka.connection import Connection
from recount.kafka.topic_drift import dead_letter_topic, platform_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.settings import Settings
from recount.tables.places import Tables

Said = tuple[str, int, str, float, Mapping[str, Any] | bytes | None]
"""Kind of topic, partition, key, minutes after START_MS, value: bytes as they are, else JSON."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A topology with topics and tables of its own."""

    spark: SparkSession
    settings: Settings
    topology: Topology

    @property
    def connection(self) -> Connection:
        return Connection.of(self.settings)

    @property
    def tables(self) -> Tables:
        return Tables(self.settings.data)

    def create_topics(self) -> Self:
        """All that the topology reads and writes."""
        sources = list({one.topic.name: one.topic for one in self.topology.sources}.values())
        letters = [replace(dead_letter_topic(topic), retention_ms=-1) for topic in sources]
        outputs = [node.topic for node in self.topology.written]
        admin = self.connection.admin()
        apply(admin, plan(admin, [*platform_topics(), *sources, *letters, *outputs], "embedded"))
        return self

    def topic(self, kind: str) -> str:
        """The name of the source topic of that kind, which it begins with."""
        [name] = {one.topic.name for one in self.topology.sources if one.topic.name.startswith(kind)}
        return name

    def produce(self, records: Sequence[Said]) -> None:
        """Append the records in this order."""
        log = [
            Arrival(
                topic=self.topic(kind),
                partition=partition,
                key=key,
                value=json.dumps(value).encode() if isinstance(value, Mapping) else value,
                timestamp_ms=START_MS + round(minute * MINUTE_MS),
            )
            for kind, partition, key, minute, value in records
        ]
        send(self.connection, log)

    def run(self, max_offsets: int = 1_000) -> None:
        """Let the engine process everything that is there, by default in one batch."""
        work = TopologyWork(self.topology, self.settings.data, reports=self.settings.reports)
        StreamRunner(self.spark, self.settings, work, RunOptions(available_now=True, max_offsets=max_offsets)).run()

    def archive(self) -> None:
        """Copy every source topic to its Delta archive."""
        for topic in {one.topic.name: one.topic for one in self.topology.sources}.values():
            work = ArchiveWork(self.spark, Archive(topic=topic), self.settings.data)
            StreamRunner(self.spark, self.settings, work, RunOptions(available_now=True)).run()

    def audit(self, source: Source = "auto", *, from_the_beginning: bool = False) -> CertifiedAudit:
        return audited(self.spark, self.settings, self.topology, source=source, from_the_beginning=from_the_beginning)

    def written(self, table: str) -> Written:
        """The sink, or what is written on the way, with that table."""
        [found] = (node for node in self.topology.written if node.table == table)
        return found

    def rows(self, sink: Written) -> list[Row]:
        """The rows of the sink's table as its topic has them: in the order in which they were written."""
        path = self.tables.output(sink.table)
        return self.spark.read.format("delta").load(path).orderBy(GENERATION, BATCH, RESULT_TIME).collect()

    def files(self, sink: Written, row: Row) -> list[str]:
        """The files of the sink's table that hold ``row``, as the table's log names them."""
        rows = self.spark.read.format("delta").load(self.tables.output(sink.table))
        found = rows.where(_is(row)).select(F.col("_metadata.file_path").alias("path")).distinct().collect()
        return [unquote(urlsplit(one.path).path).removeprefix(f"{self.tables.output(sink.table)}/") for one in found]

    def publish(self, sink: Written, row: Mapping[str, Any], origin: Origin = "stream") -> None:
        """Write ``row`` of the sink's table to its topic as the stream, or a backfill, does."""
        record = output_record(
            row,
            key=sink.key,
            fields=sink.fields,
            timestamp_ms=row[RESULT_TIME],
            revision=row[REVISION],
            origin=origin,
            source=(row.asDict() if isinstance(row, Row) else row).get(ORIGIN),
            plain=sink.topic.plain_field,
        )
        producer = self.connection.producer()
        producer.produce(
            sink.topic.name,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
        )
        assert producer.flush(30) == 0

    def append(self, sink: Written, row: Mapping[str, Any]) -> None:
        """Write ``row`` to the sink's table."""
        path = self.tables.output(sink.table)
        schema = self.spark.read.format("delta").load(path).schema
        rows = self.spark.createDataFrame([tuple(row[name] for name in schema.fieldNames())], schema)
        rows.write.format("delta").mode("append").save(path)

    def change(self, sink: Written, row: Row, replacement: Mapping[str, Any] | None) -> None:
        """Delete ``row`` from the sink's table, or put another in its place."""
        DeltaTable.forPath(self.spark, self.tables.output(sink.table)).delete(_is(row))
        if replacement is not None:
            self.append(sink, replacement)

    def expire(self, topic: str, end: int, partition: int = 0) -> None:
        """Delete the records of the topic before the offset ``end``: others, nobody can."""
        beyond = TopicPartition(topic, partition, end)
        admin = self.connection.admin()
        [deleted] = admin.delete_records([beyond]).values()
        deleted.result(15)


def _is(row: Row) -> Column:
    return reduce(and_, (F.col(name).eqNullSafe(F.lit(value)) for name, value in row.asDict().items()))


def trim(desk: Stage | Scene) -> None:
    """What the driver does every hundred batches."""
    TopologyWork(desk.topology, desk.settings.data, reports=desk.settings.reports).tables.trimming.trim()


def send(connection: Connection, records: Iterable[Arrival]) -> None:
    """Append the records in this order; fails where the broker refuses one."""
    producer, refused = connection.producer(), list[str]()

    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(f"{message.topic()}-{message.partition()}: {error}")

    for one in records:
        producer.produce(
            one.topic,
            key=one.key,
            value=one.value,
            partition=one.partition,
            timestamp=one.timestamp_ms,
            on_delivery=told,
        )
    assert producer.flush(60) == 0
    assert not refused, refused[:10]


def configure(connection: Connection, topic: str, entries: Mapping[str, str]) -> None:
    """Set what the broker goes by for the topic, beside what it has."""
    said = [ConfigEntry(*one, incremental_operation=AlterConfigOpType.SET) for one in entries.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=said)
    admin = connection.admin()
    admin.incremental_alter_configs([resource])[resource].result(15)


def settings_below(root: Path, kafka: EmbeddedKafka, project: Project) -> Settings:
    """Tables and reports below ``root``."""
    folders = {name: str(root / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
    return Settings(
        profile="embedded", bootstrap_servers=kafka.bootstrap_servers, jars=str(project.spark_jars), **folders
    )


def source_topic(name: str, value: RecordSchema | PlainValue, partitions: int = 1) -> Topic:
    """A topic of records about somebody, kept for ever."""
    return Topic(name=name, key="who", value=value, partitions=partitions, retention_ms=-1)


def output_topic(name: str, value: PlainValue | None = None) -> Topic:
    """A topic of one partition, so that its records lie in the order in which they were written."""
    return Topic(name=name, key="who", value=value, partitions=1, retention_ms=-1)
