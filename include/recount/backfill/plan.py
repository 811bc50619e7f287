"""What a backfill of a single aggregation would change: all results that audits found missed.

They are corrected to what they would be with unlimited grace.

A miss is open when the newest audit that judged its key and window called it missed, and readers do not yet see the
complete result. So a backfill takes the misses of every night, each once, whichever audit announced them, and a second
backfill finds nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.completeness import COMPLETENESS, MISSED
from recount.audit.copies import BACKFILL, NO_REVISION
from recount.audit.results import RELATIVE_TOLERANCE
from recount.audit.shape import flow_of
from recount.audit.store import PARTIALS, PLANS, PUBLISHED, VERDICTS, AuditStore, Run
from recount.core.errors import Terminal
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import AUDIT, NOW, NOW_REVISION, ORIGIN, RESULT_TIME, REVISION, WANTED_KEY
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.recompute.aggregating import declared, group_of, results
from recount.recompute.columns import named
from recount.recompute.flow import Flow

_TIMES = "__times"


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
    """Those of the ``rows`` of ``backfill`` that are not, once, what its audit makes of their key and window.

    Without such an audit, all of them. Otherwise whoever can write to the table of corrections could have anything
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
    seen = store.read(PUBLISHED, run.lineage).where(F.col(ORIGIN) == BACKFILL)
    return planned.changes.select(*told).subtract(seen.select(*told)).isEmpty()


def keep(session: SparkSession, tables: Tables, planned: Plan) -> None:
    """Put the changes into the audit's table ``plans``, for whoever decides on them."""
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
    """What ``run`` and the audits before it make of the keys and windows ``wanted``."""
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
    """What readers of the tables see: per key and window the row with the highest revision."""
    columns = [*flow.sink.fields, RESULT_TIME, REVISION]
    rows = session.read.format("delta").load(tables.output(flow.sink.table)).select(*map(named, columns))
    corrections = tables.corrections(flow.sink.table)
    if DeltaTable.isDeltaTable(session, corrections):
        rows = rows.unionByName(session.read.format("delta").load(corrections).select(*map(named, columns)))
    newest: list[Column] = [
        F.max_by(named(name), REVISION).alias(f"{NOW}{name}") for name in (*flow.aggregate.aggregates, RESULT_TIME)
    ]
    return rows.groupBy(*map(named, group_of(flow))).agg(F.max(REVISION).alias(NOW_REVISION), *newest)
