"""Corrections, written to Delta and published on Kafka, each exactly once however often a repair is run.

1. The corrections of an audit are appended to ``corrections/<table>`` under the backfill's id, which is the audit's:
   Delta skips the append when it has it already. From then on the rows in the table are what is to be published.
2. Backfills are numbered in the order of their appends. Each is published in one Kafka transaction that also commits
   the next number as the offset of the group ``recount.<stream>.backfill``, so that a repair that is run again finds
   out whether its first try was committed. One that never was is published before any later one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.backfill.plan import Plan
from recount.core.output import output_record
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.kafka.connection import Connection
from recount.kafka.transaction import KafkaRecord, OutputTransaction
from recount.recompute.aggregating import TIMESTAMP, group_of
from recount.recompute.columns import named
from recount.recompute.flow import Flow

SLOT = "backfill"
NUMBER = "backfill_number"


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """``corrections`` rows belong to the backfill; ``published`` are the backfills that this run published."""

    backfill: str
    corrections: int
    published: tuple[str, ...]


def repair(session: SparkSession, settings: Settings, plan: Plan) -> Repaired:
    """Carry ``plan`` out; a second run of the same audit's backfill changes nothing.

    Raises ``Transient`` or ``Terminal`` as the Kafka transaction does; run it again after either.
    """
    path = Tables(settings.data).corrections(plan.flow.sink.table)
    if not _is_there(session, path, plan.audit):
        _append(session, path, plan)
    rows = _corrections(session, path)
    published = _publish_pending(settings, plan, rows) if rows is not None else ()
    mine = 0 if rows is None else rows.where(F.col("backfill_id") == plan.audit).count()
    return Repaired(backfill=plan.audit, corrections=mine, published=published)


def _corrections(session: SparkSession, path: str) -> DataFrame | None:
    return session.read.format("delta").load(path) if DeltaTable.isDeltaTable(session, path) else None


def _is_there(session: SparkSession, path: str, backfill: str) -> bool:
    rows = _corrections(session, path)
    return rows is not None and not rows.where(F.col("backfill_id") == backfill).isEmpty()


def _append(session: SparkSession, path: str, plan: Plan) -> None:
    rows = _corrections(session, path)
    last = None if rows is None else rows.agg(F.max(NUMBER)).first()[0]  # type: ignore[index]
    changes = plan.changes.select(*map(named, plan.flow.sink.fields), TIMESTAMP, F.col("revision").cast("int"))
    if changes.isEmpty():
        return
    corrections = (
        changes.withColumn("origin", F.lit("backfill"))
        .withColumn("backfill_id", F.lit(plan.audit))
        .withColumn(NUMBER, F.lit(0 if last is None else last + 1).cast("long"))
        .withColumn("published_at_ms", F.lit(time.time_ns() // 1_000_000))
    )
    once = {"txnAppId": f"recount/{plan.topology.name}/backfill/{plan.audit}", "txnVersion": "0"}
    corrections.coalesce(1).write.format("delta").mode("append").options(**once).save(path)


def _publish_pending(settings: Settings, plan: Plan, rows: DataFrame) -> tuple[str, ...]:
    """Publish, in order, every backfill that the group's offset does not tell to be published."""
    topic = plan.flow.sink.topic.name
    transaction = OutputTransaction(
        Connection(bootstrap_servers=settings.bootstrap_servers),
        plan.topology.name,
        SLOT,
        group=f"recount.{plan.topology.name}.{SLOT}",
    )
    try:
        counter = (topic, 0)
        committed = transaction.committed([counter])
        done = committed[counter].offset if counter in committed else 0
        pending = rows.where(F.col(NUMBER) >= done).select(NUMBER, "backfill_id").distinct().orderBy(NUMBER).collect()
        for number, backfill in pending:
            mine = rows.where(F.col(NUMBER) == number).orderBy(*map(named, group_of(plan.flow))).collect()
            transaction.commit_once(
                [_record(row.asDict(), plan.flow) for row in mine],
                start_offsets={counter: number},
                end_offsets={counter: number + 1},
                batch=backfill,
            )
        return tuple(backfill for _, backfill in pending)
    finally:
        transaction.close()


def _record(row: Mapping[str, Any], flow: Flow) -> KafkaRecord:
    record = output_record(
        row,
        key=flow.sink.key,
        fields=list(flow.sink.fields),
        timestamp_ms=row[TIMESTAMP],
        revision=row["revision"],
        origin="backfill",
    )
    return KafkaRecord(
        topic=flow.sink.topic.name,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp_ms,
    )
