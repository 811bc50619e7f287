"""What the audits of a stream have released for removal, as the stream itself asks for it; without Spark."""

from __future__ import annotations

import json

import polars as pl
from deltalake import DeltaTable

from recount.core.retention import Released
from recount.core.tables import Tables

RUNS = "runs"
"""The audit's table of complete audits, each a JSON document."""


def audits_version(root: str, stream: str) -> int:
    """Another number after each audit of ``stream``; -1 before the first."""
    path = Tables(root).audit(stream, RUNS)
    return DeltaTable(path).version() if DeltaTable.is_deltatable(path) else -1


def released(root: str, stream: str) -> Released | None:
    """What the audit before the newest one has released; None: nothing.

    Not the newest: another audit that began before that one ended may still look for what it released.
    """
    path = Tables(root).audit(stream, RUNS)
    if not DeltaTable.is_deltatable(path):
        return None
    documents = [json.loads(text) for text in pl.scan_delta(path).select("document").collect()["document"]]
    in_order = sorted(documents, key=lambda document: int(document["finished_ms"]))
    return Released.from_document(in_order[-2].get("released")) if len(in_order) > 1 else None
