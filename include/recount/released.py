"""What the audits of a stream have found and released for removal, as others ask for it; without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

from recount.core.certificate import Certificate, verify_alone
from recount.core.errors import Terminal
from recount.core.retention import Released
from recount.core.tables import Tables
from recount.regular_files import bytes_of_file

RUNS = "runs"
"""The audit's table of complete audits, each a JSON document."""
MISSES = "misses"
"""The audit's table of grace misses."""


def audits_version(root: str, stream: str) -> int:
    """Another number after each audit of ``stream``; -1 before the first."""
    path = Tables(root).audit(stream, RUNS)
    return DeltaTable(path).version() if DeltaTable.is_deltatable(path) else -1


def released(root: str, stream: str) -> Released | None:
    """What the audit before the newest one has released, as its row says; None: nothing.

    Not the newest: another audit that began before that one ended may still look for what it released.
    """
    return released_by(complete_audits(root, stream))


def removable(root: str, reports: str, stream: str) -> Released | None:
    """The same as certificates below ``reports`` say it: whoever can write a row cannot have anything deleted.

    Audits whose certificate does not hold, or is of a release that did not say it, do not count.
    """
    return next(islice(_certified(root, reports, stream), 1, None), None)


def _certified(root: str, reports: str, stream: str) -> Iterator[Released | None]:
    """What each audit has released, newest first."""
    audits = dict.fromkeys(str(document["audit"]) for document in reversed(complete_audits(root, stream)))
    for audit in audits:
        certificate = held_certificate(reports, stream, audit)
        if certificate is not None and "released" in certificate:
            yield Released.from_document(certificate["released"])


def held_certificate(reports: str, stream: str, audit: str) -> Certificate | None:
    """The certificate of ``audit``; None where there is none that holds. Whether it is signed is not asked."""
    path = Path(reports) / "certificates" / stream / f"{audit}.json"
    try:
        certificate: Certificate = json.loads(bytes_of_file(path).decode("utf-8"))
        verify_alone(certificate)
        is_its = (certificate["stream"], certificate["audit"]) == (stream, audit)
    except (OSError, ValueError, AttributeError, RecursionError, Terminal):
        return None
    return certificate if is_its else None


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
