"""A stream on a real broker, run by the real engine, small enough to be judged by hand."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.audit.carry.store import RECONCILIATION
from recount.audit.findings.finding_register import Interval, Source
from recount.audit.night import CertifiedAudit, audited
from recount.declare.aggregates import count, total
from recount.declare.columns import AUDIT
from recount.declare.expressions import coalesce, col
from recount.declare.groups import Archive
from recount.declare.schema import STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.commit.batch import TopologyWork
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.kafka.connection import Connection
from recount.kafka.topic_drift import dead_letter_topic, platform_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.runtime.settings import Settings
from recount.tables.places import Tables

MINUTE_MS = 60_000
START_MS = 28_000_000 * MINUTE_MS
"""A multiple of five minutes; as good an epoch as any."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Streams and audits run for real: minutes where other work shares the machine."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1_800))


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One stream (revenue by region, 5 min windows, 1 min grace) with topics and tables of its own."""

    session: SparkSession
    settings: Settings
    topology: Topology

    @property
    def tables(self) -> Tables:
        return Tables(self.settings.data)

    @property
    def connection(self) -> Connection:
        return Connection.of(self.settings)

    @property
    def orders(self) -> str:
        return self.topology.sources[0].topic.name

    @property
    def revenue(self) -> str:
        return self.topology.sinks[0].topic.name

    def produce(self, records: Sequence[tuple[int, int, bytes | Mapping[str, Any]]]) -> None:
        """Append ``(partition, ms after START_MS, value)`` in this order."""
        producer = self.connection.producer()
        for partition, after_ms, value in records:
            encoded = value if isinstance(value, bytes) else json.dumps(value).encode()
            # the digests of a log cover headers, of which some records have none
            headers = [("trace", after_ms.to_bytes(8)), ("nothing", None)] if after_ms % (2 * MINUTE_MS) else None
            timestamp = START_MS + after_ms
            producer.produce(self.orders, value=encoded, partition=partition, timestamp=timestamp, headers=headers)
        assert producer.flush(30) == 0

    def run(self, *, max_offsets: int = 1_000) -> None:
        """Let the engine process everything that is there."""
        options = RunOptions(available_now=True, max_offsets=max_offsets)
        work = TopologyWork(self.topology, self.settings.data, reports=self.settings.reports)
        StreamRunner(self.session, self.settings, work, options).run()

    def archive(self) -> None:
        """Copy the source topic to the Delta archive."""
        work = ArchiveWork(self.session, Archive(topic=self.topology.sources[0].topic), self.settings.data)
        StreamRunner(self.session, self.settings, work, RunOptions(available_now=True)).run()

    def rewrite_kept(self, audit: str, values: Mapping[str, str], where: str) -> int:
        """Change what ``audit`` kept of both sides, as somebody can who may write to its tables."""
        table = DeltaTable.forPath(self.session, self.tables.audit(self.topology.name, RECONCILIATION))
        those = f"{AUDIT} = '{audit}' AND {where}"
        table.update(those, {name: F.expr(value) for name, value in values.items()})
        return table.toDF().where(those).count()

    def audit(self, end_ms: int | None = None, source: Source = "auto", **options: Any) -> CertifiedAudit:
        return audited(
            self.session, self.settings, self.topology, interval=Interval(end_ms=end_ms), source=source, **options
        )


def order(region: str | None, amount: float) -> dict[str, Any]:
    """An order's value."""
    return {"order_id": "o", "region": region, "amount": amount}


def an_hour_of_orders(scene: Scene) -> None:
    """Partition 1 lags five minutes behind partition 0; one record is 30 s beyond the grace, one is bad."""
    records = []
    for minute in range(60):
        records.append((0, minute * MINUTE_MS, order("EU", 10.5)))
        records.append((1, max(0, minute - 5) * MINUTE_MS, order("US" if minute % 2 else None, 1.25)))
    records.insert(40, (0, 12 * MINUTE_MS + 30_000, order("EU", 99.99)))
    records.insert(50, (1, 0, b"not json"))
    scene.produce(records)


def scene_of(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, unique: Callable[[str], str], root: Path
) -> Scene:
    """A scene whose topics ``unique`` names, with its tables below ``root``."""
    schema = RecordSchema.of(order_id=STRING, region=STRING, amount=decimal(15, 2), required=("order_id", "amount"))
    orders = Topic(name=unique("orders"), key="order_id", value=schema, partitions=2, retention_ms=-1)
    revenue = Topic(name=unique("revenue"), key="region", partitions=2, retention_ms=-1)
    topology = Topology(
        name=f"revenue-{uuid.uuid4().hex[:8]}",
        sinks=[
            stream(orders)
            .select_key(region=coalesce(col("region"), "UNKNOWN"))
            .windowed_by(tumbling("5 min", grace="60 s"))
            .aggregate(orders=count(), revenue=total("amount"))
            .emit_final()
            .to(revenue, table="revenue")
        ],
    )
    folders = {name: str(root / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
    settings = Settings(
        profile="embedded", bootstrap_servers=kafka.bootstrap_servers, jars=str(project.spark_jars), **folders
    )
    scene = Scene(session=spark, settings=settings, topology=topology)
    admin = scene.connection.admin()
    topics = [*platform_topics(), orders, replace(dead_letter_topic(orders), retention_ms=-1), revenue]
    apply(admin, plan(admin, topics, "embedded"))
    return scene


@pytest.fixture
def scene(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, unique: Callable[[str], str], tmp_path: Path
) -> Scene:
    return scene_of(spark, kafka, project, unique, tmp_path)


@pytest.fixture
def database(spark: SparkSession) -> Iterator[Database]:
    found = Database()
    yield found
    found.close()


def framed(database: Database, rows: Sequence[Any], schema: str) -> Frame:
    """``rows`` as a frame with a ``schema`` as Spark writes it."""
    told = T.StructType.fromDDL(schema)
    kinds = to_arrow_schema(told)
    columns = [
        pa.array([_plain(row[at], one.dataType) for row in rows], kinds.types[at]) for at, one in enumerate(told)
    ]
    return frame_of(database, [pa.table(columns, kinds)], kinds)


def _plain(value: Any, kind: T.DataType) -> Any:
    if not isinstance(kind, T.StructType) or value is None:
        return value
    return {one.name: _plain(part, one.dataType) for one, part in zip(kind, value, strict=True)}
