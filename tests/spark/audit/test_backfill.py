"""A backfill repairs what grace left out, once, and the next audit finds nothing missed."""

import json
import shutil
import time
import uuid
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tests.integration.engine.drivers import committed
from tests.spark.audit.conftest import MINUTE_MS, START_MS, Scene, an_hour_of_orders, order
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.audit.carry.store import CORRECTIONS
from recount.audit.compare.correction_claims import COMPLETE_TEXT
from recount.backfill import carrying_out
from recount.backfill.carrying_out import CarryingOut, Repaired
from recount.backfill.corrections import Correction
from recount.declare.aggregates import Aggregate, count, last, total
from recount.declare.columns import BACKFILL, BACKFILL_NUMBER, BATCH, GENERATION, IS_NULL, ORIGIN, REVISION
from recount.declare.schema import RecordSchema, decimal
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.errors import Terminal
from recount.serve.answer import AUDITED, answer
from recount.serve.asked_sink import asked_sink
from recount.serve.question import Question


def repair(scene: Scene, audit: str | None = None) -> Repaired:
    return CarryingOut.of(scene.settings, scene.topology, audit).run()


def due(scene: Scene, audit: str | None = None) -> list[Correction]:
    return list(CarryingOut.of(scene.settings, scene.topology, audit).due.corrections)


def orders_of(correction: Correction) -> tuple[int, int]:
    """How many orders readers see now, and should see."""
    [now], [complete] = json.loads(correction.now), json.loads(correction.complete)
    return now["row"]["orders"], complete["row"]["orders"]


