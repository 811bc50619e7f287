"""Item 1.4: a changed declaration under a real stream: refused, reset, upgraded; the audit judges each by its own."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.engine.drivers import committed
from tests.spark.audit.conftest import MINUTE_MS, START_MS, Scene, order
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.audit.certificate.certificate_files import load
from recount.audit.cut.auditable import AuditRequest, require_auditable
from recount.audit.cut.in_force import InForce
from recount.audit.findings.finding_register import Interval
from recount.declare.aggregates import Aggregate, count, largest, total
from recount.declare.columns import IS_NULL, RESULT_TIME
from recount.declare.expressions import coalesce, col
from recount.declare.groups import Archive
from recount.declare.operators.nodes import KEY
from recount.declare.output import VERSION_HEADER
from recount.declare.schema import BOOLEAN, LONG, FieldType, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import session, tumbling
from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.kafka.positions import published_offsets
from recount.lifecycle.reset import From, Reset
from recount.lifecycle.upgrade import upgrade
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import Proofs
from recount.tables.decisions import DeclarationLog, OtherDeclaration


def redeclared(scene: Scene, size: str = "5 min", grace: str = "60 s", **more: Aggregate) -> Scene:
    """The same stream in the words of the scene, with other windows."""
    [sink] = scene.topology.sinks
    [source] = scene.topology.sources
    flow = (
        stream(source.topic)
        .select_key(region=coalesce(col("region"), "UNKNOWN"))
        .windowed_by(tumbling(size, grace=grace))
        .aggregate(orders=count(), revenue=total("amount"), **more)
        .emit_final()
    )
    return replace(scene, topology=Topology(name=scene.topology.name, sinks=[flow.to(sink.topic, table="revenue")]))


def produce(scene: Scene, *minutes: float) -> None:
    """A record of each partition at every minute."""
    scene.produce([(p, round(minute * MINUTE_MS), order("EU", 2)) for minute in minutes for p in (0, 1)])


def published(scene: Scene) -> list[tuple[int, int, int]]:
    """Version, start of the window in minutes, and orders of every output record, in the order of the log."""
    found = []
    for record in sorted(committed(scene.connection, scene.revenue), key=lambda one: (one.partition(), one.offset())):
        headers = dict(record.headers() or ())
        value = json.loads(record.value() or b"")
        minute = (value["window_start"] // MINUTE_MS) % 1_000
        found.append((int(headers.get(VERSION_HEADER, b"1")), minute, value["orders"]))
    return found


def reset(scene: Scene, begin_at: From) -> None:
    Reset(scene.settings, scene.topology, begin_at).run()


@pytest.mark.thorough
def test_a_window_of_another_size_is_refused_and_a_reset_from_the_beginning_computes_all_anew(scene: Scene) -> None:
    produce(scene, 0, 1, 7, 12)
    scene.produce([(0, 0, b"not json")])
    scene.run()
    assert scene.audit().findings.outcome == "match"
    before = published(scene)
    assert before == [(1, 0, 4), (1, 5, 2)]

    changed = redeclared(scene, size="10 min")
    for attempt in (changed.run, changed.audit):
        with pytest.raises(OtherDeclaration, match="window size of the aggregation by region: 5 min -> 10 min"):
            attempt()
    scene.run()
    assert published(scene) == before

    reset(changed, "beginning")
    with pytest.raises(OtherDeclaration):
        scene.run()
    changed.run()
    assert published(changed) == [*before, (2, 0, 6)]
    produce(changed, 23)
    changed.run()
    findings = changed.audit()
    assert findings.findings.outcome == "match", findings.findings.differences
    said = json.loads(findings.certificate.read_text())["declaration"]
    assert (said["stream_version"], said["fingerprint"]) == (2, findings.findings.cut.fingerprint)
    former = Path(scene.settings.data) / "former" / scene.topology.name / "1"
    kept = [proof.proof for proof in Proofs(state=str(former / f"streams/{scene.topology.name}/state")).newest_first()]
    assert {proof.fingerprint for proof in kept} != {findings.findings.cut.fingerprint}
    assert (former / "outputs/revenue/_delta_log").exists()


@pytest.mark.thorough
def test_a_reset_from_now_reads_and_judges_what_comes_after_it(scene: Scene) -> None:
    produce(scene, 0, 7)
    scene.run()
    changed = redeclared(scene, size="10 min")
    reset(changed, "now")
    produce(changed, 21, 25, 32)
    changed.run()
    assert published(changed) == [(1, 0, 2), (2, 20, 4)]
    done = changed.audit()
    assert done.findings.outcome == "match", done.findings.differences
    begins = json.loads(done.certificate.read_text())["declaration"]["begins"]
    assert begins == {changed.orders: {"0": 2, "1": 2}}


def test_a_reset_that_was_interrupted_is_finished_by_its_repetition(scene: Scene) -> None:
    produce(scene, 0, 7)
    scene.run()
    changed = redeclared(scene, size="10 min")
    state = Path(scene.tables.state(scene.topology.name)).parent
    blocked = Path(scene.settings.data) / "former" / scene.topology.name / "1" / "outputs" / "revenue"
    blocked.mkdir(parents=True)
    with pytest.raises(Terminal, match="also where it is kept"):
        reset(changed, "now")
    for start in (scene.run, changed.run):
        with pytest.raises(OtherDeclaration, match="was begun and not finished"):
            start()
    blocked.rmdir()
    reset(changed, "beginning")
    assert not state.exists()
    last = DeclarationLog(scene.settings.data, scene.topology.name).last()
    assert last is not None
    assert (last.kind, last.version, last.begins) == ("reset", 2, {changed.orders: {0: 2, 1: 2}})
    groups = published_offsets(scene.connection, f"recount.{scene.topology.name}", [(changed.orders, 0)])
    assert groups == {}


@pytest.mark.thorough
def test_an_upgrade_to_a_longer_grace_goes_on_with_the_state_and_each_stretch_is_judged_by_its_own(
    scene: Scene,
) -> None:
    produce(scene, 0, 1, 7, 12)
    scene.run()
    longer = redeclared(scene, grace="10 min")
    with pytest.raises(Terminal, match="not audited up to its last batch"):
        upgrade(scene.settings, longer.topology)
    first = scene.audit().findings
    assert first.outcome == "match" and first.counts["kafka match"] > 0
    with pytest.raises(Terminal, match="have not kept its values"):
        upgrade(scene.settings, redeclared(scene, most=largest("amount")).topology)
    [sink], side = scene.topology.sinks, Topic(name=f"side-{scene.revenue}", key="region")
    further = replace(scene.topology, sinks=[sink, stream(scene.topology.sources[0].topic).to(side, table="side")])
    with pytest.raises(Terminal, match="audits of a single aggregation go on from the batch of a change"):
        upgrade(scene.settings, further)
    enacted = upgrade(scene.settings, longer.topology)
    assert upgrade(scene.settings, longer.topology) == enacted
    with pytest.raises(OtherDeclaration, match="grace of the aggregation by region: 10 min -> 1 min"):
        scene.run()
    require_quiet_nights(longer)

    longer.produce([(0, 3 * MINUTE_MS, order("EU", 2))])  # 9 min late: only the new grace takes it
    longer.run()
    assert published(longer) == [(1, 0, 4), (1, 5, 2), (1, 0, 5)]
    findings = longer.audit().findings
    assert findings.outcome == "match", findings.differences
    produce(longer, 40)
    longer.run()
    for from_the_beginning in (False, True):
        done = longer.audit(from_the_beginning=from_the_beginning)
        assert done.findings.outcome == "match", done.findings.differences
        assert json.loads(done.certificate.read_text())["declaration"]["judged_after_batch"] == [0, 0]
    assert published(longer)[3:] == [(1, 10, 2)]
    produce(longer, 600)
    longer.run()
    assert longer.audit().findings.outcome == "match"
    require_windows_of_hours_ago(redeclared(scene, grace="20 h"))


def require_windows_of_hours_ago(longest: Scene) -> None:
    """What audits let go of long ago can be on time again after an upgrade, also one night after the other."""
    upgrade(longest.settings, longest.topology)
    for number, minute in enumerate((4, 4.5)):
        longest.produce([(0, round(minute * MINUTE_MS), order("EU", 2))])
        produce(longest, 610 + number)
        longest.run()
        assert published(longest)[-1] == (1, 0, 6 + number)
        for from_the_beginning in (False, True):
            done = longest.audit(from_the_beginning=from_the_beginning)
            assert done.findings.outcome == "match", done.findings.differences
            assert done.findings.misses == ()


def require_quiet_nights(longer: Scene) -> None:
    """Nights after an upgrade in which no batch came stand at the audit before it, though its batch is of before."""
    for from_the_beginning in (False, True):
        done = longer.audit(from_the_beginning=from_the_beginning)
        assert (load(done.certificate)["batches"], done.findings.outcome) == (0, "match")
    request = AuditRequest(audit="another", interval=Interval(), source="auto")
    assert require_auditable(longer.settings, longer.topology, request) == 0


def test_an_archive_is_reset_like_every_stream_and_its_former_table_is_kept(scene: Scene) -> None:
    produce(scene, 0)
    scene.archive()
    archive = Archive(topic=scene.topology.sources[0].topic)
    [move] = Reset(scene.settings, archive, "beginning").run().moved
    assert move.target == f"{scene.settings.data}/former/{archive.name}/1/archive/{archive.topic.name}"
    produce(scene, 1)
    scene.archive()
    work = ArchiveWork(scene.session, archive, scene.settings.data)
    assert [scene.session.read.format("delta").load(path).count() for path in (work.path, move.target)] == [4, 2]


FIRST = ("totals", "visits", "copies")


@dataclass(frozen=True, kw_only=True)
class Kiosk(Stage):
    """Sales, windows and sessions of them, to which are added: sinks of all three, and a field."""

    def with_sinks(self, *names: str) -> Kiosk:
        """The same operators with the sinks ``names``."""
        found = [node for node in self.topology.sinks if node.table in names]
        return replace(self, topology=replace(self.topology, sinks=found))

    def sell(self, *sales: tuple[str, float, int], cheap: Any = None) -> None:
        """Who bought when, in minutes, and how much; each customer has a partition."""
        values = [(who, minute, {"n": n, "cheap": cheap}) for who, minute, n in sales]
        self.produce([("sales", "ab".index(who[0]), who, minute, value) for who, minute, value in values])

    def told(self, table: str) -> list[tuple[str, int, int]]:
        """Customer, start of the window (or time of the sale) in minutes, and number: what was not withdrawn."""
        rows = [row.asDict() for row in self.rows(self.written(table)) if not row[IS_NULL]]
        return [
            (row[KEY], (row.get("window_start", row[RESULT_TIME]) - START_MS) // MINUTE_MS, row["n"]) for row in rows
        ]


def selling(name: str, **fields: FieldType) -> Topology:
    """With all sinks; ``fields`` are those of a sale beside ``n``."""
    sales = stream(source_topic(f"sales-{name}", RecordSchema.of(n=LONG, **fields), partitions=2))
    paid = sales.filter(col("n") > 0)
    totals = paid.windowed_by(tumbling("5 min", grace="1 min")).aggregate(n=total("n")).emit_final()
    visits = paid.windowed_by(session("3 min", grace="1 min")).aggregate(n=count()).emit_each_batch()
    flows = {
        "totals": totals,
        "visits": visits,
        "copies": paid,
        "large": sales.filter((col("n") > 5) | (col("n") < 0)).with_fields(twice=col("n") + col("n")),
        "known": totals.filter(col("n") > 1).select("window_start", "window_end", "n"),
        "seen": visits,
    }
    sinks = [flow.to(output_topic(f"{table}-{name}"), table=table) for table, flow in flows.items()]
    return Topology(name=f"kiosk-{name}", sinks=sinks)


def test_what_is_added_begins_after_the_last_batch_and_is_judged_from_there(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    """Two upgrades, the first of which goes on with open windows and sessions; then a row is lost, and all is reset."""
    name, settings = uuid.uuid4().hex[:8], settings_below(tmp_path, kafka, project)
    before = Kiosk(spark=spark, settings=settings, topology=selling(name))
    all_sinks = replace(before, topology=selling(name, cheap=BOOLEAN))
    all_sinks.create_topics()
    first, second = before.with_sinks(*FIRST), all_sinks.with_sinks(*FIRST, "large", "known")
    refund = ("bob", 3, -1)
    first.sell(("ada", 0, 9), ("bob", 1, 7), ("ada", 2, 1), refund, ("ada", 7, 2), ("bob", 7, 2), cheap="no boolean")
    first.run()
    with pytest.raises(OtherDeclaration, match="schema cheap of the source"):
        second.run()
    enacted = upgrade(second.settings, second.topology)
    assert enacted.added == {second.written(table).topic.name: (0, 0) for table in ("large", "known")}
    assert enacted.added_fields == {second.topic("sales"): {"cheap": (0, 0)}}
    second.sell(("ada", 8, 6), ("ada", 9, -2), ("ada", 12, 1), cheap=True)
    second.sell(("bob", 12, 1))
    second.sell(("bob", 12, 100), cheap="no boolean")
    second.run()
    assert second.told("large") == [("ada", 8, 6), ("ada", 9, -2)]
    assert sorted(second.told("known")) == [("ada", 5, 8), ("bob", 5, 2)]
    cheap = [row["cheap"] for row in second.rows(second.written("copies"))]
    assert Counter(cheap) == {None: 6, True: 2}

    upgrade(all_sinks.settings, all_sinks.topology)
    all_sinks.sell(("ada", 13, 8), ("bob", 20, 9))
    all_sinks.run()
    assert sorted(all_sinks.told("seen")) == [("ada", 12, 2), ("bob", 20, 1)]
    done = all_sinks.audit()
    assert done.findings.outcome == "match", done.findings.differences
    declared, sales = load(done.certificate)["declaration"], all_sinks.topic("sales")
    begun = {one["sink"]: one for one in declared["added_sinks"]}
    assert begun[all_sinks.written("known").topic.name]["from_offsets"] == {sales: {"0": 3, "1": 3}}
    assert begun[all_sinks.written("seen").topic.name]["from_offsets"] == {sales: {"0": 6, "1": 5}}
    [field] = declared["added_fields"]
    assert (field["field"], field["after_batch"], field["from_offsets"]) == ("cheap", [0, 0], {"0": 3, "1": 3})
    page = done.certificate.with_suffix(".html").read_text()
    assert f"sink {all_sinks.written('seen').topic.name} was added, and is judged, after batch 0/1" in page
    assert "field cheap was added, and is read, after batch 0/0" in page

    lost = next(row for row in all_sinks.rows(all_sinks.written("known")) if row[KEY] == "bob")
    all_sinks.change(all_sinks.written("known"), lost, None)
    found = all_sinks.audit().findings.differences
    assert [(one.place, one.verdict, one.key) for one in found] == [("table outputs/known", "lost", "bob")]

    Reset(all_sinks.settings, all_sinks.topology, "beginning").run()
    all_sinks.run()
    assert all_sinks.told("large") == [("ada", 8, 6), ("ada", 9, -2), ("ada", 13, 8), ("bob", 20, 9)]
    in_force = InForce.of(all_sinks.topology, all_sinks.settings.data)
    assert (in_force.added, in_force.added_fields) == ({}, {})


@pytest.mark.thorough
def test_nothing_is_added_to_a_stream_whose_log_has_lost_its_beginning(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    name, settings = uuid.uuid4().hex[:8], settings_below(tmp_path, kafka, project)
    all_sinks = Kiosk(spark=spark, settings=settings, topology=selling(name)).create_topics()
    first, second = all_sinks.with_sinks(*FIRST), all_sinks.with_sinks(*FIRST, "large")
    first.sell(("ada", 0, 9), ("ada", 2, 1))
    first.run()
    first.audit()
    first.expire(first.topic("sales"), 1)
    with pytest.raises(Terminal, match="cannot go on under another declaration"):
        upgrade(second.settings, second.topology)
    first.run()
    assert first.audit().findings.outcome == "match"
