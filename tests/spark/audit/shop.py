"""A topology of many operators on a real broker: orders with their customer, joined with payments, and visits of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.conftest import MINUTE_MS, START_MS

from recount.audit.nightly import CertifiedAudit, audited
from recount.core.aggregates import count, total
from recount.core.nodes import Sink
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

    def a_day(self) -> None:
        """Each customer buys and pays once, half of them before they move up a tier; then time passes."""
        self.produce([("customers", 0, who, 0, {"tier": "tin"}) for who in CUSTOMERS])
        self.produce([_order(who, 1 + number) for number, who in enumerate(CUSTOMERS)])
        self.run()
        self.produce([("customers", 0, who, 1, {"tier": "gold"}) for who in CUSTOMERS])
        self.produce([("payments", 0, who, 2 + number, {"rate": 0.1 * number}) for number, who in enumerate(CUSTOMERS)])
        self.produce([_order("ada", 8), _order("bob", 9), ("payments", 0, "ada", 9, {"rate": 0.7})])
        self.run()
        self.time_passes(60)

    def time_passes(self, minute: float) -> None:
        """All partitions get that far."""
        self.produce([_order("zoe", minute, partition=partition) for partition in (0, 1)])
        self.produce([("payments", 0, "yan", minute, {"rate": 1.0})])
        self.run()


def _order(who: str, minute: float, partition: int | None = None) -> tuple[str, int, str, float, Mapping[str, Any]]:
    place = sum(map(ord, who)) % 2 if partition is None else partition
    return ("orders", place, who, minute, {"amount": 10.25})


@pytest.fixture
def shop(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, unique: Callable[[str], str], tmp_path: Path
) -> Shop:
    amount = decimal(15, 2)
    orders = _source(unique("orders"), RecordSchema.of(amount=amount), partitions=2)
    payments = _source(unique("payments"), RecordSchema.of(rate=DOUBLE))
    customers = _source(unique("customers"), RecordSchema.of(tier=STRING))
    paid, visits = (Topic(name=unique(name), key="who", partitions=1, retention_ms=-1) for name in ("paid", "visits"))
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
        name=f"shop-{uuid.uuid4().hex[:8]}",
        sinks=[joined.to(paid, table="paid"), seen.emit_final().to(visits, table="visits")],
    )
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
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
