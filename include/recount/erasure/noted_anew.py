"""The rows of ``runs`` after an erasure: the newest audit knows the tables as they are now, none knows the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from recount.audit.altered_lineage import rows_of
from recount.audit.lineage_checksums import LineageChecksums
from recount.audit.store import CORRECTIONS, AuditStore, Run
from recount.audit.table_checksums import KeptRows, TableChecksums
from recount.core.tables import Tables
from recount.core.topology import Topology


def note_anew(
    store: AuditStore,
    tables: Tables,
    topology: Topology,
    run: Run,
    key: str,
    ends: Mapping[str, Mapping[int, int]],
) -> dict[str, Any]:
    """Put the checksums of the tables as they are now, and where topics ``ends`` now, into the row of ``run``.

    Returns that row. Rows of older audits, from which none goes on any more, lose the key only.
    """
    for other in store.runs():
        document = store.document_of(other.audit)
        changed = {**document, **_without_key(document, key)}
        if other.audit == run.audit:
            changed = {**changed, **_now(tables, topology, run, key, ends)}
            if run.built_on:
                of_tables = run.built_on[-1].tables
                kept = None if CORRECTIONS in of_tables else KeptRows.of("window", run.released)
                sums = LineageChecksums.of(run.audit, rows_of(store, run.lineage, of_tables), kept)
                changed = {**changed, "built_on": [asdict(sums)]}
        if changed != document:
            store.put_document(changed)
    return store.document_of(run.audit)


def _now(
    tables: Tables, topology: Topology, run: Run, key: str, ends: Mapping[str, Mapping[int, int]]
) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if run.checksums is not None:
        told["checksums"] = _summed(tables, topology.written[0].table, run, run.checksums, key)
        for found in ends.values():
            told["published_ends"] = {str(partition): end for partition, end in found.items()}
    if run.tables:
        told["tables"] = {name: _summed(tables, name, run, one, key) for name, one in run.tables.items()}
        told["read_to"] = {
            topic: {str(partition): end for partition, end in ends.get(topic, seen).items()}
            for topic, seen in run.read_to.items()
        }
    return told


def _summed(tables: Tables, table: str, run: Run, before: TableChecksums, key: str) -> dict[str, Any]:
    unsettled = before.unsettled
    if unsettled is not None:
        left = [row for row in unsettled.rows if row[0] != key]
        unsettled = type(unsettled)(**{**asdict(unsettled), "rows": left})
    return asdict(TableChecksums.of(tables, table, run.order, before.backfills, before.kept, unsettled))


def _without_key(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What of ``document`` names rows, without those of ``key``."""
    told = {}
    for name, one in document.get("tables", {}).items():
        unsettled = one.get("unsettled")
        if unsettled:
            rows = [row for row in unsettled["rows"] if row[0] != key]
            told[name] = {**one, "unsettled": {**unsettled, "rows": rows}}
    return {"tables": {**document["tables"], **told}} if told else {}
