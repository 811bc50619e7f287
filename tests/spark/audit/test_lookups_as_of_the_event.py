"""Item 1.7: a lookup is never wrongly null, whatever a batch takes; the change that came too late is named."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import SparkSession
from tests.spark.audit.conftest import MINUTE_MS
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.audit.certificate.certificate_files import load
from recount.audit.explain.completeness import LookupShare
from recount.audit.night import CertifiedAudit
from recount.declare.columns import BATCH
from recount.declare.limits import Health
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topology import Topology, stream, table
from recount.engine.commit.batch import TopologyWork
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.kafka.offsets import classify_gap
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.recompute.operators.carried import LOOK_BACK_MS
from recount.runtime.errors import Terminal, Transient

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
    stage = Stage(spark=spark, settings=settings_below(root, kafka, project), topology=topology).create_topics()
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
    [whole] = stage.audit(from_the_beginning=True).findings.misses
    assert whole == miss


@pytest.mark.thorough
def test_a_miss_is_explained_in_later_nights_too(nights: Nights) -> None:
    """By what the audit has kept: the record is older than the look back now, and is looked up no more."""
    stage = nights.stage
    stage.produce([("orders", partition, f"c{partition}", 500, {"number": ORDERS + 1}) for partition in range(2)])
    for _ in range(2):
        run(stage)
        found = stage.audit().findings
        assert found.seed.run is not None
        assert (found.differences, found.misses) == ((), nights.second.findings.misses)
        stage.produce([("orders", partition, f"c{partition}", 900, {"number": ORDERS + 2}) for partition in range(2)])


@pytest.mark.thorough
def test_an_order_exactly_at_the_end_of_the_look_back_is_no_violation(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first night looks back from minute 60 to minute 0: the next one says the order of that minute again.

    Orders of nobody find no row: each night counts its own, and warns beyond the limit. The results are of 2023, and
    their topic keeps them for a week: whether the broker has deleted them or not, none is lost, and the audit warns.
    """
    orders = source_topic("edge-orders", RecordSchema.of(number=LONG))
    customers = source_topic("edge-customers", RecordSchema.of(tier=STRING))
    flow = stream(orders).left_join_table(table(customers))
    tiered = replace(output_topic("edge-tiered"), retention_ms=7 * 86_400_000)
    topology = Topology(name="edge", sinks=[flow.to(tiered)], health=Health(lookup_misses=0.9))
    stage = Stage(spark=spark, settings=settings_below(tmp_path, kafka, project), topology=topology).create_topics()
    for minutes in ((0, LOOK_BACK_MS / MINUTE_MS), (90,), (180,)):
        stage.produce([("edge-customers", 0, "ann", minutes[-1], {"tier": "gold"})])
        stage.produce([("edge-orders", 0, "ann", minute, {"number": round(minute)}) for minute in minutes])
        stage.produce([("edge-orders", 0, "nobody", minutes[-1], {"number": n}) for n in range(20)])
        stage.run()
        assert "results in edge-tiered were older than its retention when they were written (7 d; " in caplog.text
        audited = stage.audit()
        assert audited.findings.differences == ()
        # the order of minute 0 is older than the first row of ann
        lookup, records, misses = "left lookup in edge-customers", 20 + len(minutes), 19 + len(minutes)
        assert audited.findings.lookups == (LookupShare(lookup=lookup, records=records, misses=misses),)
        missed, deleted = load(audited.certificate)["warnings"]
        assert missed.startswith(f"{misses} of {records} records find no row in the {lookup}: ")
        assert deleted.startswith(f"{records} of {records} results in edge-tiered were older than its retention")


@pytest.mark.thorough
def test_a_table_that_was_compacted_meanwhile_is_read_from_its_archive_or_not_judged_at_all(nights: Nights) -> None:
    """The version that orders found is gone from Kafka: what is left would call their rows altered."""
    stage = nights.stage
    customers = stage.topic("customers")
    stage.archive()
    _compact(stage, customers)
    stage.produce([("customers", 0, "another", 30, {"tier": "begins another segment"})])
    run(stage)
    with pytest.raises(Transient, match=f"the archive of {customers} is behind the stream"):
        stage.audit()
    stage.archive()
    _wait_until_compacted(stage, customers)
    audit = stage.audit().findings
    assert (audit.differences, audit.misses) == ((), nights.second.findings.misses)
    assert sum(account.compacted for account in audit.accounts) == 0, "the archive has them all"
    archive = Path(stage.tables.archive(customers))
    archive.rename(archive.with_name("away"))
    assert stage.audit().findings.outcome == "match", "the nights before need not be read again"
    with pytest.raises(Terminal, match=r"records of customers-.* has read are no longer there") as refused:
        stage.audit(from_the_beginning=True)
    assert "Archive(topic=...)" in refused.value.remedy


def _compact(stage: Stage, topic: str) -> None:
    """Let the broker compact ``topic`` as soon as another segment begins."""
    settings = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    admin = stage.connection.admin()
    [changed] = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]
    ).values()
    changed.result(15)


def _wait_until_compacted(stage: Stage, topic: str) -> None:
    """Some 15 s: so long a broker's cleaner rests."""
    deadline = time.monotonic() + 120
    while not classify_gap(stage.connection, topic, 0, 0, CUSTOMERS).compacted:
        assert time.monotonic() < deadline, "not compacted in two minutes"
        time.sleep(1)
