"""A backfill of a single aggregation: results that audits found missed, planned, written to Delta and published.

They are corrected to what they would be with unlimited grace. A miss is open when the newest audit that judged its key
and window called it missed, and readers do not yet see the complete result. So a backfill takes the misses of every
night, each once, whichever audit announced them, and a second backfill finds nothing to do.

Corrections are written exactly once however often a repair is run:

1. The corrections are appended to ``corrections/<table>`` as the next backfill of the stream, whose number is Delta's
   transaction version: of two that run at once, one is refused. From then on the rows in the table are what is to be
   published, and no plan has them any more: readers see them.
2. Backfills are numbered in the order of their appends. Each is published in one Kafka transaction that also commits
   the next number as the offset of the group ``recount.<stream>.backfill``, so that a repair that is run again finds
   out whether its first try was committed. One that never was is published before any later one.
"""

from __future__ import annotations

from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import PARTIALS, PLANS, PUBLISHED, VERDICTS, AuditStore, Run
from recount.audit.compare.published import BY_BACKFILL, NO_REVISION
from recount.audit.compare.results import RELATIVE_TOLERANCE
from recount.audit.explain.completeness import COMPLETENESS, MISSED
from recount.audit.integrity.strangers import Lineage
from recount.backfill.corrections import DELETE_THEM, make_table, record_of, require_in_turn
from recount.declare.columns import (
    AUDIT,
    BACKFILL,
    BACKFILL_NUMBER,
    IS_NULL,
    NOW,
    NOW_REVISION,
    ORIGIN,
    PUBLISHED_AT,
    RESULT_TIME,
    REVISION,
    WANTED_KEY,
)
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology
from recount.kafka.connection import BACKFILL_SLOT, Connection
from recount.kafka.positions import backfills_of, publish_backfill, published_backfills
from recount.kafka.transaction import OutputTransaction
from recount.recompute.single_flow import Flow, flow_of
from recount.recompute.single_recompute import declared, group_of, results
from recount.recompute.spark_columns import named
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.decisions import DeclarationLog
from recount.tables.places import Tables

_TIMES = "__times"
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The corrections that follow from ``audit`` and those that it builds on: the sink's fields,
    ``recount_timestamp_ms`` and ``recount_revision``.

    Beside them stands what readers see now, ``recount_now_<aggregate>`` and ``recount_now_revision``
    (-1: nothing). A revision is null where what readers see has the largest number already: then it is forged.
    """

    topology: Topology
    flow: Flow
    audit: str
    changes: DataFrame


def plan(session: SparkSession, tables: Tables, topology: Topology, audit: str | None = None) -> Plan:
    """All open misses of ``topology``, a single aggregation, or (``audit``) those of them that this audit found.

    Each is corrected to what the newest audit makes of it. Reads the audits' tables, never the log.

    Raises ``Terminal`` when there is no such complete audit.
    """
    flow = flow_of(topology)
    assert flow is not None, "the corrections of other topologies are those of corrections_due"
    store = AuditStore(session, tables, topology.name)
    run = newest_audit(store, topology, audit)
    wanted = _missed(store, run).select(F.col("key").alias(WANTED_KEY), WINDOW_START, WINDOW_END)
    if audit is not None:
        found = store.read(VERDICTS, [audit]).where(F.col(COMPLETENESS) == MISSED)
        mine = found.select(F.col("key").alias(WANTED_KEY), WINDOW_START, WINDOW_END)
        wanted = wanted.join(mine, mine.columns, "left_semi")
    complete = _complete(store, run, flow, wanted)
    now = _now(session, tables, flow)
    revision = F.coalesce(NOW_REVISION, F.lit(NO_REVISION))
    differing = complete.join(now, group_of(flow), "left").where(~_is_complete(flow))
    changes = differing.select(
        *map(named, [*flow.sink.fields, RESULT_TIME]),
        F.try_add(revision, F.lit(1)).alias(REVISION),
        revision.alias(NOW_REVISION),
        *(named(f"{NOW}{name}") for name in flow.aggregate.aggregates),
    )
    # what is shown is what is kept and written; persist() would give a later plan of this session these rows again,
    # for Spark does not see what delta-rs has written meanwhile
    return Plan(topology=topology, flow=flow, audit=run.audit, changes=changes.localCheckpoint())


def forged(session: SparkSession, tables: Tables, planned: Plan, backfill: str, rows: DataFrame) -> DataFrame:
    """Return the ``rows`` of ``backfill`` that are not, once, what its audit makes of their key and window.

    Without such an audit, all of them. Otherwise anybody who can write to the table of corrections could have anything
    published by the next backfill.
    """
    flow, store = planned.flow, AuditStore(session, tables, planned.topology.name)
    # the second backfill of one audit has its own number behind the audit's name
    runs = {run.audit: run for run in store.runs()}
    run = runs.get(backfill) or runs.get(backfill.rpartition(".")[0])
    if run is None:
        return rows
    said = [named(name).alias(f"{NOW}{name}") for name in (*flow.aggregate.aggregates, RESULT_TIME)]
    told = rows.select(*map(named, group_of(flow)), *said)
    told = told.groupBy(*map(named, told.columns)).agg(F.count("*").alias(_TIMES))
    wanted = told.select(named(flow.key).cast("string").alias(WANTED_KEY), WINDOW_START, WINDOW_END)
    complete = _complete(store, run, flow, wanted)
    return told.join(complete, group_of(flow), "left").where(~_is_complete(flow) | (F.col(_TIMES) > 1))


def is_on_kafka(session: SparkSession, tables: Tables, planned: Plan) -> bool:
    """Whether the plan's audit, or one before it, has seen every change on Kafka as a backfill's, the same revision."""
    store = AuditStore(session, tables, planned.topology.name)
    [run] = [run for run in store.runs() if run.audit == planned.audit]
    told = [*map(named, planned.flow.sink.fields), named(RESULT_TIME), F.col(REVISION).cast("int")]
    seen = store.read(PUBLISHED, run.lineage).where(F.col(ORIGIN) == BY_BACKFILL)
    return planned.changes.select(*told).subtract(seen.select(*told)).isEmpty()


def keep(session: SparkSession, tables: Tables, planned: Plan) -> None:
    """Put the changes into the audit's table ``plans``, for the person who decides on them."""
    AuditStore(session, tables, planned.topology.name).put(PLANS, planned.audit, planned.changes)


