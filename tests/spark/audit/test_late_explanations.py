"""A late record explains the missed rows that it would have changed, of each kind of window, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.conftest import MINUTE_MS, START_MS
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.audit.compare.differences import SEEN_TEXT, SINK
from recount.audit.explain.completeness import COMPLETENESS, MISSED
from recount.audit.explain.misses import grace_misses
from recount.certificate.finding import GraceMiss
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import SessionWindows, SlidingWindows, TimeWindows, session, sliding, tumbling
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
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
    spark: SparkSession,
    windows: TimeWindows | SlidingWindows | SessionWindows,
    late_window: tuple[int, int],
    explained: tuple[int, int],
    unexplained: tuple[int, int],
) -> None:
    counted = stream(VIEWS).windowed_by(windows).aggregate(n=count()).emit_final().to(Topic(name="counts", key="user"))
    judged = [("counts", "ann", *window, None, MISSED, None, "") for window in (explained, unexplained)]
    late = [("views", 0, 7, "ann", LATE_MS, *late_window, 1)]
    found = grace_misses(
        spark.createDataFrame(judged, _JUDGED),
        spark.createDataFrame(late, _LATE),
        spark.createDataFrame([], UNREAD_SCHEMA),
        Topology(name="counting", sinks=[counted]),
    )
    assert {(one.window_start, one.window_end): one.explained for one in found} == {explained: True, unexplained: False}


def test_a_miss_names_what_an_earlier_audit_named_and_not_all_that_can_have_changed_its_row(
    spark: SparkSession,
) -> None:
    """The log of the earlier night is not read again: which of its records made the row, that audit has said."""
    of_views = stream(VIEWS).deduplicate("user", horizon="1 s")
    counted = of_views.windowed_by(tumbling("10 s", grace="0 s")).aggregate(n=count()).emit_final()
    topology = Topology(name="counting", sinks=[counted.to(Topic(name="counts", key="user"))])
    row = ("counts", "ann", 100_000, 110_000, None)
    late = [("views", 0, offset, f"v{offset}", LATE_MS, None, None, 1) for offset in (7, 10, 9)]
    judged, ledger = spark.createDataFrame([(*row, MISSED, "a", "b")], _JUDGED), spark.createDataFrame(late, _LATE)
    nothing = spark.createDataFrame([], UNREAD_SCHEMA)
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
