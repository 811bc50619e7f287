"""What is open, removed or released at the end of a night is judged by what is known of it in later nights."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.audit.conftest import MINUTE_MS, START_MS, Scene, an_hour_of_orders, order
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic, trim
from tests.spark.audit.visits import visits_of

from recount.audit.carry.snapshots import Snapshots
from recount.audit.certificate.certificate_files import EXIT_FAILED
from recount.audit.cut.scope import CORRECTED_PART
from recount.audit.expectations.validation import validate
from recount.audit.findings.finding_register import Findings
from recount.backfill.carrying_out import CarryingOut
from recount.backfill.corrections_due import corrections_due
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session, tumbling
from recount.kafka.status import status_of
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.recompute.frames.duck_database import Database

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


def rows(path: str) -> int:
    return DeltaTable(path).to_pyarrow_table().num_rows


def test_windows_that_were_removed_are_judged_no_more_and_a_lost_one_is_found(scene: Scene) -> None:
    scene = replace(scene, topology=replace(scene.topology, retention="1 ms"))
    an_hour_of_orders(scene)
    scene.run(max_offsets=40)
    first = scene.audit().findings
    assert first.differences == ()
    assert first.released is not None
    scene.audit()
    outputs = scene.tables.output("revenue")
    before = rows(outputs)
    trim(scene)
    assert rows(outputs) < before

    scene.produce([(partition, minute * MINUTE_MS, order("EU", 2.0)) for minute in (70, 80) for partition in (0, 1)])
    scene.run()
    night = scene.audit().findings
    assert night.differences == ()
    assert night.seed.run is not None
    assert expectations(scene, night) == (0, [])

    DeltaTable(outputs).delete(f"window_start = {START_MS + 70 * MINUTE_MS} AND region = 'EU'")
    [lost] = scene.audit(from_the_beginning=True).findings.differences
    assert (lost.verdict, lost.key, lost.place) == ("lost", "EU", "table outputs/revenue")


def expectations(desk: Stage | Scene, findings: Findings) -> tuple[int, list[str]]:
    """With what they end, and in what they disagree with the judge."""
    session = desk.session if isinstance(desk, Scene) else desk.spark
    outcome = validate(session, desk.settings, desk.topology, findings.audit)
    return outcome.exit_code, outcome.disagreements


CLICKS = [("clicks", 0, "ann", 0, {"page": "a"}), ("clicks", 0, "bob", 1, {"page": "a"}), ("clicks", 0, "eve", 1, b"{")]
LATE = [("clicks", 0, "ann", 30, {"page": "a"}), ("clicks", 0, "ann", 2, {"page": "a"})]
SECOND = [("clicks", 0, "ann", 60, {"page": "a"}), ("clicks", 0, "bob", 61, {"page": "a"})]


@pytest.fixture
def desk(spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path) -> Stage:
    name = uuid.uuid4().hex[:8]
    clicks = stream(source_topic(f"clicks-{name}", RecordSchema.of(page=STRING)))
    visits = clicks.windowed_by(session("5 min", grace="1 min")).aggregate(clicks=count()).emit_final()
    topology = Topology(
        name=f"desk-{name}",
        retention="1 ms",
        sinks=[
            clicks.filter(col("page") == "a").to(output_topic(f"seen-{name}"), table="seen"),
            visits.to(output_topic(f"visits-{name}"), table="visits"),
            clicks.aggregate(clicks=count()).to(output_topic(f"totals-{name}"), table="totals"),
        ],
    )
    return Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()


@pytest.mark.thorough
def test_rows_of_any_topology_that_were_removed_have_expired_and_lost_ones_are_found(desk: Stage) -> None:
    batches: list[list[Said]] = [[*CLICKS, *LATE], SECOND, [("clicks", 0, "ann", 90, {"page": "a"})]]
    for batch in batches:
        desk.produce(batch)
        desk.run()
    honest = desk.audit().findings
    assert honest.differences == ()
    assert honest.counts["completeness missed"] == 2
    desk.audit()
    trim(desk)
    named = {"late": desk.tables.late(desk.topology.name), "rejected": desk.tables.rejected(desk.topology.name)}
    named |= {table: desk.tables.output(table) for table in ("seen", "visits", "totals")}
    assert {name: rows(path) for name, path in named.items()} == {
        "late": 0,
        "rejected": 0,
        "seen": 2,
        "visits": 1,
        "totals": 2,
    }

    desk.produce([("clicks", 0, "ann", 120, {"page": "a"})])
    desk.run()
    night = desk.audit().findings
    assert night.differences == ()
    assert night.seed.run is not None, "rows that were removed are none that somebody changed"
    assert expectations(desk, night) == (0, [])
    whole = desk.audit(from_the_beginning=True).findings
    assert whole.differences == ()
    assert whole.counts["delta expired"] == 9
    assert "completeness missed" not in whole.counts
    assert expectations(desk, whole) == (0, [])

    DeltaTable(named["seen"]).delete(f"recount_timestamp_ms = {START_MS + 90 * MINUTE_MS}")
    DeltaTable(named["visits"]).delete(f"window_start = {START_MS + 90 * MINUTE_MS}")
    found = desk.audit().findings
    assert {(one.place, one.verdict, one.key) for one in found.differences} == {
        ("table outputs/seen", "lost", "ann"),
        ("table outputs/visits", "lost", "ann"),
    }
    assert found.released == whole.released, "an audit that finds something releases nothing more"
    assert expectations(desk, found) == (EXIT_FAILED, [])


@pytest.mark.thorough
def test_what_late_records_explained_they_explain_when_the_stream_has_removed_them(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    """A session goes on across the time before which rows are released, and a total of all time is there for ever."""
    clicks = stream(source_topic("steps", RecordSchema.of(page=STRING)))
    visits = clicks.windowed_by(session("5 min", grace="1 min")).aggregate(clicks=count()).emit_final()
    totals = visits.aggregate(clicks=total("clicks"))
    topology = Topology(
        name="walk",
        retention="1 ms",
        sinks=[visits.to(output_topic("walks"), table="walks"), totals.to(output_topic("miles"), table="miles")],
    )
    walk = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()

    def a_batch(*clicks: tuple[str, float]) -> None:
        walk.produce([("steps", 0, who, minute, {"page": "a"}) for who, minute in clicks])
        walk.run()

    a_batch(("ann", 20), ("bob", 33), ("ann", 26), ("ann", 30), ("eve", 34))
    a_batch(("ann", 34), ("ann", 38), ("eve", 60))
    sessions, totals_of = {26 * MINUTE_MS, 30 * MINUTE_MS}, {None}
    for minute, missed in ((90, sessions | totals_of), (120, sessions | totals_of), (150, totals_of)):
        night = walk.audit().findings
        assert night.differences == ()
        assert {miss.window_start and miss.window_start - START_MS for miss in night.misses} == missed
        trim(walk)
        a_batch(("eve", minute))
    assert rows(walk.tables.late(topology.name)) == 0
    whole = walk.audit(from_the_beginning=True).findings
    assert whole.differences == ()
    assert [(miss.key, miss.window_start) for miss in whole.misses] == [("ann", None)]


@pytest.mark.thorough
def test_a_corrected_row_is_let_go_once_it_is_released_and_a_copy_of_its_correction_is_found(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    desk = visits_of(spark, kafka, project, tmp_path, clicks="calls")
    topology = desk.topology

    def followed() -> int:
        """So many claims about corrections the last audit has left."""
        found = Snapshots(tables=desk.tables, stream=topology.name).of(last.findings.audit)
        database = Database()
        try:
            return sum(frame.number() for frame in found.part(CORRECTED_PART, database).values())
        finally:
            database.close()

    desk.a_batch(("ann", 0), ("eve", 20), ("ann", 2), ("eve", 21))
    last = desk.audit()
    assert [miss.key for miss in last.findings.misses if miss.complete] == ["ann"]
    due = corrections_due(desk.tables, topology)
    assert CarryingOut(settings=desk.settings, due=due).run().corrections > 0
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
