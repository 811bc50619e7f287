"""What came too late for a window explains it also when the window closes in a later night."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic
from tests.spark.audit.visits import visits_of

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import tumbling
from recount.engine.driver.stream_reports import status_of
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

pytestmark = pytest.mark.timeout(900)
SALE = {"item": "pen"}


def test_a_change_that_was_read_too_late_explains_a_window_that_closes_a_night_later(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    tiers = table(source_topic("tiers", RecordSchema.of(tier=STRING)))
    sales = stream(source_topic("pens", RecordSchema.of(item=STRING))).left_join_table(tiers)
    a_day = sales.filter(~col("tier").is_null()).windowed_by(tumbling("1 d", grace="1 min")).aggregate(sales=count())
    topology = Topology(name="tiered", sinks=[a_day.emit_final().to(output_topic("tiered"), table="tiered")])
    desk = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()

    def a_batch(*said: Said) -> None:
        desk.produce(said)
        desk.run()

    a_batch(("pens", 0, "ann", 10, SALE))
    a_batch(("tiers", 0, "ann", 5, {"tier": "gold"}), ("tiers", 0, "eve", 240, {"tier": "tin"}))
    a_batch(("pens", 0, "bob", 240, SALE))
    first = desk.audit().findings
    assert (first.differences, first.misses) == ((), ())
    a_batch(("tiers", 0, "eve", 901, {"tier": "tin"}), ("pens", 0, "bob", 900, SALE))
    night = desk.audit().findings
    assert night.differences == ()
    assert [(miss.key, miss.late) for miss in night.misses] == [("ann", ("tiers-0@0 read after pens-0@0",))]
    status, [lookup] = status_of(desk.connection, topology.name), night.lookups
    assert status and status.lookup_cause == lookup.cause and lookup.cause.startswith("tiers declares no event_time")


@pytest.mark.thorough
def test_a_line_that_was_released_before_its_session_closes_explains_it_as_often_as_it_is_audited(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    hike = visits_of(spark, kafka, project, tmp_path, clicks="hikes")
    hike.a_batch(("ann", 20), ("bob", 33), ("ann", 26), ("ann", 30), ("eve", 34))
    hike.audit()
    hike.a_batch(("ann", 34), ("ann", 38), ("eve", 60))
    for _ in range(3):
        night = hike.audit().findings
        assert night.differences == ()
        assert [miss.key for miss in night.misses if miss.complete] == ["ann"]
