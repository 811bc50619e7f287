"""Corrections of a single aggregation, in Delta and on Kafka, each exactly once however often a repair is run.

1. The corrections are appended to ``corrections/<table>`` as the next backfill of the stream, whose number is Delta's
   transaction version: of two that run at once, one is refused. From then on the rows in the table are what is to be
   published, and no plan has them any more: readers see them.
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

from recount.audit.altered_lineage import Lineage
from recount.audit.erased_keys import ErasedKeys
from recount.backfill.new_tables import make_table
from recount.backfill.plan import Plan, forged, is_on_kafka
from recount.codec.value_encoders import encoder_of
from recount.core.errors import Terminal
from recount.core.output import output_record
from recount.core.own_columns import BACKFILL, BACKFILL_NUMBER, ORIGIN, PUBLISHED_AT, RESULT_TIME, REVISION
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.declarations import DeclarationLog
from recount.kafka.backfill_count import backfills_of, publish_backfill, published_backfills
from recount.kafka.connection import BACKFILL_SLOT, Connection
from recount.kafka.kafka_record import KafkaRecord
from recount.kafka.transaction import OutputTransaction
from recount.recompute.aggregating import group_of
from recount.recompute.columns import named
from recount.recompute.flow import Flow

_SHOWN = 5
_DELETE_THEM = "see who can write to the table, delete these rows there, and run the backfill again"


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """This run wrote so many ``corrections`` as ``backfill``; ``published`` are the backfills that it published."""

    backfill: str | None
    corrections: int
    published: tuple[str, ...]


def repair(session: SparkSession, settings: Settings, plan: Plan) -> Repaired:
    """Carry ``plan`` out; a second run finds nothing to change, and publishes what the first could not.

    Raises ``Transient`` or ``Terminal`` as the Kafka transaction does; run it again after either. ``Terminal`` too
    where rows that are to be published are not what an audit gives, where somebody wrote to what audits go on from, and
    where the table is older than Kafka: what is written under a number that Kafka has would never be published.
    """
    Lineage.of(settings, plan.topology.name).require_unaltered(plan.audit)
    path = Tables(settings.data).corrections(plan.flow.sink.table)
    # asked before the table is read: another backfill may be at work
    done = published_backfills(Connection.of(settings), plan.topology)
    before = _corrections(session, path)
    if before is not None:
        # what is appended behind rows that must go could not be published when they are gone
        _pending(session, settings, plan, before, done)
    backfill = _append(session, settings, plan, before, done)
    rows = _corrections(session, path)
    published = _publish_pending(session, settings, plan, rows) if rows is not None else ()
    mine = 0 if rows is None or backfill is None else rows.where(F.col(BACKFILL) == backfill).count()
    return Repaired(backfill=backfill, corrections=mine, published=published)


def pending(session: SparkSession, settings: Settings, plan: Plan) -> int:
    """How many backfills have been written but never published, because a repair was killed in between."""
    rows = _corrections(session, Tables(settings.data).corrections(plan.flow.sink.table))
    if rows is None:
        return 0
    done = published_backfills(Connection.of(settings), plan.topology)
    return rows.where(F.col(BACKFILL_NUMBER) >= done).select(BACKFILL_NUMBER).distinct().count()


def _corrections(session: SparkSession, path: str) -> DataFrame | None:
    return session.read.format("delta").load(path) if DeltaTable.isDeltaTable(session, path) else None


def _append(session: SparkSession, settings: Settings, plan: Plan, rows: DataFrame | None, done: int) -> str | None:
    """Append the changes; returns the id of the backfill, which begins with the audit's; None when nothing changes.

    ``rows`` are the corrections so far; ``done`` backfills are on Kafka.
    """
    last = None if rows is None else rows.agg(F.max(BACKFILL_NUMBER)).first()[0]  # type: ignore[index]
    number = max(0 if last is None else last + 1, ErasedKeys.of(settings, plan.topology.name).backfills)
    is_new = rows is None or rows.where(F.col(BACKFILL) == plan.audit).isEmpty()
    backfill = plan.audit if is_new else f"{plan.audit}.{number}"
    changes = plan.changes.select(*map(named, plan.flow.sink.fields), RESULT_TIME, F.col(REVISION).cast("int"))
    if changes.isEmpty():
        return None
    forged_rows = changes.where(F.col(REVISION).isNull()).limit(_SHOWN).collect()
    if forged_rows:
        raise Terminal(
            f"results of {plan.topology.name} have the largest revision there is, which no stream comes to",
            given=", ".join(str(tuple(row[name] for name in group_of(plan.flow))) for row in forged_rows),
            expected="revisions that count up from 0",
            remedy=_DELETE_THEM,
        )
    if number < done and not is_on_kafka(session, Tables(settings.data), plan):
        raise Terminal(
            f"corrections/{plan.flow.sink.table} is older than Kafka: was it restored from a backup?",
            given=f"the table ends before backfill {number}, Kafka has all before {done}",
            expected="a table with all backfills that Kafka has",
            remedy=f"restore a newer backup of it; or, for each backfill that it lacks, oldest first, run `recount"
            f" backfill --stream {plan.topology.name} --audit ID` with the audit that it was made for, which takes over"
            f" what Kafka has; or `recount reset {plan.topology.name}`",
        )
    corrections = (
        changes.withColumn(ORIGIN, F.lit("backfill"))
        .withColumn(BACKFILL, F.lit(backfill))
        .withColumn(BACKFILL_NUMBER, F.lit(number).cast("long"))
        .withColumn(PUBLISHED_AT, F.lit(time.time_ns() // 1_000_000))
    )
    path = Tables(settings.data).corrections(plan.flow.sink.table)
    make_table(path, corrections.schema)
    once = {"txnAppId": f"recount/{plan.topology.name}/backfill", "txnVersion": str(number)}
    corrections.coalesce(1).write.format("delta").mode("append").options(**once).save(path)
    return backfill


def _publish_pending(session: SparkSession, settings: Settings, plan: Plan, rows: DataFrame) -> tuple[str, ...]:
    """Publish, in order, every backfill that the group's offset does not tell to be published."""
    connection = Connection.of(settings)
    transaction = OutputTransaction(
        connection,
        plan.topology.name,
        BACKFILL_SLOT,
        group=connection.backfill_group(plan.topology.name),
    )
    version = DeclarationLog(settings.data, plan.topology.name).version()
    try:
        done = backfills_of(transaction, connection, plan.topology)
        pending = _pending(session, settings, plan, rows, done)
        for number, backfill in pending:
            mine = rows.where(F.col(BACKFILL_NUMBER) == number).orderBy(*map(named, group_of(plan.flow))).collect()
            records = [_record(row.asDict(), plan.flow, version) for row in mine]
            publish_backfill(transaction, connection, number, backfill, records)
        return tuple(backfill for _, backfill in pending)
    finally:
        transaction.close()


