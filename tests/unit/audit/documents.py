"""The document of a small audit that matched, from which certificates are made, and its line in the table of audits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recount.audit.carry.store import Run
from recount.certificate.document import certified

PARTITION = {
    "topic": "orders",
    "partition": 0,
    "start": 0,
    "end": 12,
    "records": 10,
    "counted": 8,
    "late": 1,
    "filtered": 0,
    "null_key": 0,
    "dead_lettered": 1,
    "control": 2,
    "aborted": 0,
    "compacted": 0,
    "expired": 0,
    "unaccounted": 0,
    "stream_time_ms": 1_000,
}
MISS = {
    "key": "EU",
    "window_start": 0,
    "window_end": 300_000,
    "published": '{"orders":5}',
    "complete": '{"orders":6}',
    "late_records": 1,
    "late": ["orders-0@7 +180000 ms"],
    "explained": True,
}


def findings(audit: str) -> dict[str, Any]:
    """The document of a small audit that matched, with one explained grace miss."""
    return {
        "audit": audit,
        "stream": "revenue",
        "outcome": "match",
        "interval_ms": [None, None],
        "source": "kafka",
        "seed": None,
        "cut": {"generation": 0, "batch": 3, "batch_timestamp_ms": 1_000, "frontier_ms": 900},
        "batches": 4,
        "declaration": {"source": "orders", "steps": [], "sink": "revenue", "table": "revenue"}
        | {"fingerprint": "f" * 64},
        "partitions": [PARTITION],
        "versions": {"recount": "1", "commit": None},
        "digests": {
            "log": [{"topic": "orders", "partition": 0, "start": 0, "end": 12, "records": 10, "sha256": "a" * 64}],
            "published": [{"topic": "revenue", "partition": 0, "start": 0, "end": 3, "records": 2, "sha256": "b" * 64}],
            "tables": [
                {"table": "outputs/revenue", "after": None, "up_to": [0, 3], "rows": 2, "sha256": "c" * 64},
                {"table": "corrections/revenue", "backfills": ["night-0"], "rows": 0, "sha256": "d" * 64},
            ],
        },
        "totals": {name: PARTITION[name] for name in ("records", "counted", "late", "filtered", "null_key")}
        | {"dead_lettered": 1},
        "results": 2,
        "verdicts": {"kafka": {"match": 2}, "delta": {"match": 2}, "completeness": {"kept": 1, "missed": 1}},
        "differences_found": 0,
        "differences": [],
        "findings": {
            **{state: [] for state in ("open", "accepted", "repaired")},
            **{f"{state}_found": 0 for state in ("open", "accepted", "repaired")},
            "repaired_before": 0,
        },
        "covers": {
            "from": {"batch": "0/0", "batch_timestamp_ms": 0},
            "to": {"batch": "0/3", "batch_timestamp_ms": 1_000},
            "judged_before": None,
        },
        "grace_misses_found": 1,
        "grace_misses": [MISS],
        "charted": "orders",
        "series": [{"window_start": 0, "expected": "5", "published": "5", "complete": "6"}],
    }


def certify(reports: Path, document: Mapping[str, Any]) -> None:
    """Put the certificate of ``document`` below ``reports``; it says that it is the first of its stream."""
    path = reports / "certificates" / document["stream"] / f"{document['audit']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(certified(document, None)))


def a_run(audit: str, **said: Any) -> Run:
    """A complete audit up to batch 1; what it has besides can be ``said``."""
    always: dict[str, Any] = {"finished_ms": 1, "source": "auto", "generation": 0, "batch": 1, "outcome": "match"}
    always |= {"lineage": (audit,), "certificate": f"{audit}.json", "counts": {}}
    always |= dict.fromkeys(("interval_start_ms", "interval_end_ms", "seed", "frontier_ms"))
    return Run(audit=audit, **{**always, **said})
