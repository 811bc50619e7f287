"""A corrected row is followed until its table may remove it; a correction that comes again later is a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.stage import trim
from tests.spark.audit.visits import visits_of

from recount.audit.carry.snapshots import Snapshots
from recount.audit.cut.scope import CORRECTED_PART
from recount.backfill.carrying_out import CarryingOut
from recount.backfill.corrections_due import corrections_due
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

pytestmark = pytest.mark.timeout(900)


@pytest.mark.thorough
def test_a_corrected_row_is_let_go_once_it_is_released_and_a_copy_of_its_correction_is_found(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    desk = visits_of(spark, kafka, project, tmp_path, clicks="calls")
    topology = desk.topology

    def followed() -> int:
        """So many claims about corrections the last audit has left."""
        frames = Snapshots(session=spark, tables=desk.tables, stream=topology.name).of(last.findings.audit).frames
        return sum(frame.count() for (part, _), frame in frames.items() if part == CORRECTED_PART)

    desk.a_batch(("ann", 0), ("eve", 20), ("ann", 2), ("eve", 21))
    last = desk.audit()
    assert [miss.key for miss in last.findings.misses if miss.complete] == ["ann"]
    due = corrections_due(spark, desk.tables, topology)
    assert CarryingOut(session=spark, settings=desk.settings, due=due).run().corrections > 0
    corrected = desk.spark.read.format("delta").load(desk.tables.corrections("visits")).collect()
    desk.a_batch(("eve", 140))
    last = desk.audit()
    assert (last.findings.differences, last.findings.misses) == ((), ())
    assert followed() > 0
    for minute in (260, 380):
        trim(desk)
        desk.a_batch(("eve", minute))
        last = desk.audit()
        assert (last.findings.differences, last.findings.misses) == ((), ())
    assert followed() == 0

    desk.publish(desk.written("visits"), corrected[-1], origin="backfill")
    desk.a_batch(("eve", 620))
    last = desk.audit()
    assert [(one.verdict, one.key) for one in last.findings.differences] == [("duplicated", "ann")]
    assert [(one.verdict, one.key) for one in desk.audit().findings.differences] == [("duplicated", "ann")]