def test_a_repair_completes_the_missed_result_and_a_second_repair_changes_nothing(scene: Scene) -> None:
    an_hour_of_orders(scene)
    scene.run(max_offsets=1_000)
    missed = scene.audit().findings
    assert (missed.outcome, missed.counts["completeness missed"]) == ("match", 1)

    output = DeltaTable(scene.tables.output(scene.topology.sinks[0].table))
    seen = pl.DataFrame(output.to_pyarrow_table())
    write_deltalake(output, seen.with_columns(pl.lit(2**31 - 1, pl.Int32).alias(REVISION)), mode="append")
    with pytest.raises(Terminal, match="the largest revision there is"):
        repair(scene)
    output.delete(f"{REVISION} = {2**31 - 1}")
    [change] = due(scene)
    assert (orders_of(change), change.revision, change.standing) == ((5, 6), 1, "ready")
    first = repair(scene)
    corrections = DeltaTable(scene.tables.corrections(scene.topology.sinks[0].table))
    for name in (missed.audit, f"{missed.audit}.1", "of-no-audit"):
        forged = pl.DataFrame(corrections.to_pyarrow_table())
        forged = forged.with_columns(
            pl.lit(1).alias(BACKFILL_NUMBER), pl.lit(name).alias(BACKFILL), pl.col("orders") + 1
        )
        write_deltalake(corrections, forged, mode="append")
        with pytest.raises(Terminal, match="follow from no audit"):
            repair(scene)
        corrections.delete(f"{BACKFILL_NUMBER} = 1")
    copy = pl.DataFrame(corrections.to_pyarrow_table()).with_columns(pl.lit(2**63 - 1).alias(BACKFILL_NUMBER))
    write_deltalake(corrections, copy, mode="append")
    with pytest.raises(Terminal, match="does not follow the one before"):
        repair(scene)
    corrections.delete(f"{BACKFILL_NUMBER} > 0")
    again = repair(scene, missed.audit)
    assert (first.corrections, first.published) == (1, (missed.audit,))
    assert (again.corrections, again.published) == (0, ())

    repaired = scene.audit().findings
    assert (repaired.outcome, repaired.misses) == ("match", ())
    assert repaired.counts["completeness repaired"] == 1
    sink = asked_sink(scene.topology, None)
    answered = answer(scene.tables, Question(sink=sink), time.time_ns() // 1_000_000)
    [corrected] = [row for row in answered.rows if row[BACKFILL_NUMBER] is not None]
    assert (corrected["orders"], corrected[REVISION], corrected[AUDITED]) == (6, 1, True)

    as_an_earlier_release(scene)
    answered = answer(scene.tables, Question(sink=sink), time.time_ns() // 1_000_000)
    assert [row["orders"] for row in answered.rows if row[BACKFILL_NUMBER] is not None] == [6]
    scene.produce([(0, 60 * MINUTE_MS, order("EU", 1)), (0, missed.misses[0].window_start - START_MS, order("EU", 1))])
    scene.run()
    assert [(miss.late_records, miss.explained) for miss in scene.audit().findings.misses] == [(2, True)]
    assert repair(scene).corrections == 1
    written = pl.read_delta(scene.tables.corrections(scene.topology.sinks[0].table))
    assert sorted(written.select(GENERATION, BATCH, "orders").rows()) == [(0, 0, 6), (0, 1, 7)]
    answered = answer(scene.tables, Question(sink=sink), time.time_ns() // 1_000_000)
    assert [row["orders"] for row in answered.rows if row[BACKFILL_NUMBER] is not None] == [7]
    assert scene.audit().findings.outcome == "match"


def as_an_earlier_release(scene: Scene) -> None:
    """Leave the table of corrections as an earlier release wrote it: which batch a row follows it did not say."""
    table = DeltaTable(scene.tables.corrections(scene.topology.sinks[0].table))
    rows = pl.DataFrame(table.to_pyarrow_table()).drop(GENERATION, BATCH, IS_NULL)
    rows = rows.with_columns(pl.lit("backfill").alias(ORIGIN))
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")


def a_night(scene: Scene, number: int) -> None:
    """Half an hour of orders, and late ones: of this night, and once more of the first."""
    minutes = range(30 * number, 30 * number + 30)
    scene.produce([(minute % 2, minute * MINUTE_MS, order("EU", 2)) for minute in minutes])
    late = [minutes[2]] if number != 1 else [minutes[2], 2]
    scene.produce([(0, minute * MINUTE_MS, order("EU", 5)) for minute in late])
    scene.run()


def test_one_backfill_repairs_the_misses_of_three_nights_whose_approval_waited_though_it_is_killed_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Item 1.2. The first night's window is missed by the second night too: the newest recompute counts."""
    nights = []
    for number in range(3):
        a_night(scene, number)
        nights.append(scene.audit().findings)
    assert [len(night.misses) for night in nights] == [1, 2, 3], "what is missed is judged every night"

    assert sorted((one.window_start, orders_of(one)[1]) for one in due(scene)) == [
        (nights[number].misses[-1].window_start, orders) for number, orders in ((0, 7), (1, 6), (2, 6))
    ]
    assert [orders_of(one)[1] for one in due(scene, nights[0].audit)] == [7]

    with monkeypatch.context() as killed:
        killed.setattr(carrying_out, "publish_backfill", _killed)
        with pytest.raises(KeyboardInterrupt):
            repair(scene)
    left = CarryingOut.of(scene.settings, scene.topology)
    assert (list(left.due.corrections), left.waiting()) == ([], 1)
    done = left.run()
    assert (done.corrections, done.published) == (0, (nights[-1].audit,))
    assert left.waiting() == 0

    repaired = scene.audit().findings
    assert (repaired.outcome, repaired.misses) == ("match", ())
    assert repaired.counts["completeness repaired"] == 3


def test_a_backfill_refuses_a_table_of_corrections_that_is_older_than_kafka(scene: Scene) -> None:
    """What is written under the number of a backfill that Kafka has would be shown in the table and never published."""
    a_night(scene, 0)
    scene.audit()
    assert repair(scene).corrections == 1
    shutil.rmtree(scene.tables.corrections(scene.topology.sinks[0].table))  # the backup is from before the backfill
    scene.session.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    a_night(scene, 2)
    assert [one.verdict for one in scene.audit().findings.differences] == ["extra"]

    assert len(due(scene)) == 2
    with pytest.raises(Terminal, match="older than Kafka"):
        repair(scene)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("second", [last("e"), count()], ids=["operators", "partial aggregation"])
def test_a_correction_of_small_decimals_is_published_as_it_is_planned_and_audited(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path, second: Aggregate
) -> None:
    tail = uuid.uuid4().hex[:6]
    dust = source_topic(f"dust-{tail}", RecordSchema.of(e=decimal(15, 8)))
    flow = stream(dust).windowed_by(tumbling("10 s", grace="0 s")).aggregate(e=total("e"), other=second).emit_final()
    topology = Topology(name=f"dust-{tail}", sinks=[flow.to(output_topic(f"sums-{tail}"))])
    desk = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()
    sent = [("k", 0, "0.00000003"), ("z", 1, "1"), ("k", 0.0001, "0.00000001"), ("z", 2, "1")]
    for key, minute, value in sent:
        desk.produce([("dust", 0, key, minute, {"e": value})])
    desk.run()
    missed = desk.audit().findings
    assert (missed.outcome, missed.counts["completeness missed"]) == ("match", 1)
    [miss] = missed.misses
    assert "0.00000004" in str(miss.complete) and "0.00000003" in str(miss.published)
    kept = pl.scan_delta(desk.tables.audit(topology.name, CORRECTIONS)).select(COMPLETE_TEXT).collect()
    assert [json.loads(text, parse_float=str)[0]["row"]["e"] for text in kept.to_series()] == ["0.00000004"]
    done = CarryingOut.of(desk.settings, topology).run()
    assert (done.corrections, len(done.published)) == (1, 1)
    [sink] = topology.sinks
    values = [one.value() for one in committed(desk.connection, sink.topic.name) if one.key() == b"k"]
    assert [value.split(b'"e":')[1][:10] for value in values] == [b"0.00000003", b"0.00000004"]
    written = pl.DataFrame(DeltaTable(desk.tables.corrections(sink.table)).to_pyarrow_table())
    assert written["e"].to_list() == [Decimal("0.00000004")]
    repaired = desk.audit().findings
    assert (repaired.outcome, repaired.misses) == ("match", ())
    assert repaired.counts["completeness repaired"] == 1
