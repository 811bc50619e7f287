"""What late records and silent partitions explain, also when it shows in a later night."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.conftest import MINUTE_MS, START_MS, framed
from tests.spark.audit.stage import Said, Stage, output_topic, settings_below, source_topic

from recount.audit.certificate.certificate_files import load
from recount.audit.compare.differences import SEEN_TEXT, SINK
from recount.audit.explain.completeness import COMPLETENESS, MISSED
from recount.audit.explain.misses import grace_misses
from recount.backfill.carrying_out import CarryingOut
from recount.backfill.corrections_due import corrections_due
from recount.certificate.finding import GraceMiss
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import SessionWindows, SlidingWindows, TimeWindows, session, sliding, tumbling
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import no_rows
from recount.recompute.operators.log_tables import UNREAD_SCHEMA

VIEWS = Topic(name="views", key="user", value=RecordSchema.of(user=STRING))
LATE_MS = 100_000
_JUDGED = (
    f"{SINK} string, key string, window_start long, window_end long, origin string, {COMPLETENESS} string,"
    f" {SEEN_TEXT} string, complete_text string"
)
_LATE = (
    "topic string, partition int, offset long, key string, timestamp_ms long, window_start long, window_end long,"
    " margin_ms long"
)


@pytest.mark.parametrize(
    ("windows", "late_window", "explained", "unexplained"),
    [
        (sliding("10 s", grace="0 s"), (90_000, 100_000), (100_001, 110_001), (100_002, 110_002)),
        (sliding("10 s", grace="0 s"), (90_000, 100_000), (80_000, 90_000), (79_998, 89_998)),
        (session("5 s", grace="0 s"), (100_000, 100_000), (105_000, 107_000), (105_001, 107_000)),
        (tumbling("10 s", grace="0 s"), (100_000, 110_000), (100_000, 110_000), (120_000, 130_000)),
    ],
)
def test_a_late_record_explains_what_it_would_have_changed(
    database: Database,
    windows: TimeWindows | SlidingWindows | SessionWindows,
    late_window: tuple[int, int],
    explained: tuple[int, int],
    unexplained: tuple[int, int],
) -> None:
    counted = stream(VIEWS).windowed_by(windows).aggregate(n=count()).emit_final().to(Topic(name="counts", key="user"))
    judged = [("counts", "ann", *window, None, MISSED, None, "") for window in (explained, unexplained)]
    late = [("views", 0, 7, "ann", LATE_MS, *late_window, 1)]
    found = grace_misses(
        framed(database, judged, _JUDGED),
        framed(database, late, _LATE),
        no_rows(database, UNREAD_SCHEMA),
        Topology(name="counting", sinks=[counted]),
    )
    assert {(one.window_start, one.window_end): one.explained for one in found} == {explained: True, unexplained: False}


def test_a_miss_names_what_an_earlier_audit_named_and_not_all_that_can_have_changed_its_row(
    database: Database,
) -> None:
    """The log of the earlier night is not read again: which of its records made the row, that audit has said."""
    of_views = stream(VIEWS).deduplicate("user", horizon="1 s")
    counted = of_views.windowed_by(tumbling("10 s", grace="0 s")).aggregate(n=count()).emit_final()
    topology = Topology(name="counting", sinks=[counted.to(Topic(name="counts", key="user"))])
    row = ("counts", "ann", 100_000, 110_000, None)
    late = [("views", 0, offset, f"v{offset}", LATE_MS, None, None, 1) for offset in (7, 10, 9)]
    judged, ledger = framed(database, [(*row, MISSED, "a", "b")], _JUDGED), framed(database, late, _LATE)
    nothing = no_rows(database, UNREAD_SCHEMA)
    [every] = grace_misses(judged, ledger, nothing, topology)
    assert (every.late_records, every.late) == (3, ("views-0@7 +1 ms", "views-0@9 +1 ms", "views-0@10 +1 ms"))
    named = replace(every, late_records=1, late=("views-0@9 +1 ms", "views-0@9 +3 ms"))
    others = replace(every, key="bob")
    assert grace_misses(judged, ledger, nothing, topology, before=[others, named]) == [named]


DAY = 1_440
"""Minutes."""
MIDNIGHT = DAY - START_MS // MINUTE_MS % DAY
"""Minutes after START_MS."""


def test_each_miss_names_its_own_late_records_though_the_sinks_have_other_keys_than_the_operators_that_judged_them(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    """Totals of a day below a deduplication, and of all time below windows of an hour."""
    stage = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=_takings()).create_topics()
    stage.produce([_sale(store, minute) for store, minute in (("A1", 0), ("B1", 1), ("C2", 2), ("A1", 3))])
    stage.produce([_sale("C2", DAY + 5), _sale("C2", 3 * DAY + 2)])
    stage.produce([_sale("A1", 20), _sale("B1", 30), _sale("B1", 31), _sale("C2", DAY + 40)])
    stage.run()
    expected = {
        ("days", "A1", 0): ["sales-0@6"],
        ("days", "B1", 0): ["sales-0@7", "sales-0@8"],
        ("days", "C2", 1): ["sales-0@9"],
        ("stores", "a1", None): ["sales-0@6"],
        ("stores", "b1", None): ["sales-0@7", "sales-0@8"],
        ("stores", "c2", None): ["sales-0@9"],
    }
    assert _named(stage.audit().findings.misses) == expected


def _takings() -> Topology:
    sales = stream(source_topic("sales", RecordSchema.of(sale=STRING, store=STRING, amount=LONG)))
    once_each = sales.deduplicate("sale", horizon="10 min").select_key(store=col("store"))
    days = once_each.windowed_by(tumbling("1 d", grace="10 min")).aggregate(sales=count(), amount=total("amount"))
    hours = sales.select_key(store=col("store")).windowed_by(tumbling("1 h", grace="1 min"))
    of_stores = hours.aggregate(amount=total("amount")).emit_final().select_key(name=col("store").lower())
    stores = of_stores.aggregate(amount=total("amount"))
    return Topology(
        name="takings", sinks=[days.emit_final().to(output_topic("days")), stores.to(output_topic("stores"))]
    )


def _sale(store: str, minute: float) -> tuple[str, int, str, float, dict[str, object]]:
    """``minute`` is that of the first whole day."""
    return ("sales", 0, store, MIDNIGHT + minute, {"sale": f"{store}-{minute:g}", "store": store, "amount": 5})


def _named(misses: Sequence[GraceMiss]) -> dict[tuple[str | None, str | None, int | None], list[str]]:
    """By sink, key and day the places of the late records."""
    assert all(miss.explained and miss.late_records == len(miss.late) for miss in misses)
    return {
        (miss.sink, miss.key, _day(miss.window_start)): [late.partition(" +")[0] for late in miss.late]
        for miss in misses
    }


def _day(at_ms: int | None) -> int | None:
    return None if at_ms is None else (at_ms - START_MS) // (DAY * MINUTE_MS)


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
        due = corrections_due(stage.tables, topology)
        CarryingOut(settings=stage.settings, due=due).run()
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
        due = corrections_due(stage.tables, topology)
        CarryingOut(settings=stage.settings, due=due).run()
    assert not findings.misses
    whole = stage.audit(from_the_beginning=True).findings
    assert (whole.outcome, whole.misses) == ("match", ())
    assert whole.counts["completeness repaired"] == findings.counts["completeness repaired"] == 1
