"""A corrected row is followed until its table may remove it; a correction that comes again later is a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic
from tests.spark.audit.test_removed_rows import trim

from recount.audit.snapshots import Snapshots
from recount.audit.topologies.scope import CORRECTED_PART
from recount.backfill.topologies.carrying_out import CarryingOut
from recount.backfill.topologies.corrections_due import corrections_due
from recount.core.aggregates import count
from recount.core.schema import STRING, RecordSchema
from recount.core.topology import Topology, stream
from recount.core.windows import session
from recount.local.kafka import EmbeddedKafka
from recount.local.project import Project

pytestmark = pytest.mark.timeout(900)


@pytest.mark.usefixtures("tiny")
def test_a_corrected_row_is_let_go_once_it_is_released_and_a_copy_of_its_correction_is_found(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    clicks = stream(source_topic("calls", RecordSchema.of(page=STRING)))
    visits = clicks.windowed_by(session("5 min", grace="1 min")).aggregate(clicks=count()).emit_final()
    sink = visits.to(output_topic("callers"), table="callers")
    topology = Topology(name="caller", retention="1 ms", sinks=[sink])
    desk = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology)
    desk.create_topics()

    def a_batch(*clicks: tuple[str, float]) -> None:
        desk.produce([("calls", 0, who, minute, {"page": "a"}) for who, minute in clicks])
        desk.run()

    def followed() -> int:
        """So many claims about corrections the last audit has left."""
        frames = Snapshots(session=spark, tables=desk.tables, stream=topology.name).of(last.findings.audit).frames
        return sum(frame.count() for (part, _), frame in frames.items() if part == CORRECTED_PART)

    a_batch(("ann", 0), ("eve", 20), ("ann", 2), ("eve", 21))
    last = desk.audit()
    assert [miss.key for miss in last.findings.misses if miss.complete] == ["ann"]
    due = corrections_due(spark, desk.tables, topology)
    assert CarryingOut(session=spark, settings=desk.settings, due=due).run().corrections > 0
    corrected = desk.spark.read.format("delta").load(desk.tables.corrections("callers")).collect()
    a_batch(("eve", 140))
    last = desk.audit()
    assert (last.findings.differences, last.findings.misses) == ((), ())
    assert followed() > 0
    for minute in (260, 380, 500):
        trim(desk)
        a_batch(("eve", minute))
        last = desk.audit()
        assert (last.findings.differences, last.findings.misses) == ((), ())
    assert followed() == 0

    desk.publish(desk.written("callers"), corrected[-1], origin="backfill")
    a_batch(("eve", 620))
    last = desk.audit()
    assert [(one.verdict, one.key) for one in last.findings.differences] == [("duplicated", "ann")]
    assert [(one.verdict, one.key) for one in desk.audit().findings.differences] == [("duplicated", "ann")]
