"""The cases of the field (``tests.field``) on a real broker, with Spark, Delta and an audit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from tests.field.all_cases import RUNNING
from tests.field.case import IDLE_AFTER, MAX_FUTURE, Case, Sent
from tests.spark.audit.conftest import START_MS
from tests.spark.audit.stage import Stage, send, settings_below
from tests.unit.topologies.shop_log import Arrival

from recount.audit.cut.auditable import AuditRequest
from recount.audit.findings.finding_register import Interval
from recount.audit.night import Outcome, audited_together
from recount.declare.columns import IS_NULL
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

pytestmark = pytest.mark.thorough

CASES = [case for case in RUNNING if case.on_broker and os.environ.get("FIELD_CASE", "") in case.name]
"""``FIELD_CASE=F3 pytest`` and the name of this file runs those with F3 in their name."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What came of all cases: the rows and dead letters of their tables, and the audit of their stream."""

    written: Mapping[str, list[Row]]
    rejected: Mapping[str, str]
    audit: Outcome


@pytest.fixture(scope="module")
def chain(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path_factory: pytest.TempPathFactory
) -> Chain:
    """All cases are the sinks of one stream, run in two batches: the first ones of all cases, then the last ones."""
    settings = settings_below(tmp_path_factory.mktemp("field"), kafka, project)
    sinks = [sink for case in CASES for sink in case.topology.sinks]
    topology = Topology(name="field", sinks=sinks, idle_after=IDLE_AFTER, max_future=MAX_FUTURE)
    stage = Stage(spark=spark, settings=settings, topology=topology).create_topics()
    for part in (slice(-1), slice(-1, None)):
        log = [_arrival(one) for case in CASES for batch in case.log[part] for one in batch]
        if log:
            send(stage.connection, log)
            stage.run()
    rejected = spark.read.format("delta").load(stage.tables.rejected(topology.name)).collect()
    tonight = AuditRequest(audit="tonight", interval=Interval(), source="kafka")
    [audit] = audited_together(settings, [topology], tonight, lambda _: spark)
    return Chain(
        written={sink.topic.name: stage.rows(sink) for sink in topology.written},
        rejected={f"{row.topic}-{row.partition}@{row.offset}": row.reason for row in rejected},
        audit=audit,
    )


def _arrival(one: Sent) -> Arrival:
    at_ms = START_MS + one.at_ms
    return Arrival(topic=one.topic, partition=one.partition, key=one.key, value=one.value, timestamp_ms=at_ms)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_people_met_elsewhere_is_right_on_kafka_and_proved(chain: Chain, case: Case) -> None:
    for topic in case.outputs:
        [sink] = [one for one in case.topology.written if one.topic.name == topic]
        rows = [(row[sink.key], _window(row), _value(row)) for row in chain.written[topic]]
        assert case.found(topic, rows) == case.expected(topic)
    rejected = {place: reason for place, reason in chain.rejected.items() if _is_of(place, case)}
    assert rejected == case.dead_letters
    assert chain.audit.refusal is None
    assert chain.audit.document is not None and chain.audit.document["outcome"] == "match", chain.audit.document


def _window(row: Row) -> tuple[int, int] | None:
    return (row[WINDOW_START] - START_MS, row[WINDOW_END] - START_MS) if WINDOW_START in row else None


def _value(row: Row) -> dict[str, Any] | None:
    cells = row.asDict()
    return None if cells.get(IS_NULL) else cells


def _is_of(place: str, case: Case) -> bool:
    return place.split("@")[0].rpartition("-")[0] in case.partitions
