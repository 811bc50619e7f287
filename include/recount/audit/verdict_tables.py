"""The small tables that the expectations are put to, one Parquet file each, so that validating needs no Spark.

``<reports>/verdicts/<stream>/<audit>/<table>.parquet``, where a table is named like the suite in ``expectations/`` that
is put to it: ``raw_log`` (a row per partition), ``batch_ledger`` (per batch and partition), ``outputs`` (per key and
window, those that differ first, at most ``MAX_OUTPUTS``) and ``reconciliation`` (per kind of check).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from recount.audit.causes import OUTPUT
from recount.audit.completeness import COMPLETENESS, CORRECTION
from recount.audit.conservation import OFFSETS
from recount.audit.fidelity import is_wrong
from recount.audit.findings import Findings
from recount.audit.ledger_rules import LEDGER
from recount.audit.side_ledgers import DEAD_LETTERS, LATE_LEDGER
from recount.audit.store import VERDICTS, AuditStore

TABLES = ("raw_log", "batch_ledger", "outputs", "reconciliation")
CHECKS = (OUTPUT, LATE_LEDGER, DEAD_LETTERS, OFFSETS, LEDGER, COMPLETENESS, CORRECTION)
MAX_OUTPUTS = 100_000


def folder_of(reports: str, stream: str, audit: str) -> Path:
    """Where the tables of ``audit`` are."""
    return Path(reports) / "verdicts" / stream / audit


def write_tables(findings: Findings, store: AuditStore, reports: str) -> Path:
    """Write the four tables of ``findings``; returns their folder."""
    folder = folder_of(reports, findings.topology.name, findings.audit)
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "raw_log": pa.Table.from_pylist(_raw_log(findings)),
        "batch_ledger": pa.Table.from_pylist(_batch_ledger(findings)),
        "outputs": _outputs(store.rows(VERDICTS, [findings.audit])),
        "reconciliation": pa.Table.from_pylist(_reconciliation(findings)),
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def _raw_log(findings: Findings) -> list[dict[str, Any]]:
    return [
        {**asdict(part), "offsets": part.end - part.start, "records": part.records, "unaccounted": part.unaccounted}
        for part in findings.accounts
    ]


def _batch_ledger(findings: Findings) -> list[dict[str, Any]]:
    faulty = [one.place for one in findings.differences if one.kind == LEDGER]
    return [
        {
            "batch": f"{proof.generation}/{proof.batch}",
            "topic": part.topic,
            "partition": part.partition,
            "start": part.start,
            "end": part.end,
            "records": part.records,
            "fates": part.fates,
            "faults": sum(place.split(",")[0] == f"batch {proof.generation}/{proof.batch}" for place in faulty),
        }
        for proof in findings.ledger.proofs
        for part in proof.partitions
    ]


def _outputs(verdicts: pl.LazyFrame) -> pa.Table:
    rows = verdicts.drop("audit").sort(~is_wrong(), "window_start", "key")
    return rows.head(MAX_OUTPUTS).collect().to_arrow()


def _reconciliation(findings: Findings) -> list[dict[str, Any]]:
    unexplained = sum(not miss.explained for miss in findings.misses)
    checks = [{"check": check, "differences": findings.found.get(check, 0)} for check in CHECKS]
    return [*checks, {"check": "unexplained grace misses", "differences": unexplained}]
