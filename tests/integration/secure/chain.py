"""The chain on a secured broker, each part as the role that does it: topics, records, stream, audit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from tests.integration.secure.tills import sales, takings

from recount.audit.night import CertifiedAudit, audited
from recount.backfill.carrying_out import CarryingOut, Repaired
from recount.declare.registry import Declarations, declared
from recount.engine.commit.batch import TopologyWork
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.kafka.acls import Acl, acls_of
from recount.kafka.connection import Connection
from recount.kafka.topic_drift import all_topics
from recount.kafka.topics_on_cluster import apply
from recount.kafka.topics_on_cluster import plan as plan_topics
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.profile.listeners import permit
from recount.runtime.settings import Settings

MINUTE_MS = 60_000
MODULE = "tests.integration.secure.tills"


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The stream ``takings`` with tables of its own, on a secured broker."""

    kafka: EmbeddedKafka
    settings: Settings

    @classmethod
    def below(cls, root: Path, kafka: EmbeddedKafka, project: Project, prefix: str = "recount") -> Chain:
        places = {name: str(root / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
        settings = Settings(
            profile="embedded",
            bootstrap_servers=kafka.bootstrap_servers,
            jars=str(project.spark_jars),
            topologies=MODULE,
            prefix=prefix,
            kafka_security=kafka.security,
            **places,
        )
        return cls(kafka=kafka, settings=settings)

    @property
    def declarations(self) -> Declarations:
        return declared(MODULE)

    @property
    def acls(self) -> list[Acl]:
        return acls_of(self.declarations, Connection.of(self.settings), "embedded")

    def permit(self, acls: Iterable[Acl]) -> None:
        """Let exactly these be in force."""
        permit(self.kafka.listeners.keeper(), acls)

    def create_topics(self) -> None:
        """What `recount topics --apply` does."""
        connection = Connection.of(self.settings)
        admin = connection.admin()
        apply(admin, plan_topics(admin, all_topics(self.declarations, connection.own), "embedded"))

    def sell(self, minutes: Iterable[int]) -> None:
        """One sale in each of the minutes, and a bad record: as the owner of the source, who is not of Recount."""
        producer = self.kafka.listeners.keeper().producer()
        for minute in minutes:
            said = {"till": "north", "cents": 100 + minute, "at_ms": minute * MINUTE_MS}
            producer.produce(sales.name, key=b"north", value=json.dumps(said).encode())
        producer.produce(sales.name, key=b"north", value=b"no JSON")
        assert producer.flush(60) == 0

    def stream(self, spark: SparkSession) -> None:
        """Run the stream over what is there."""
        settings = self.settings.acting_as("stream")
        StreamRunner(spark, settings, TopologyWork(takings, settings.data), RunOptions(available_now=True)).run()

    def backfill(self) -> Repaired:
        """What the DAG of backfills does once somebody has approved."""
        settings = self.settings.acting_as("stream")
        return CarryingOut.of(settings, takings).run()

    def audit(self, spark: SparkSession) -> CertifiedAudit:
        """What the nightly audit does."""
        return audited(spark, self.settings.acting_as("audit"), takings)
