"""Streams that read one topic, audited in one Spark application: none answers for another, or accuses it.

They share its dead-letter topic, whatever functions raise.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.audit.conftest import Scene, an_hour_of_orders, scene_of
from tests.spark.audit.stage import output_topic

from recount.audit.cut.auditable import AuditRequest
from recount.audit.findings.finding_register import Interval
from recount.audit.night import Outcome, audited_together
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import STRING
from recount.declare.topology import Topology, stream
from recount.declare.windows import session
from recount.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, STREAM
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.errors import Terminal

TONIGHT = AuditRequest(audit="tonight", interval=Interval(), source="kafka")


def named(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises for every record without a region, and for one with a large amount."""
    if row["amount"] > 50:
        raise ValueError(f"no such order: {object()}")
    return {"region": row["region"].upper()}


def beside(scene: Scene) -> Scene:
    """Another stream that reads the scene's topic, with functions that raise; it is audited in the general way."""
    visits = output_topic(f"visits-{uuid.uuid4().hex[:8]}")
    orders = stream(scene.topology.sources[0].topic).map(named, region=STRING).select_key(region=col("region"))
    seen = orders.windowed_by(session("5 min", grace="60 s")).aggregate(orders=count())
    topology = Topology(name=f"visits-{uuid.uuid4().hex[:8]}", sinks=[seen.emit_final().to(visits, table="visits")])
    admin = scene.connection.admin()
    apply(admin, plan(admin, [visits], "embedded"))
    return replace(scene, topology=topology)


def letter(scene: Scene, offset: int, reason: str) -> None:
    """A letter about a record of partition 0, as if the stream had written it."""
    told = {
        STREAM: scene.connection.group(scene.topology.name),
        REASON: reason,
        SOURCE_TOPIC: scene.orders,
        SOURCE_PARTITION: "0",
        SOURCE_OFFSET: str(offset),
    }
    producer = scene.connection.producer()
    headers = [(name, text.encode()) for name, text in told.items()]
    producer.produce(scene.topology.sources[0].topic.dead_letter_name, value=b"{}", headers=headers)
    assert producer.flush(30) == 0


def must_not_start(offsets: int) -> NoReturn:
    raise AssertionError(f"Spark was started for nothing, {offsets} offsets")


@dataclass(frozen=True, kw_only=True)
class Night:
    """Two streams on a topic of which the first lost a row, audited together with one that never ran."""

    scene: Scene
    other: Scene
    idle: Topology
    lost: DataFrame
    outcomes: Mapping[str, Outcome]
    started: list[int]

    def put_back(self) -> None:
        """The row that was lost."""
        path = self.scene.tables.output("revenue")
        self.lost.write.format("delta").mode("append").save(path)


@pytest.fixture(scope="module")
def night(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path_factory: pytest.TempPathFactory
) -> Night:
    name = uuid.uuid4().hex[:8]
    scene = scene_of(spark, kafka, project, lambda kind: f"shared-{name}-{kind}", tmp_path_factory.mktemp("shared"))
    other, idle = beside(scene), replace(scene.topology, name="idle")
    an_hour_of_orders(scene)
    scene.run()
    other.run(max_offsets=40)
    written = DeltaTable.forPath(spark, scene.tables.output("revenue"))
    lost = written.toDF().limit(1).localCheckpoint()
    [row] = lost.collect()
    written.delete((F.col("region") == row.region) & (F.col("window_start") == row.window_start))
    started: list[int] = []

    def application(offsets: int) -> SparkSession:
        started.append(offsets)
        return spark

    asked = [scene.topology, idle, other.topology]
    outcomes = {one.stream: one for one in audited_together(scene.settings, asked, TONIGHT, application)}
    return Night(scene=scene, other=other, idle=idle, lost=lost, outcomes=outcomes, started=started)


def test_a_stream_that_cannot_be_judged_and_one_that_lost_a_row_leave_the_third_alone(night: Night) -> None:
    assert isinstance(night.outcomes["idle"].refusal, Terminal)
    outcomes = {name: one.document["outcome"] for name, one in night.outcomes.items() if one.document}
    assert outcomes == {night.scene.topology.name: "violation", night.other.topology.name: "match"}
    assert night.started == [122]


def test_audits_that_are_refused_start_no_spark(night: Night) -> None:
    """The stream has never run; neither has another of the same group."""
    asked = [night.idle, replace(night.idle, name="another")]
    found = list(audited_together(night.scene.settings, asked, TONIGHT, must_not_start))
    assert [(one.stream, type(one.refusal)) for one in found] == [(one.name, Terminal) for one in asked]


def test_a_name_that_an_audit_has_is_refused_before_spark_starts(night: Night) -> None:
    [found] = audited_together(night.scene.settings, [night.scene.topology], TONIGHT, must_not_start)
    assert isinstance(found.refusal, Terminal)


def test_bad_and_late_records_and_functions_that_raise_are_no_violation_of_either_stream(night: Night) -> None:
    [lost] = night.outcomes[night.scene.topology.name].document["differences"]
    assert lost["verdict"] == "lost"
    document = night.outcomes[night.other.topology.name].document
    assert document["differences_found"] == 0
    assert document["warnings"][0] == "32 dead letters in 122 records: 26.23%, limit 1.00%"
    rejected = night.scene.session.read.format("delta").load(night.other.tables.rejected(night.other.topology.name))
    assert Counter(row.reason for row in rejected.collect()) == {
        "undecodable": 1,
        "function-raised: AttributeError in map to region": 30,
        "function-raised: ValueError in map to region": 1,
    }


def test_letters_that_are_forged_altered_or_lost_are_found_for_their_stream_and_not_for_the_other(
    night: Night,
) -> None:
    scene, other = night.scene, night.other
    night.put_back()
    rejected = DeltaTable.forPath(scene.session, other.tables.rejected(other.topology.name))
    raised = rejected.toDF().where("reason like '%ValueError%'").first()
    assert raised is not None
    letter(other, 0, "undecodable")
    letter(other, raised.offset, "function-raised: KeyError in map to region")
    lost = rejected.toDF().where("reason like '%AttributeError%'").orderBy("offset").first()
    assert lost is not None
    rejected.delete(f"partition = {lost.partition} and offset = {lost.offset}")
    honest = scene.audit(from_the_beginning=True).findings
    assert (honest.differences, sum(part.dead_lettered for part in honest.accounts)) == ((), 1)
    found = {(one.kind, one.verdict, one.evidence) for one in other.audit().findings.differences}
    assert found == {
        ("dead letters", "extra", (f"{scene.orders}-0@0",)),
        ("dead letters", "altered", (f"{scene.orders}-0@{raised.offset}",)),
        ("dead letters", "lost", (f"{scene.orders}-{lost.partition}@{lost.offset}",)),
    }
