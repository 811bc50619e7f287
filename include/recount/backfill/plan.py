"""What a backfill would change: the results that an audit found missed, and what they would be with unlimited grace."""

from __future__ import annotations

from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.completeness import COMPLETENESS, MISSED
from recount.audit.copies import NO_REVISION
from recount.audit.shape import flow_of
from recount.audit.store import PARTIALS, PLANS, VERDICTS, AuditStore, Run
from recount.core.errors import Terminal
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.recompute.aggregating import TIMESTAMP, group_of, results
from recount.recompute.columns import named
from recount.recompute.flow import Flow


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The corrections that follow from one audit: the sink's fields, ``timestamp_ms`` and ``revision``.

    Beside them stands what readers see now, ``now_<aggregate>`` and ``now_revision`` (-1: nothing).
    """

    topology: Topology
    flow: Flow
    audit: str
    changes: DataFrame


def plan(session: SparkSession, tables: Tables, topology: Topology, audit: str | None = None) -> Plan:
    """The plan that follows from ``audit`` (None: the stream's last one); reads the audit's tables, never the log.

    Raises ``Terminal`` when there is no such complete audit, or the topology is no single aggregation: others are
    audited, not repaired.
    """
    flow = flow_of(topology)
    if flow is None:
        raise Terminal(
            f"{topology.name} cannot be backfilled",
            given="operators or sinks beyond one aggregation",
            expected="one source, stateless steps, count, sum, min or max over time windows, one sink",
            remedy="raise the grace and replay the stream, or aggregate in a topology of its own",
        )
    store = AuditStore(session, tables, topology.name)
    run = _run(store, topology, audit)
    missed = store.read(VERDICTS, [run.audit]).where(F.col(COMPLETENESS) == MISSED)
    wanted = missed.select(F.col("key").alias("wanted_key"), WINDOW_START, WINDOW_END)
    parts = store.read(PARTIALS, run.lineage).withColumn("wanted_key", named(flow.key).cast("string"))
    complete = results(parts.join(wanted, wanted.columns, "left_semi"), flow)
    now = _now(session, tables, flow)
    revision = F.coalesce("now_revision", F.lit(NO_REVISION))
    changes = complete.join(now, group_of(flow), "left").select(
        *map(named, [*flow.sink.fields, TIMESTAMP]),
        (revision + 1).alias("revision"),
        revision.alias("now_revision"),
        *(F.col(f"now_{name}") for name in flow.aggregate.aggregates),
    )
    return Plan(topology=topology, flow=flow, audit=run.audit, changes=changes)


def keep(session: SparkSession, tables: Tables, planned: Plan) -> None:
    """Put the changes into the audit's table ``plans``, for whoever decides on them."""
    AuditStore(session, tables, planned.topology.name).put(PLANS, planned.audit, planned.changes)


def _run(store: AuditStore, topology: Topology, audit: str | None) -> Run:
    runs = [run for run in store.runs() if audit in (None, run.audit)]
    if not runs:
        raise Terminal(
            "no complete audit",
            given=audit,
            expected=f"an audit of {topology.name}",
            remedy=f"recount audit --stream {topology.name}",
        )
    return runs[-1]


def _now(session: SparkSession, tables: Tables, flow: Flow) -> DataFrame:
    """What readers of the tables see: per key and window the row with the highest revision."""
    columns = [*flow.sink.fields, TIMESTAMP, "revision"]
    rows = session.read.format("delta").load(tables.output(flow.sink.table)).select(*map(named, columns))
    corrections = tables.corrections(flow.sink.table)
    if DeltaTable.isDeltaTable(session, corrections):
        rows = rows.unionByName(session.read.format("delta").load(corrections).select(*map(named, columns)))
    newest: list[Column] = [
        F.max_by(named(name), "revision").alias(f"now_{name}") for name in flow.aggregate.aggregates
    ]
    return rows.groupBy(*map(named, group_of(flow))).agg(F.max("revision").alias("now_revision"), *newest)
