"""Item 1.7: a lookup is never wrongly null, whatever a batch takes; the change that came too late is named."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.audit.nightly import CertifiedAudit
from recount.core.own_columns import BATCH
from recount.core.schema import LONG, STRING, RecordSchema
from recount.core.topology import Topology, stream, table
from recount.local.kafka import EmbeddedKafka
from recount.local.project import Project
from recount.spark.batch import TopologyWork
from recount.spark.runner import RunOptions, StreamRunner

pytestmark = pytest.mark.timeout(900)
YEAR_MIN = 365 * 1_440
CUSTOMERS, ORDERS, MOST = 330, 1_000, 300
"""The table alone is more than a batch takes."""


@dataclass(frozen=True, kw_only=True)
class Nights:
    """The day audited; and again, when a change of the table had come after the order that it was meant for."""

    stage: Stage
    first: CertifiedAudit
    second: CertifiedAudit


@pytest.fixture(scope="module")
def nights(
    tiny: None,
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> Nights:
    name = uuid.uuid4().hex[:8]
    orders = source_topic(f"orders-{name}", RecordSchema.of(number=LONG), partitions=2)
    customers = source_topic(f"customers-{name}", RecordSchema.of(tier=STRING))
    flow = stream(orders).left_join_table(table(customers))
    topology = Topology(name=f"tiers-{name}", sinks=[flow.to(output_topic(f"tiered-{name}"), table="tiered")])
    root = tmp_path_factory.mktemp("lookups")
    stage = Stage(spark=spark, settings=settings_below(root, kafka, project), topology=topology)
    stage.create_topics()
    stage.produce([("customers", 0, f"c{n}", -YEAR_MIN, {"tier": f"tier {n}"}) for n in range(CUSTOMERS)])
    stage.produce([("orders", n % CUSTOMERS % 2, f"c{n % CUSTOMERS}", n / 100, {"number": n}) for n in range(ORDERS)])
    run(stage)
    first = stage.audit()
    stage.produce([("customers", 0, "c7", 9, {"tier": "too late for 9.97, in time for 20"})])
    stage.produce([("orders", 1, "c7", 20, {"number": ORDERS})])
    run(stage)
    return Nights(stage=stage, first=first, second=stage.audit())


def run(stage: Stage) -> None:
    work = TopologyWork(stage.topology, stage.settings.data)
    StreamRunner(stage.spark, stage.settings, work, RunOptions(available_now=True, max_offsets=MOST)).run()


def test_no_order_is_without_its_customer_whatever_a_batch_takes(nights: Nights) -> None:
    rows = nights.stage.rows(nights.stage.written("tiered"))
    assert len(rows) == ORDERS + 1
    assert [row for row in rows if row.tier is None] == []
    assert all(row.tier == f"tier {row.number % CUSTOMERS}" for row in rows if row.number < ORDERS)
    assert len({row[BATCH] for row in rows if row.number < ORDERS}) >= ORDERS // MOST
    [last] = [row for row in rows if row.number == ORDERS]
    assert last.tier == "too late for 9.97, in time for 20"


def test_the_audit_says_so(nights: Nights) -> None:
    found = nights.first.findings
    assert found.differences == ()
    assert found.counts == {
        "kafka match": ORDERS,
        "delta match": ORDERS,
        "completeness kept": ORDERS,
    }


def test_a_change_that_came_too_late_is_a_grace_miss_with_its_offset_and_no_violation(nights: Nights) -> None:
    found, stage = nights.second.findings, nights.stage
    assert found.differences == ()
    [miss] = found.misses
    assert miss.key == "c7" and miss.explained and miss.late_records == 1
    assert miss.late == (f"{stage.topic('customers')}-0@{CUSTOMERS} read after {miss.origin}",)
    assert "tier 7" in str(miss.published) and "too late for" in str(miss.complete)
    assert found.counts["completeness kept"] == ORDERS
