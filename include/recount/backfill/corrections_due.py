"""Corrections that a backfill would make: rows found missed and not corrected, and their text.

Reads the audits' tables and those of the sinks, never the log and never the stream's state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from rich.table import Table

from recount.audit.carry.store import CORRECTIONS, PLANS, VERDICTS, AuditStore, Run
from recount.audit.certificate.summary import change_in_words, printable
from recount.audit.compare.claims import AT_MS, IDENTITY, IS_NULL, REVISION, ROW
from recount.audit.compare.correction_claims import COMPLETE_TEXT, GONE_MS
from recount.audit.compare.differences import SINK
from recount.audit.compare.identity import Identity, identity_of
from recount.audit.compare.published import NO_REVISION
from recount.audit.compare.sink_verdicts import HIGHEST, SEEN, of_backfills, of_stream, seen_rows, sees
from recount.audit.explain.completeness import COMPLETENESS, MISSED
from recount.audit.explain.misses import IS_OPEN
from recount.backfill.corrections import REMEDIES, Correction, Standing
from recount.declare.output import encode_value
from recount.declare.topology import Topology
from recount.recompute.spark_columns import spark_type
from recount.runtime.errors import Terminal
from recount.runtime.times import quantity, told_window
from recount.tables.places import Tables

_ID = "__id"
_SHOWN = 50
_PLANNED = (
    "sink string, key string, window_start long, window_end long, origin string, now string, corrected string,"
    " revision int, standing string"
)


@dataclass(frozen=True, kw_only=True)
class Due:
    """The ``corrections`` that follow from the audit ``run``."""

    topology: Topology
    run: Run
    corrections: Sequence[Correction]

    def of(self, *standings: Standing) -> list[Correction]:
        """Return the corrections that stand so."""
        return [one for one in self.corrections if one.standing in standings]

    def left_out(self, *standings: Standing) -> list[tuple[str, Standing, int]]:
        """Return how many corrections stand so, by table and standing."""
        counted = Counter((one.identity.written.table, one.standing) for one in self.of(*standings))
        return [(table, standing, number) for (table, standing), number in sorted(counted.items())]


def corrections_due(session: SparkSession, tables: Tables, topology: Topology, audit: str | None = None) -> Due:
    """All open misses of ``topology``, or (``audit``) those of them that this audit found.

    Each is corrected to what the newest audit makes of it. Raises ``Terminal`` when there is no such complete audit, or
    it is one of an earlier release, which kept no complete rows.
    """
    store = AuditStore(session, tables, topology.name)
    run = newest_audit(store, topology, audit)
    kept = kept_misses(store, tables, topology, run)
    if kept is None:
        return Due(topology=topology, run=run, corrections=())
    if audit is not None:
        found = store.read(VERDICTS, [audit]).where(F.col(COMPLETENESS) == MISSED)
        kept = kept.join(found.select(_id().alias(_ID)), _ID, "left_semi")
    found_in = {row[SINK] for row in kept.select(SINK).distinct().collect()}
    identities = [identity_of(node) for node in topology.written if node.topic.name in found_in]
    corrections = [one for identity in identities for one in _of_sink(session, tables, identity, kept)]
    return Due(topology=topology, run=run, corrections=corrections)


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


def kept_misses(store: AuditStore, tables: Tables, topology: Topology, run: Run) -> DataFrame | None:
    """Return what ``run`` has kept of the rows that it has judged as missed.

    None: nothing is missed. Columns as of ``missed_rows``, and the identity as text.
    """
    # an audit judges again whatever the ones before called missed, until it is repaired
    missed = store.read(VERDICTS, [run.audit]).where(F.col(COMPLETENESS) == MISSED).select(_id().alias(_ID))
    if missed.isEmpty():
        return None
    kept = None
    if DeltaTable.is_deltatable(tables.audit(topology.name, CORRECTIONS)):
        kept = store.read(CORRECTIONS, [run.audit]).withColumn(_ID, _id()).join(missed, _ID, "left_semi")
    if kept is None or kept.count() < missed.count():
        raise Terminal(
            f"the audit {run.audit} has not kept what a backfill of {topology.name} needs",
            given="misses without their complete rows",
            expected="an audit of this release",
            remedy=f"recount audit --stream {topology.name}",
        )
    return kept


def _of_sink(session: SparkSession, tables: Tables, identity: Identity, kept: DataFrame) -> list[Correction]:
    table, topic = identity.written.table, identity.written.topic.name
    wanted = kept.where(F.col(SINK) == topic).withColumn(_ID, F.to_json(F.struct(*IDENTITY)))
    written = of_stream(session.read.format("delta").load(tables.output(table)), identity)
    path = tables.corrections(table)
    if DeltaTable.is_deltatable(path):
        corrections = session.read.format("delta").load(path)
        written = written.unionByName(of_backfills(corrections, identity))
    mine = written.withColumn(_ID, F.to_json(F.struct(*IDENTITY))).join(wanted, _ID, "left_semi")
    seen = seen_rows(mine, identity).withColumn(_ID, F.to_json(F.struct(*IDENTITY))).select(_ID, SEEN, HIGHEST)
    row = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in identity.fields.items()])
    parsed = F.from_json(
        COMPLETE_TEXT,
        T.ArrayType(T.StructType([T.StructField(ROW, row), T.StructField(AT_MS, T.LongType())])),
        {"prefersDecimal": "true"},
    )
    complete = F.transform(
        parsed, lambda one: F.struct(one[ROW].isNull().alias(IS_NULL), one[ROW].alias(ROW), one[AT_MS].alias(AT_MS))
    )
    both = wanted.join(seen, _ID, "left").withColumn("complete", complete)
    is_seen = F.when(F.col(SEEN).isNull(), F.size("complete") == 0).otherwise(
        sees(F.col(SEEN), F.col("complete"), identity)
    )
    due = both.where(~is_seen)
    revision = F.try_add(F.coalesce(HIGHEST, F.lit(NO_REVISION)), F.lit(1)).alias(REVISION)
    now = F.coalesce(F.to_json(SEEN, {"ignoreNullFields": "false"}), F.lit("[]")).alias("now")
    told = due.select(*IDENTITY, COMPLETE_TEXT, GONE_MS, IS_OPEN, revision, now)
    return [_correction(identity, one) for one in told.orderBy(*IDENTITY).collect()]


def _correction(identity: Identity, one: Row) -> Correction:
    return Correction(
        identity=identity,
        key=one.key,
        window_start=one.window_start,
        window_end=one.window_end,
        origin=one.origin,
        complete=one[COMPLETE_TEXT],
        gone_ms=one[GONE_MS],
        is_open=one[IS_OPEN],
        revision=one[REVISION],
        now=one.now,
    )


def _id() -> Column:
    return F.to_json(F.struct(SINK, *IDENTITY))


def table_of(due: Due, now: Collection[Correction]) -> Table:
    """The first corrections, for a terminal; ``now`` are those that would be made."""
    headings = ["sink", "key", "window", "made of", "now → corrected", "revision", ""]
    table = Table(*headings, title=f"open misses as of audit {due.run.audit}")
    for one in due.corrections[:_SHOWN]:
        window = "" if one.window_start is None else told_window(one.window_start, one.window_end)
        cells = [one.identity.written.table, one.key, window, one.origin or "", _change(one)]
        table.add_row(*map(printable, cells), str(one.revision), "" if one in now else one.standing)
    return table


def left_out(due: Due, now: Collection[Correction]) -> list[str]:
    """A sentence for each sink of which rows are not corrected, and what to do."""
    standings = due.left_out("open", "compacted") if due.of("keyed") and _has_keyed(now) else due.left_out(*REMEDIES)
    return [
        f"{quantity(number, 'row')} of {table} not corrected: {REMEDIES[standing]}"
        for table, standing, number in standings
    ]


def keep_due(session: SparkSession, tables: Tables, due: Due) -> None:
    """Put what is due into the audit's table ``plans``, for the person who decides on it."""
    rows = [
        (
            one.identity.written.topic.name,
            one.key,
            one.window_start,
            one.window_end,
            one.origin,
            _told(one.now),
            _told(one.complete),
            one.revision,
            one.standing,
        )
        for one in due.corrections
    ]
    AuditStore(session, tables, due.topology.name).put(PLANS, due.run.audit, session.createDataFrame(rows, _PLANNED))


def _has_keyed(corrections: Collection[Correction]) -> bool:
    return any(one.standing == "keyed" for one in corrections)


def _change(one: Correction) -> str:
    """The fields that differ; of several rows, which no one replaces one by one, all rows."""
    now, complete = _rows(one.now), _rows(one.complete)
    if len(now) > 1 or len(complete) > 1:
        return f"{_told(one.now)} → {_told(one.complete)}"
    return change_in_words(next(iter(now), None), next(iter(complete), None))


def _told(text: str) -> str:
    """The rows of a JSON text, without what surrounds them."""
    return "; ".join(_rows(text)) or "nothing"


def _rows(text: str) -> list[str]:
    rows = [one.get("row") for one in json.loads(text, parse_float=Decimal)]
    return ["deleted" if row is None else encode_value(row).decode() for row in rows]
