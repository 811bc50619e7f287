"""Night after night: an audit begins where the one before ended, and still judges what is older when it is touched."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import TopicPartition
from delta.tables import DeltaTable
from pyspark.sql import functions as F
from tests.spark.audit.conftest import MINUTE_MS, Scene, order

from recount.audit.certificate.certificate_files import load, verify_file
from recount.audit.cut.auditable import AuditRequest, require_auditable
from recount.audit.findings.acceptances import accept
from recount.audit.findings.finding_register import Interval
from recount.audit.night import CertifiedAudit
from recount.declare.columns import REVISION
from recount.profile.tamper import mutate


def an_evening(scene: Scene, first_minute: int) -> None:
    minutes = range(first_minute, first_minute + 20)
    scene.produce([(minute % 2, minute * MINUTE_MS, order("EU", 2)) for minute in minutes])


def test_the_second_night_misses_nothing_of_the_first(scene: Scene) -> None:
    """A row is deleted after its audit, and one written under an old batch, of windows that nothing else touches."""
    an_evening(scene, 0)
    scene.run()
    first = scene.audit().findings
    assert (first.outcome, first.seed.run) == ("match", None)
    assert first.counts == {"kafka match": 3, "delta match": 3, "completeness kept": 3}

    path = scene.tables.output(scene.topology.sinks[0].table)
    rows = scene.session.read.format("delta").load(path)
    _, deleted, forged = sorted(row.window_start for row in rows.collect())
    DeltaTable.forPath(scene.session, path).delete(f"window_start = {deleted}")
    row = rows.where(F.col("window_start") == forged).withColumn(REVISION, F.col(REVISION) + 1)
    row.withColumn("orders", F.lit(77).cast(rows.schema["orders"].dataType)).write.format("delta").mode("append").save(
        path
    )
    an_evening(scene, 20)
    scene.produce([(0, 3 * MINUTE_MS, order("EU", 5))])
    scene.run()
    doubled = mutate(scene.session, scene.settings, scene.topology, "duplicate")
    second = scene.audit()

    found = second.findings
    assert found.seed.run is None, "rows that were judged are others now: all is judged again"
    assert {(one.verdict, one.window_start) for one in found.differences} == {
        ("duplicated", doubled.window_start),
        ("lost", deleted),
        ("altered", forged),
    }
    [miss] = found.misses
    assert (miss.window_start, miss.late_records, miss.explained) == (doubled.window_start, 1, True)
    assert found.counts == {
        "kafka match": 6,
        "kafka duplicated": 1,
        "delta match": 5,
        "delta lost": 1,
        "delta altered": 1,
        "completeness kept": 6,
        "completeness missed": 1,
    }


def test_records_and_copies_that_come_many_hours_later_are_judged_with_what_was_judged_then(scene: Scene) -> None:
    an_evening(scene, 0)
    scene.run()
    first = scene.audit().findings
    start = min(row.window_start for row in scene.session.read.format("delta").load(_outputs(scene)).collect())
    for minute in (600, 700):
        scene.produce([(partition, minute * MINUTE_MS, order("EU", 2)) for partition in (0, 1)])
        scene.run()
        assert scene.audit().findings.outcome == "match"

    doubled = mutate(scene.session, scene.settings, scene.topology, "duplicate")
    assert doubled.window_start == start
    for number in (1, 2):
        late = [(0, (7 + number) * MINUTE_MS, order("EU", 2)), (0, 3 * MINUTE_MS, order("US", 2))]
        scene.produce([*late, (0, (710 + number) * MINUTE_MS, order("EU", 2))])
        scene.run()
        found = scene.audit().findings
        assert found.seed.run is not None, "it goes on from the night before"
        assert [(one.place, one.verdict, one.window_start) for one in found.differences] == [
            (f"topic {scene.revenue}", "duplicated", start)
        ]
        told = [(miss.key, miss.window_start - start, miss.late_records, miss.explained) for miss in found.misses]
        assert told == [("US", 0, number, True), ("EU", 5 * MINUTE_MS, number, True)]
        orders = [json.loads(miss.complete or "")["row"]["orders"] for miss in found.misses]
        assert orders == [number, 5 + number]
        assert len(found.misses[1].late) == number
    whole = scene.audit(from_the_beginning=True).findings
    assert (whole.misses, whole.differences[0].verdict) == (found.misses, "duplicated")
    assert first.outcome == "match"


def _outputs(scene: Scene) -> str:
    return scene.tables.output(scene.topology.sinks[0].table)


def test_a_stream_that_stands_still_is_audited_when_the_log_of_its_last_night_has_expired(scene: Scene) -> None:
    """It was judged before: what others have written since is found, and the next night goes on."""
    an_evening(scene, 0)
    scene.run()
    first = scene.audit().findings
    ends = [TopicPartition(part.topic, part.partition, part.end) for part in first.accounts]
    for deleted in scene.connection.admin().delete_records(ends).values():
        deleted.result(15)
    request = AuditRequest(audit="second", interval=Interval(), source="auto")
    assert require_auditable(scene.settings, scene.topology, request) == 0
    doubled = mutate(scene.session, scene.settings, scene.topology, "duplicate")
    second = scene.audit(audit="second")
    assert load(second.certificate)["batches"] == 0
    found = second.findings
    assert found.seed.run is not None
    assert found.seed.run.audit == first.audit
    assert [(one.verdict, one.window_start) for one in found.differences] == [("duplicated", doubled.window_start)]

    an_evening(scene, 20)
    scene.run()
    third = scene.audit().findings
    assert third.seed.run is not None
    assert third.seed.run.audit == found.audit
    assert [one.verdict for one in third.differences] == ["duplicated"]


def test_a_row_deleted_once_is_a_violation_every_night_until_it_is_put_back_or_accepted(scene: Scene) -> None:
    """Item 1.1, as it was seen: a row deleted, then 30 more records, and the next audit said match."""
    an_evening(scene, 0)
    scene.run()
    path = scene.tables.output(scene.topology.sinks[0].table)
    whole = scene.session.read.format("delta").load(path).toPandas()
    mutate(scene.session, scene.settings, scene.topology, "loss")
    assert [one.verdict for one in scene.audit().findings.differences] == ["lost"]

    scene.produce([(minute % 2, minute * MINUTE_MS, order("EU", 2)) for minute in range(20, 50)])
    scene.run()
    second = scene.audit()
    document = load(second.certificate)
    assert second.findings.seed.run is not None
    assert (second.findings.outcome, document["outcome"], document["findings"]["open_found"]) == (
        "violation",
        "violation",
        1,
    )
    [lost] = document["findings"]["open"]
    assert (lost["first_audit"], lost["last_audit"]) == (second.findings.seed.run.audit, second.findings.audit)
    assert document["covers"]["judged_before"]["sha256"] == load(_beside(second, lost["first_certificate"]))["sha256"]

    left = scene.session.read.format("delta").load(path)
    removed = scene.session.createDataFrame(whole, left.schema).exceptAll(left)
    removed.write.format("delta").mode("append").save(path)
    third = scene.audit()
    assert third.findings.outcome == "match"
    assert [one["finding"] for one in load(third.certificate)["findings"]["repaired"]] == [lost["finding"]]

    DeltaTable.forPath(scene.session, path).delete(f"window_start = {lost['window_start']}")
    again = scene.audit(from_the_beginning=True)
    assert again.findings.outcome == "violation"
    accept(scene.settings, scene.topology.name, lost["finding"], by="Ada", reason="deleted on request")
    fourth = scene.audit()
    document = load(fourth.certificate)
    assert (fourth.findings.outcome, document["verdicts"]["delta"]["lost"]) == ("match", 1)
    [accepted] = document["findings"]["accepted"]
    assert (accepted["finding"], accepted["accepted_by"], accepted["reason"]) == (
        lost["finding"],
        "Ada",
        "deleted on request",
    )
    assert "chain is complete" in verify_file(fourth.certificate)[-1]


def _beside(done: CertifiedAudit, name: str) -> Path:
    return done.certificate.with_name(name)
