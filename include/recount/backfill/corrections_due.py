"""Corrections that a backfill would make: rows found missed and not corrected, and their text.

Reads the audits' tables and those of the sinks, never the log and never the stream's state.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import types as T
from rich.table import Table

from recount.audit.carry.delta_frames import frame_at
from recount.audit.carry.store import CORRECTIONS, PLANS, VERDICTS, AuditStore, Run
from recount.audit.certificate.summary import change_in_words, printable
from recount.audit.compare.claims import AT_MS, IDENTITY, IS_NULL, REVISION, ROW, entry_type
from recount.audit.compare.correction_claims import COMPLETE_TEXT, GONE_MS, kept_text
from recount.audit.compare.differences import SINK
from recount.audit.compare.identity import Identity, identity_of
from recount.audit.compare.published import NO_REVISION, kept_rows
from recount.audit.compare.sink_verdicts import HIGHEST, SEEN, of_backfills, of_stream, seen_rows, sees
from recount.audit.explain.completeness import COMPLETENESS, MISSED
from recount.audit.explain.misses import IS_OPEN
from recount.backfill.corrections import REMEDIES, Correction, Standing
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.output import encode_value
from recount.declare.topology import Topology
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import frame_of, once
from recount.runtime.errors import Terminal
from recount.runtime.times import quantity, told_window
from recount.tables.places import Tables

_ROW = [SINK, *IDENTITY]
_SHOWN = 50
_PLANNED = {
    **dict.fromkeys(("sink", "key"), pl.String),
    **dict.fromkeys((WINDOW_START, WINDOW_END), pl.Int64),
    **dict.fromkeys(("origin", "now", "corrected"), pl.String),
    "revision": pl.Int32,
    "standing": pl.String,
}


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


def corrections_due(tables: Tables, topology: Topology, audit: str | None = None) -> Due:
    """All open misses of ``topology``, or (``audit``) those of them that this audit found.

    Each is corrected to what the newest audit makes of it. Raises ``Terminal`` when there is no such complete audit, or
    it is one of an earlier release, which kept no complete rows.
    """
    store = AuditStore(tables, topology.name)
    run = newest_audit(store, topology, audit)
    kept = kept_misses(store, tables, topology, run)
    if audit is not None:
        kept = kept.join(_missed(store, audit), on=_ROW, how="semi", nulls_equal=True)
    database = Database()
    try:
        corrections = [
            one
            for node in topology.written
            for one in _of_sink(database, tables, identity_of(node), kept.filter(pl.col(SINK) == node.topic.name))
        ]
    finally:
        database.close()
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


def kept_misses(store: AuditStore, tables: Tables, topology: Topology, run: Run) -> pl.DataFrame:
    """Return what ``run`` has kept of the rows that it has judged as missed, with the columns of ``missed_rows``."""
    # an audit judges again whatever the ones before called missed, until it is repaired
    missed = _missed(store, run.audit)
    if not missed.height:
        return missed
    kept = missed.clear()
    if DeltaTable.is_deltatable(tables.audit(topology.name, CORRECTIONS)):
        kept = store.rows(CORRECTIONS, [run.audit]).collect().join(missed, on=_ROW, how="semi", nulls_equal=True)
    if kept.height < missed.height:
        raise Terminal(
            f"the audit {run.audit} has not kept what a backfill of {topology.name} needs",
            given="misses without their complete rows",
            expected="an audit of this release",
            remedy=f"recount audit --stream {topology.name}",
        )
    return kept


def _missed(store: AuditStore, audit: str) -> pl.DataFrame:
    """The rows that ``audit`` has judged as missed."""
    return store.rows(VERDICTS, [audit]).filter(pl.col(COMPLETENESS) == MISSED).select(_ROW).collect()


def _of_sink(database: Database, tables: Tables, identity: Identity, kept: pl.DataFrame) -> list[Correction]:
    if not kept.height:
        return []
    table = identity.written.table
    rows = kept.to_arrow()
    wanted = frame_of(database, [rows.cast(_plain(rows.schema))], _plain(rows.schema))
    written = of_stream(frame_at(database, tables.output(table)), identity)
    if DeltaTable.is_deltatable(path := tables.corrections(table)):
        written = written.union(of_backfills(frame_at(database, path), identity))
    seen = seen_rows(written.join(wanted, IDENTITY, "left_semi", nulls_fit=True), identity)
    both = wanted.join(seen.select(*IDENTITY, SEEN, HIGHEST), IDENTITY, "left", nulls_fit=True)

    def entries(text: str) -> list[dict[str, Any]]:
        found = kept_rows(text, identity.fields)
        return [{IS_NULL: row is None, ROW: row, AT_MS: at_ms} for row, at_ms in found]

    parsed = F.by_python(entries, T.ArrayType(entry_type(identity)))
    both = once(both.with_column("complete", parsed(COMPLETE_TEXT)))
    complete = F.col("complete")
    is_seen = F.when(F.col(SEEN).is_null(), F.size(complete) == 0).otherwise(sees(F.col(SEEN), complete, identity))
    revision = (F.coalesce(HIGHEST, F.lit(NO_REVISION)) + 1).try_cast("int")
    now = F.coalesce(kept_text(SEEN), F.lit("[]")).alias("now")
    told = both.where(~is_seen).select(*IDENTITY, COMPLETE_TEXT, GONE_MS, IS_OPEN, revision.alias(REVISION), now)
    return [_correction(identity, one) for one in told.sorted_by(*IDENTITY).rows()]


def _plain(schema: pa.Schema) -> pa.Schema:
    """``schema`` with texts as the database has them."""
    return pa.schema([(one.name, pa.string() if pa.types.is_large_string(one.type) else one.type) for one in schema])


def _correction(identity: Identity, one: Mapping[str, Any]) -> Correction:
    return Correction(
        identity=identity,
        key=one["key"],
        window_start=one[WINDOW_START],
        window_end=one[WINDOW_END],
        origin=one["origin"],
        complete=one[COMPLETE_TEXT],
        gone_ms=one[GONE_MS],
        is_open=one[IS_OPEN],
        revision=one[REVISION],
        now=one["now"],
    )


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


def keep_due(tables: Tables, due: Due) -> None:
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
    told = pl.DataFrame(rows, _PLANNED, orient="row")
    AuditStore(tables, due.topology.name).put_rows(PLANS, due.run.audit, told)


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