def _pending(
    session: SparkSession, settings: Settings, plan: Plan, rows: DataFrame, done: int
) -> list[tuple[int, str]]:
    """Number and id of the backfills in ``rows`` that come after the ``done`` on Kafka; raises for what is forged."""
    named_so = rows.where(F.col(BACKFILL_NUMBER) >= done).select(BACKFILL_NUMBER, BACKFILL).distinct()
    found = [(row[0], row[1]) for row in named_so.orderBy(BACKFILL_NUMBER).collect()]
    for expected, (number, backfill) in enumerate(found, start=done):
        if number != expected:
            raise Terminal(
                f"corrections/{plan.flow.sink.table} has a backfill that does not follow the one before it",
                given=f"number {number}, {backfill}",
                expected=f"number {expected}",
                remedy=_DELETE_THEM,
            )
        _require_planned(session, settings, plan, backfill, rows.where(F.col(BACKFILL_NUMBER) == number))
    return found


def _require_planned(session: SparkSession, settings: Settings, plan: Plan, backfill: str, rows: DataFrame) -> None:
    found = forged(session, Tables(settings.data), plan, backfill, rows).limit(_SHOWN).collect()
    if found:
        keys = ", ".join(str(tuple(row[name] for name in group_of(plan.flow))) for row in found)
        raise Terminal(
            f"corrections/{plan.flow.sink.table} has corrections that follow from no audit",
            given=f"backfill {backfill}, among others {keys}",
            expected="the results that the audit gives which the backfill is named for",
            remedy=_DELETE_THEM,
        )


def _record(row: Mapping[str, Any], flow: Flow, version: int) -> KafkaRecord:
    record = output_record(
        row,
        key=flow.sink.key,
        fields=flow.sink.fields,
        timestamp_ms=row[RESULT_TIME],
        revision=row[REVISION],
        origin="backfill",
        version=version,
        encode=encoder_of(flow.sink),
    )
    return KafkaRecord(
        topic=flow.sink.topic.name,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp_ms,
    )
