"""Several streams audited in one Spark application: none of them answers for another."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.audit.conftest import Scene, an_hour_of_orders
from tests.spark.audit.test_shared_topic import beside

from recount.audit.auditable import AuditRequest
from recount.audit.findings import Interval
from recount.audit.together import audited_together
from recount.core.errors import Terminal

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("tiny")]


TONIGHT = AuditRequest(audit="tonight", interval=Interval(), source="kafka")


def must_not_start(offsets: int) -> NoReturn:
    raise AssertionError(f"Spark was started for nothing, {offsets} offsets")


def test_a_stream_that_cannot_be_judged_and_one_that_lost_a_row_leave_the_third_alone(scene: Scene) -> None:
    other, idle = beside(scene), replace(scene.topology, name="idle")
    an_hour_of_orders(scene)
    scene.run()
    other.run()
    [table] = [node.table for node in scene.topology.written]
    written = DeltaTable.forPath(scene.session, scene.tables.output(table))
    lost = written.toDF().first()
    assert lost is not None
    written.delete((F.col("region") == lost.region) & (F.col("window_start") == lost.window_start))
    started: list[int] = []

    def application(offsets: int) -> SparkSession:
        started.append(offsets)
        return scene.session

    asked = [scene.topology, idle, other.topology]
    found = {one.stream: one for one in audited_together(scene.settings, asked, TONIGHT, application)}
    assert isinstance(found["idle"].refusal, Terminal)
    outcomes = {name: one.document["outcome"] for name, one in found.items() if one.document}
    assert outcomes == {scene.topology.name: "violation", other.topology.name: "match"}
    assert started == [122]


def test_audits_that_are_refused_start_no_spark(scene: Scene) -> None:
    """The stream has never run; neither has another of the same group."""
    asked = [scene.topology, replace(scene.topology, name="another")]
    found = list(audited_together(scene.settings, asked, TONIGHT, must_not_start))
    assert [(one.stream, type(one.refusal)) for one in found] == [(one.name, Terminal) for one in asked]


def test_a_name_that_an_audit_has_is_refused_before_spark_starts(scene: Scene) -> None:
    an_hour_of_orders(scene)
    scene.run()
    scene.audit(audit="tonight")
    [found] = audited_together(scene.settings, [scene.topology], TONIGHT, must_not_start)
    assert isinstance(found.refusal, Terminal)
