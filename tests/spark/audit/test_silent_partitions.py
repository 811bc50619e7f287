"""A partition that was silent for hours brings records that are on time: the next audit judges all again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic

from recount.audit.certificate.certificate_files import load
from recount.backfill.carrying_out import CarryingOut
from recount.backfill.corrections_due import corrections_due
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topology import Topology, stream
from recount.declare.windows import session, sliding, tumbling
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

pytestmark = pytest.mark.timeout(900)
IDLE_S = 1


def silent_stage(spark: SparkSession, kafka: EmbeddedKafka, project: Project, root: Path) -> Stage:
    readings = stream(source_topic("silent-readings", RecordSchema.of(n=LONG), partitions=2)).select_key(n=col("n"))
    kinds = {"sliding": sliding("1 min", grace="0 s"), "sessions": session("1 min", grace="0 s")}
    topology = Topology(
        name="silent",
        sinks=[
            readings.windowed_by(windows).aggregate(rows=count()).emit_final().to(output_topic(f"silent-{name}"))
            for name, windows in kinds.items()
        ],
        idle_after=f"{IDLE_S} s",
    )
    return Stage(spark=spark, settings=settings_below(root, kafka, project), topology=topology).create_topics()


def said(partition: int, minute: float) -> Said:
    return ("silent-readings", partition, f"device {partition}", minute, {"n": partition})


@pytest.mark.thorough
def test_what_a_silent_partition_brings_on_time_is_no_violation(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    """Partition 1 stood at minute 1 while the other came to minute 600: a record of minute 5 is on time by its own."""
    stage = silent_stage(spark, kafka, project, tmp_path)
    stage.produce([said(0, 1), said(1, 1)])
    stage.run()
    time.sleep(IDLE_S + 0.5)
    stage.produce([said(0, 300), said(0, 600)])
    stage.run()
    assert stage.audit().findings.outcome == "match"
    stage.produce([said(1, 5), said(1, 900), said(0, 900)])
    stage.run()
    second = stage.audit()
    assert not second.findings.differences
    assert load(second.certificate)["covers"]["judged_before"] is None
    stage.produce([said(0, 901), said(1, 901)])
    stage.run()
    third = stage.audit()
    assert third.findings.outcome == "match"
    assert third.findings.seed.run is not None
    assert third.findings.seed.run.audit == second.findings.audit, "from there audits go on"


def test_what_left_a_join_alone_while_the_other_topic_was_silent_is_explained_by_its_partner(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    orders, pays = (
        stream(source_topic(f"silent-{name}", RecordSchema.of(**{name: LONG}), partitions=1))
        for name in ("orders", "pays")
    )
    of_minute = orders.windowed_by(tumbling("1 min", grace="0 s")).aggregate(n=count()).emit_final()
    paid, of_minute_paid = (
        one.left_join(pays, before="0 s", after="1 min", grace="0 s") for one in (orders, of_minute)
    )
    long = paid.select_key(of=col("orders")).windowed_by(tumbling("200 min", grace="0 s")).aggregate(n=count())
    sinks = [
        *(paid.to(output_topic("silent-paid")), of_minute_paid.to(output_topic("silent-paid-minutes"))),
        long.emit_final().to(output_topic("silent-paid-long")),
    ]
    topology = Topology(name="silent-join", sinks=sinks, idle_after=f"{IDLE_S} s")
    stage = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()
    stage.produce([("silent-orders", 0, "a", 1, {"orders": 1}), ("silent-pays", 0, "z", 0, {"pays": 0})])
    stage.run()
    time.sleep(IDLE_S + 0.5)
    stage.produce([("silent-orders", 0, "b", 100, {"orders": 2})])
    stage.run()
    stage.produce([("silent-pays", 0, "a", 1.5, {"pays": 1})])
    stage.run()
    findings = stage.audit().findings
    assert findings.outcome == "match"
    partner = "silent-pays-0@1"
    of_record = ("silent-paid", "silent-orders-0@0", f"{partner} read after silent-orders-0@0")
    missed = {of_record, ("silent-paid-minutes", None, partner)}
    assert {(miss.sink, miss.origin, miss.late[0]) for miss in findings.misses} == missed
    stage.produce([(kind, 0, "z", 500, {}) for kind in ("silent-orders", "silent-pays")])
    stage.run()
    findings = stage.audit().findings
    assert findings.outcome == "match", "the next audit knows the partner still"
    again = {(miss.sink, miss.origin, miss.late[0]) for miss in findings.misses}
    assert again == {*missed, ("silent-paid-long", None, partner)}


def test_what_left_a_join_alone_in_one_night_is_taken_back_once_in_the_night_that_brings_its_partner(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    """Of order 1 no claims are carried, and its partner is on time; that of order 2 is late."""
    orders, pays = (
        stream(source_topic(f"across-{name}", RecordSchema.of(**{name: LONG}), partitions=1))
        for name in ("orders", "pays")
    )
    paid = orders.left_join(pays, before="0 s", after="1 min", grace="0 s")
    unpaid = paid.filter(col("pays").is_null()).select("orders").select_key(of=col("orders"))
    sinks = [paid.to(output_topic("across-paid")), unpaid.to(output_topic("across-unpaid"))]
    topology = Topology(name="across", sinks=sinks, idle_after=f"{IDLE_S} s")
    stage = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()
    stage.produce([("across-orders", 0, key, at, {"orders": n}) for n, (key, at) in enumerate([("a", 1), ("b", 30)])])
    stage.produce([("across-pays", 0, "z", 0, {"pays": 0})])
    stage.run()
    time.sleep(IDLE_S + 0.5)
    nights: dict[str, list[Said]] = {
        "alone": [("across-orders", 0, "z", 62, {"orders": 9})],
        "partners": [("across-pays", 0, key, at, {"pays": 1}) for key, at in (("a", 1.5), ("z", 50), ("b", 30.5))],
        "a second partner": [("across-pays", 0, "b", 30.7, {"pays": 2})],
        "quiet": [(topic, 0, "z", 70, {}) for topic in ("across-orders", "across-pays")],
    }
    first, second = "across-pays-0@1 read after across-orders-0@0", "across-pays-0@3 +1169999 ms"
    alone = {("across-orders-0@0", first), ("across-orders-0@1", second)}
    expected = {
        "partners": {
            *(("across-unpaid", *one) for one in alone),
            *(("across-paid", *one) for one in (*alone, ("across-orders-0@1+across-pays-0@3", second))),
        },
        "a second partner": {
            ("across-paid", "across-orders-0@1+across-pays-0@4", "across-pays-0@4 +1157999 ms"),
        },
    }
    for night, records in nights.items():
        stage.produce(records)
        stage.run()
        findings = stage.audit().findings
        assert (findings.outcome, findings.seed.run is None) == ("match", night == "alone")
        assert {(one.sink, one.origin, one.late[0]) for one in findings.misses} == expected.get(night, set()), night
        due = corrections_due(spark, stage.tables, topology)
        CarryingOut(session=spark, settings=stage.settings, due=due).run()
    whole = stage.audit(from_the_beginning=True).findings
    assert (whole.outcome, whole.misses) == ("match", ())
    assert whole.counts["completeness repaired"] == findings.counts["completeness repaired"] == 6


def test_a_late_record_of_another_night_leaves_the_other_rows_that_share_key_and_window_with_its_result(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    """The backfill corrects the one row of two; an audit from the beginning agrees."""
    visits = stream(source_topic("across-visits", RecordSchema.of(n=LONG), partitions=1))
    counted = visits.windowed_by(tumbling("1 min", grace="0 s")).aggregate(rows=count()).emit_final()
    topology = Topology(name="rekeyed", sinks=[counted.select_key(one=col("rows") * 0).to(output_topic("rekeyed"))])
    stage = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()
    for night in ([("a", 0.1), ("b", 0.2), ("z", 30)], [("a", 0.3), ("z", 31)], [("z", 32)]):
        stage.produce([("across-visits", 0, key, minute, {"n": 1}) for key, minute in night])
        stage.run()
        findings = stage.audit().findings
        assert findings.outcome == "match"
        due = corrections_due(spark, stage.tables, topology)
        CarryingOut(session=spark, settings=stage.settings, due=due).run()
    assert not findings.misses
    whole = stage.audit(from_the_beginning=True).findings
    assert (whole.outcome, whole.misses) == ("match", ())
    assert whole.counts["completeness repaired"] == findings.counts["completeness repaired"] == 1