def newest_audit(store: AuditStore, topology: Topology, audit: str | None) -> Run:
    """The audit that has judged furthest, and last: what is missed is missed by its lineage."""
    newest = store.furthest()
    if newest is None or not any(audit in (None, run.audit) for run in store.runs()):
        raise Terminal(
            "no complete audit",
            given=audit,
            expected=f"an audit of {topology.name}",
            remedy=f"recount audit --stream {topology.name}",
        )
    return newest


def _missed(store: AuditStore, newest: Run) -> DataFrame:
    """The keys and windows of which the last audit that judged them says that they are missed."""
    audits = F.array(*map(F.lit, newest.lineage))
    row = ["key", WINDOW_START, WINDOW_END]
    last = F.max_by(COMPLETENESS, F.array_position(audits, F.col(AUDIT))).alias(COMPLETENESS)
    judged = store.read(VERDICTS, newest.lineage).groupBy(*row).agg(last)
    return judged.where(F.col(COMPLETENESS) == MISSED).select(*row)


def _complete(store: AuditStore, run: Run, flow: Flow, wanted: DataFrame) -> DataFrame:
    """Return what ``run`` and the audits before it make of the keys and windows ``wanted``."""
    parts = store.read(PARTIALS, run.lineage).withColumn(WANTED_KEY, named(flow.key).cast("string"))
    return declared(results(parts.join(wanted, wanted.columns, "left_semi"), flow), flow)


def _is_complete(flow: Flow) -> Column:
    """Whether readers see the complete result already: a backfill has been written, and may not be audited yet."""
    equal = F.coalesce(F.col(RESULT_TIME) == F.col(f"{NOW}{RESULT_TIME}"), F.lit(False))
    for name in flow.aggregate.aggregates:
        mine, now = named(name), named(f"{NOW}{name}")
        same = mine.eqNullSafe(now)
        if flow.aggregate.fields[name].kind == "double":
            near = F.abs(mine - now) <= RELATIVE_TOLERANCE * F.greatest(F.abs(mine), F.abs(now))
            same = same | F.coalesce(near, F.lit(False))
        equal = equal & same
    return equal


def _now(session: SparkSession, tables: Tables, flow: Flow) -> DataFrame:
    """Return what readers of the tables see: per key and window the row with the highest revision."""
    columns = [*flow.sink.fields, RESULT_TIME, REVISION]
    rows = session.read.format("delta").load(tables.output(flow.sink.table)).select(*map(named, columns))
    corrections = tables.corrections(flow.sink.table)
    if DeltaTable.isDeltaTable(session, corrections):
        rows = rows.unionByName(session.read.format("delta").load(corrections).select(*map(named, columns)))
    newest: list[Column] = [
        F.max_by(named(name), REVISION).alias(f"{NOW}{name}") for name in (*flow.aggregate.aggregates, RESULT_TIME)
    ]
    return rows.groupBy(*map(named, group_of(flow))).agg(F.max(REVISION).alias(NOW_REVISION), *newest)


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
        # what is appended behind rows that must be removed could not be published once they are removed
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
            remedy=DELETE_THEM,
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
        .withColumn(PUBLISHED_AT, F.lit(clock_ms()))
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
        done = backfills_of(transaction, connection)
        pending = _pending(session, settings, plan, rows, done)
        for number, backfill in pending:
            mine = rows.where(F.col(BACKFILL_NUMBER) == number).orderBy(*map(named, group_of(plan.flow))).collect()
            rows_of_it = ({**row.asDict(), IS_NULL: False, ORIGIN: None} for row in mine)
            records = [record_of(row, plan.flow.sink, version) for row in rows_of_it]
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
    require_in_turn(found, done, plan.topology.name)
    for number, backfill in found:
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
            remedy=DELETE_THEM,
        )
