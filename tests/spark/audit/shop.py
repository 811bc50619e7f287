"""A topology of many operators on a real broker: orders with their customer, joined with payments, and visits of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from delta.tables import DeltaTable
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from tests.spark.audit.conftest import MINUTE_MS, START_MS

from recount.audit.nightly import CertifiedAudit, audited
from recount.core.aggregates import count, total
from recount.core.nodes import Sink
from recount.core.output import output_record
from recount.core.schema import DOUBLE, STRING, RecordSchema, decimal
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topics import Topic
from recount.core.topology import Topology, stream, table
from recount.core.windows import session
from recount.kafka.connection import Connection
from recount.kafka.declared import dead_letter_topic
from recount.kafka.platform import platform_topics
from recount.kafka.topics import apply, plan
from recount.local.kafka import EmbeddedKafka
from recount.local.project import Project
from recount.spark.batch import TopologyWork
from recount.spark.runner import RunOptions, StreamRunner

CUSTOMERS = ("ada", "bob", "cy", "dee", "eve")


@dataclass(frozen=True, kw_only=True)
class Shop:
    """Paid orders (a stream's rows) and visits (sessions): two sinks, three source topics, two partitions of orders."""

    spark: SparkSession
    settings: Settings
    topology: Topology

    @property
    def connection(self) -> Connection:
        return Connection(bootstrap_servers=self.settings.bootstrap_servers)

    @property
    def tables(self) -> Tables:
        return Tables(self.settings.data)

    @property
    def paid(self) -> Sink:
        return self.topology.sinks[0]

    @property
    def visits(self) -> Sink:
        return self.topology.sinks[1]

    def topic(self, kind: str) -> str:
        """The name of the source topic of that kind: orders, payments, customers."""
        [name] = (one.topic.name for one in self.topology.sources if kind in one.topic.name)
        return name

    def produce(self, records: Sequence[tuple[str, int, str, float, Mapping[str, Any]]]) -> None:
        """Append ``(topic, partition, key, minutes after START_MS, value)`` in this order."""
        producer = self.connection.producer()
        for kind, partition, key, minute, value in records:
            producer.produce(
                self.topic(kind),
                key=key.encode(),
                value=json.dumps(value).encode(),
                partition=partition,
                timestamp=START_MS + round(minute * MINUTE_MS),
            )
        assert producer.flush(30) == 0

    def run(self) -> None:
        """Let the engine process everything that is there, in one batch."""
        work = TopologyWork(self.topology, self.settings.data)
        StreamRunner(self.spark, self.settings, work, RunOptions(available_now=True, max_offsets=1_000)).run()

    def audit(self) -> CertifiedAudit:
        return audited(self.spark, self.settings, self.topology)

    def rows(self, sink: Sink) -> list[Row]:
        """The rows of the sink's table as its topic has them: in the order in which they were written."""
        path = self.tables.output(sink.table)
        return self.spark.read.format("delta").load(path).orderBy("generation", "batch", "timestamp_ms").collect()

    def publish(self, sink: Sink, row: Mapping[str, Any]) -> None:
        """Write ``row`` of the sink's table to its topic as the stream does."""
        record = output_record(
            row,
            key=sink.key,
            fields=list(sink.fields),
            timestamp_ms=row["timestamp_ms"],
            revision=row["revision"],
            origin="stream",
            source=row["origin"],
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

    def append(self, sink: Sink, row: Mapping[str, Any]) -> None:
        """Write ``row`` to the sink's table."""
        path = self.tables.output(sink.table)
        schema = self.spark.read.format("delta").load(path).schema
        rows = self.spark.createDataFrame([tuple(row[name] for name in schema.fieldNames())], schema)
        rows.write.format("delta").mode("append").save(path)

    def change(self, sink: Sink, row: Row, replacement: Mapping[str, Any] | None) -> None:
        """Delete ``row`` from the sink's table, or put another in its place."""
        same = reduce(and_, (F.col(name).eqNullSafe(F.lit(value)) for name, value in row.asDict().items()))
        DeltaTable.forPath(self.spark, self.tables.output(sink.table)).delete(same)
        if replacement is not None:
            self.append(sink, replacement)

    def expire(self, sink: Sink, records: int) -> None:
        """Delete the first ``records`` of the sink's topic: others, nobody can."""
        beyond = TopicPartition(sink.topic.name, 0, records)
        admin = self.connection.admin()
        [deleted] = admin.delete_records([beyond]).values()
        deleted.result(15)

    def a_day(self, *, late: bool = False) -> None:
        """Each customer buys, moves up a tier and pays; then an hour passes, and ``late`` an order of eve comes."""
        self.produce([("customers", 0, who, 0, {"tier": "tin"}) for who in CUSTOMERS])
        self.produce([_order(who, 1 + number) for number, who in enumerate(CUSTOMERS)])
        self.run()
        self.produce([("customers", 0, who, 1, {"tier": "gold"}) for who in CUSTOMERS])
        self.produce([("payments", 0, who, 2 + number, {"rate": 0.1 * number}) for number, who in enumerate(CUSTOMERS)])
        self.produce([_order("ada", 8), _order("bob", 9), ("payments", 0, "ada", 9, {"rate": 0.7})])
        self.produce([_order("zoe", 60, partition=partition) for partition in (0, 1)])
        self.produce([("payments", 0, "yan", 60, {"rate": 1.0})])
        if late:
            self.produce([_order("eve", 6.5)])
        self.run()


def _order(who: str, minute: float, partition: int | None = None) -> tuple[str, int, str, float, Mapping[str, Any]]:
    place = sum(map(ord, who)) % 2 if partition is None else partition
    return ("orders", place, who, minute, {"amount": 10.25})


def shop_of(spark: SparkSession, kafka: EmbeddedKafka, project: Project, root: Path) -> Shop:
    """A shop with topics of its own and its tables below ``root``."""
    shop = uuid.uuid4().hex[:8]
    orders = _source(f"orders-{shop}", RecordSchema.of(amount=decimal(15, 2)), partitions=2)
    payments = _source(f"payments-{shop}", RecordSchema.of(rate=DOUBLE))
    customers = _source(f"customers-{shop}", RecordSchema.of(tier=STRING))
    paid, visits = (
        Topic(name=f"{name}-{shop}", key="who", partitions=1, retention_ms=-1) for name in ("paid", "visits")
    )
    joined = (
        stream(orders)
        .left_join_table(table(customers))
        .join(stream(payments), before="1 min", after="5 min", grace="2 min")
        .select("amount", "tier", "rate")
    )
    seen = joined.windowed_by(session("3 min", grace="1 min")).aggregate(
        orders=count(), revenue=total("amount"), rates=total("rate")
    )
    topology = Topology(
        name=f"shop-{shop}",
        sinks=[joined.to(paid, table="paid"), seen.emit_final().to(visits, table="visits")],
    )
    folders = {name: str(root / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
    settings = Settings(
        profile="embedded", bootstrap_servers=kafka.bootstrap_servers, jars=str(project.spark_jars), **folders
    )
    found = Shop(spark=spark, settings=settings, topology=topology)
    sources = [orders, payments, customers]
    letters = [replace(dead_letter_topic(topic), retention_ms=-1) for topic in sources]
    admin = found.connection.admin()
    apply(admin, plan(admin, [*platform_topics(), *sources, *letters, paid, visits], "embedded"))
    return found


def _source(name: str, value: RecordSchema, partitions: int = 1) -> Topic:
    return Topic(name=name, key="who", value=value, partitions=partitions, retention_ms=-1)
