"""The small tables that the expectations are put to, one Parquet file each, so that validating needs no Spark.

``<reports>/verdicts/<stream>/<audit>/<table>.parquet``, where a table is named like the suite in ``expectations/`` that
is put to it: ``raw_log`` (a row per partition), ``batch_ledger`` (per batch and partition), ``outputs`` (per key and
window, those that differ first, at most ``MAX_OUTPUTS``) and ``reconciliation`` (per kind of check).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from recount.audit.causes import OUTPUT
from recount.audit.completeness import COMPLETENESS, CORRECTION
from recount.audit.conservation import OFFSETS, UNACCOUNTED
from recount.audit.copies import DELTA, KAFKA
from recount.audit.fidelity import EXPIRED, MATCH, is_wrong
from recount.audit.findings import Findings
from recount.audit.ledger_rules import LEDGER
from recount.audit.register import places_of
from recount.audit.side_ledgers import DEAD_LETTERS, LATE_LEDGER
from recount.audit.store import VERDICTS, AuditStore
from recount.core.finding import Finding, finding_id
from recount.core.own_columns import AUDIT

TABLES = ("raw_log", "batch_ledger", "outputs", "reconciliation")
CHECKS = (OUTPUT, LATE_LEDGER, DEAD_LETTERS, OFFSETS, LEDGER, COMPLETENESS, CORRECTION)
MAX_OUTPUTS = 100_000
ACCEPTED = "accepted"
_ROW = ("sink", "key", "window_start", "window_end", "origin")


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
        "outputs": _outputs(store.rows(VERDICTS, [findings.audit]), findings),
        "reconciliation": pa.Table.from_pylist(_reconciliation(findings)),
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def _raw_log(findings: Findings) -> list[dict[str, Any]]:
    accepted = {one.difference.place for one in _accepted(findings) if one.difference.verdict == UNACCOUNTED}
    return [
        {
            **asdict(part),
            "offsets": part.end - part.start,
            "records": part.records,
            "unaccounted": 0 if f"{part.topic}-{part.partition}" in accepted else part.unaccounted,
        }
        for part in findings.accounts
    ]


def _batch_ledger(findings: Findings) -> list[dict[str, Any]]:
    accepted = {one.id for one in _accepted(findings)}
    stream = findings.topology.name
    faults = [one for one in findings.differences if one.kind == LEDGER]
    faulty = [one.place for one in faults if finding_id(stream, one) not in accepted]
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


def _outputs(verdicts: pl.LazyFrame, findings: Findings) -> pa.Table:
    """A verdict that a person has accepted is told as ``accepted``."""
    rows, places = verdicts.drop(AUDIT), places_of(findings.topology)
    taken: dict[str, list[tuple[Any, ...]]] = {KAFKA: [], DELTA: []}
    for one in (found.difference for found in _accepted(findings)):
        if one.kind == OUTPUT and one.place in places:
            place, sink = places[one.place]
            taken[place].append((sink, one.key, one.window_start, one.window_end, one.origin))
    schema = {name: kind for name, kind in rows.collect_schema().items() if name in _ROW}
    for place, identities in ((place, found) for place, found in taken.items() if found):
        accepted = pl.LazyFrame(identities, {name: schema[name] for name in _ROW}, orient="row")
        told = rows.join(accepted.with_columns(taken=True), on=list(_ROW), how="left", nulls_equal=True)
        verdict = f"{place}_verdict"
        is_taken = pl.col("taken").is_not_null() & ~pl.col(verdict).is_in([MATCH, EXPIRED])
        rows = told.with_columns(pl.when(is_taken).then(pl.lit(ACCEPTED)).otherwise(verdict).alias(verdict)).drop(
            "taken"
        )
    wrong = rows.filter(is_wrong()).sort("window_start", "key").head(MAX_OUTPUTS).collect()
    # of the others any will do: to sort them, all rows would have to be in memory
    others = rows.filter(~is_wrong()).head(MAX_OUTPUTS - wrong.height).collect(engine="streaming")
    return pl.concat([wrong, others]).to_arrow()


def _accepted(findings: Findings) -> Sequence[Finding]:
    return findings.standing.accepted if findings.standing else ()


def _reconciliation(findings: Findings) -> list[dict[str, Any]]:
    """Per check the findings that are open after this audit, those of earlier audits too."""
    found = Counter(one.difference.kind for one in (findings.standing.open if findings.standing else ()))
    checks = [{"check": check, "differences": found[check]} for check in CHECKS]
    return [*checks, {"check": "unexplained grace misses", "differences": found[COMPLETENESS]}]
