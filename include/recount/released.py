"""What the audits of a stream have found and released for removal, as others ask for it; without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from deltalake import DeltaTable

from recount.core.retention import Released
from recount.core.tables import Tables

RUNS = "runs"
"""The audit's table of complete audits, each a JSON document."""
MISSES = "misses"
"""The audit's table of grace misses."""


def audits_version(root: str, stream: str) -> int:
    """Another number after each audit of ``stream``; -1 before the first."""
    path = Tables(root).audit(stream, RUNS)
    return DeltaTable(path).version() if DeltaTable.is_deltatable(path) else -1


def released(root: str, stream: str) -> Released | None:
    """What the audit before the newest one has released; None: nothing.

    Not the newest: another audit that began before that one ended may still look for what it released.
    """
    return released_by(complete_audits(root, stream))


def released_by(audits: Sequence[Mapping[str, Any]]) -> Released | None:
    """The same, of these documents of ``complete_audits``."""
    return Released.from_document(audits[-2].get("released")) if len(audits) > 1 else None


def complete_audits(root: str, stream: str) -> list[Mapping[str, Any]]:
    """The documents of all complete audits of ``stream``, as ``audit.store.Run`` says them, oldest first."""
    path = Tables(root).audit(stream, RUNS)
    if not DeltaTable.is_deltatable(path):
        return []
    documents = [json.loads(text) for text in pl.scan_delta(path).select("document").collect()["document"]]
    return sorted(documents, key=lambda document: int(document["finished_ms"]))
