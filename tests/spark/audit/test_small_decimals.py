"""Small decimals have all their places wherever they are written: in results, corrections and what an audit keeps."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.integration.engine.drivers import committed
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.audit.carry.store import CORRECTIONS
from recount.audit.compare.correction_claims import COMPLETE_TEXT
from recount.backfill.carrying_out import CarryingOut
from recount.backfill.corrections_due import corrections_due
from recount.backfill.single_backfill import plan, repair
from recount.declare.aggregates import Aggregate, count, last, total
from recount.declare.schema import RecordSchema, decimal
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.stage.partials import plan_of
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

pytestmark = pytest.mark.timeout(900)


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
    if plan_of(topology) is None:
        kept = pl.scan_delta(desk.tables.audit(topology.name, CORRECTIONS)).select(COMPLETE_TEXT).collect()
        assert [json.loads(text, parse_float=str)[0]["row"]["e"] for text in kept.to_series()] == ["0.00000004"]
        done = CarryingOut(
            session=spark, settings=desk.settings, due=corrections_due(spark, desk.tables, topology)
        ).run()
    else:
        done = repair(spark, desk.settings, plan(spark, desk.tables, topology))
    assert (done.corrections, len(done.published)) == (1, 1)
    [sink] = topology.sinks
    values = [one.value() for one in committed(desk.connection, sink.topic.name) if one.key() == b"k"]
    assert [value.split(b'"e":')[1][:10] for value in values] == [b"0.00000003", b"0.00000004"]
    written = pl.DataFrame(DeltaTable(desk.tables.corrections(sink.table)).to_pyarrow_table())
    assert written["e"].to_list() == [Decimal("0.00000004")]
    repaired = desk.audit().findings
    assert (repaired.outcome, repaired.misses) == ("match", ())
    assert repaired.counts["completeness repaired"] == 1
