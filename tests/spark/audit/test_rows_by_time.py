"""Rows that only their key and time tell apart: a late record adds to what an audit judged nights ago."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

pytestmark = pytest.mark.timeout(1_800)
"""Streams and audits run for real: minutes where other work shares the machine."""


@pytest.mark.thorough
def test_a_record_that_comes_again_nights_later_is_a_miss_and_no_violation(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    """Its first copy raised an alert of the same key and time, which the audits have judged and let go."""
    paid = stream(source_topic("paid", RecordSchema.of(amount=LONG))).in_order(grace="1 min")
    many = paid.windowed_by(tumbling("5 min", grace="1 min")).aggregate(n=count()).emit_each_record()
    alerts = (
        paid.filter(col("amount") > 100)
        .select("amount", reason="high amount")
        .merge(many.filter(col("n") > 3).select(amount=col("n"), reason="many payments"))
    )
    topology = Topology(name="alarm", sinks=[alerts.to(output_topic("alerts"))])
    stage = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()
    nights = ([("ann", 0, 500), ("bob", 200, 1)], [("ann", 0, 700), ("bob", 400, 1)], [("bob", 600, 1)])
    for records in nights:
        stage.produce([("paid", 0, who, minute, {"amount": amount}) for who, minute, amount in records])
        stage.run()
        night = stage.audit().findings
        assert night.differences == ()
    [miss] = night.misses
    assert (miss.key, miss.explained) == ("ann", True)
    assert '"amount":500' in (miss.published or "")
    assert stage.audit(from_the_beginning=True).findings.misses == night.misses
