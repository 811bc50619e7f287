"""A stream of the sessions of clicks whose rows are released as soon as an audit has matched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.declare.aggregates import count
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topology import Topology, stream
from recount.declare.windows import session
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project


@dataclass(frozen=True, kw_only=True)
class Visits(Stage):
    """One source topic, one output, whose table has its name."""

    def a_batch(self, *clicks: tuple[str, float]) -> None:
        """Who clicked in which minute."""
        kind = self.topology.sources[0].topic.name
        self.produce([(kind, 0, who, minute, {"page": "a"}) for who, minute in clicks])
        self.run()


def visits_of(spark: SparkSession, kafka: EmbeddedKafka, project: Project, root: Path, *, clicks: str) -> Visits:
    """The sessions of the topic ``clicks``, with topics of their own and their table ``visits`` below ``root``."""
    source = stream(source_topic(clicks, RecordSchema.of(page=STRING)))
    counted = source.windowed_by(session("5 min", grace="1 min")).aggregate(clicks=count()).emit_final()
    sink = counted.to(output_topic(f"{clicks}-visits"), table="visits")
    topology = Topology(name=f"{clicks}-visited", retention="1 ms", sinks=[sink])
    return Visits(spark=spark, settings=settings_below(root, kafka, project), topology=topology).create_topics()
