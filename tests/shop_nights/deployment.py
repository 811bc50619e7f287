"""A broker, Spark and all folders, of which everything but the processes lives through the nights."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.sql import SparkSession
from tests.long_programs import deployed
from tests.spark.audit.stage import Stage, configure, send
from tests.unit.topologies.shop_log import START_MS, Arrival, topics_of

from recount.audit.audit_session import OF_AN_AUDIT
from recount.audit.cut.auditable import AuditRequest
from recount.audit.findings.finding_register import Interval
from recount.audit.night import Outcome, audited_together
from recount.declare.groups import Archive
from recount.declare.topology import Topology
from recount.engine.upkeep import trimming
from recount.kafka.connection import Connection
from recount.kafka.offsets import partitions_of
from recount.runtime.settings import Settings

DAY_MS = 86_400_000
KEPT = "20 min"
"""Retention goes by the times of batches, so here by how long nights take."""
_BATCHES_BETWEEN_UPKEEP = 3
_SLOTS = 4
"""Tasks wait for Python workers and for consumers to close: more of them than cores keep the cores at work."""
_COMPACTING = {"segment.ms": "60000", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "60000"}


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What lives through the nights."""

    spark: SparkSession
    settings: Settings
    topologies: Sequence[Topology]
    archives: Sequence[Archive]
    begin_ms: int

    @property
    def stages(self) -> list[Stage]:
        return [Stage(spark=self.spark, settings=self.settings, topology=one) for one in self.topologies]

    @property
    def topics(self) -> list[str]:
        """The source topics, those of tables first."""
        return list(dict.fromkeys(topic for one in self.topologies for topic in topics_of(one)))

    def create_topics(self) -> None:
        """All topics. The broker deletes nothing by itself, for the records are of many days ago: see ``expire``."""
        for stage in self.stages:
            stage.create_topics()
        written = [node.topic.name for one in self.topologies for node in one.written]
        compacted = {
            source.topic.name
            for one in self.topologies
            for source in one.sources
            if "compact" in source.topic.cleanup_policy
        }
        for topic in (*self.topics, *written):
            configure(self._connection, topic, _COMPACTING if topic in compacted else {"retention.ms": "-1"})

    def produce(self, log: Sequence[Arrival], night: int) -> None:
        """The records of a night, at the end of their topics."""
        later_ms = self.begin_ms + night * DAY_MS - START_MS
        send(self._connection, [replace(one, timestamp_ms=one.timestamp_ms + later_ms) for one in log])

    def audit(self, name: str) -> list[Outcome]:
        """All streams in one application; each audit is called ``name``."""
        request = AuditRequest(audit=name, interval=Interval(), source="auto")
        return list(audited_together(self.settings, self.topologies, request, lambda _: self.spark))

    def expire(self, before_ms: int) -> None:
        """Delete the records before the day, as retention does; compacted topics are the broker's own to clean."""
        admin = Connection.of(self.settings).admin()
        delete = [
            topic
            for one in self.topologies
            for topic in [*(s.topic for s in one.sources), *(node.topic for node in one.written)]
            if topic.cleanup_policy == "delete"
        ]
        places = [place for topic in {one.name for one in delete} for place in partitions_of(self._connection, topic)]
        asked = {TopicPartition(*place): OffsetSpec.for_timestamp(before_ms) for place in places}
        ends = {place: answer.result(15).offset for place, answer in admin.list_offsets(asked).items()}
        gone = [TopicPartition(one.topic, one.partition, end) for one, end in ends.items() if end > 0]
        for answer in admin.delete_records(gone).values() if gone else ():
            answer.result(15)

    def bytes(self) -> dict[str, int]:
        """What lies on disk, by folder."""
        root = Path(self.settings.data)
        return {
            folder.name: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            for folder in (*sorted(root.iterdir()), Path(self.settings.reports), Path(self.settings.checkpoints))
        }

    @property
    def _connection(self) -> Connection:
        return Connection.of(self.settings)


@contextmanager
def deployment(folder: Path, topologies: Sequence[Topology], archives: Sequence[Archive]) -> Iterator[Deployment]:
    """Start broker and Spark over what is in ``folder``; ended in the end."""
    # a night has a batch or two, and rows go with the upkeep
    trimming.BATCHES_BETWEEN = _BATCHES_BETWEEN_UPKEEP
    folder.mkdir(parents=True, exist_ok=True)
    begun = folder / "begun"
    if not begun.exists():
        begun.write_text(str(time.time_ns() // 1_000_000 // DAY_MS * DAY_MS - 31 * DAY_MS))
    with deployed(folder, **OF_AN_AUDIT, **{"spark.master": f"local[{_SLOTS}]"}) as (session, settings):
        found = Deployment(
            spark=session, settings=settings, topologies=topologies, archives=archives, begin_ms=int(begun.read_text())
        )
        found.create_topics()
        yield found
