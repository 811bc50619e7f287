"""Certificates on disk: one JSON and one HTML file per audit below ``<reports>/certificates/<stream>``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recount.audit.findings import Findings
from recount.audit.page import page
from recount.audit.shape import flow_of
from recount.core.certificate import Certificate, certified, verify
from recount.core.errors import Terminal
from recount.core.nodes import Sink, Source
from recount.core.topology import Topology

MAX_LISTED = 1_000
_FATES = ("records", "counted", "late", "filtered", "null_key", "null_value", "deduplicated", "dead_lettered")


def issue(findings: Findings, reports: str) -> Path:
    """Certify ``findings`` as the stream's next certificate; returns the JSON file, the page lies beside it."""
    folder = Path(reports) / "certificates" / findings.topology.name
    folder.mkdir(parents=True, exist_ok=True)
    previous = max(certificates_in(folder), key=lambda known: int(known["sequence"]), default=None)
    certificate = certified(_document(findings), previous)
    target = folder / f"{findings.audit}.json"
    _write(folder / f"{findings.audit}.html", page(certificate))
    _write(target, json.dumps(certificate, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    return target


def certificates_in(folder: Path) -> list[Certificate]:
    """All certificates in ``folder``."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def load(path: Path) -> Certificate:
    """The certificate in the file ``path``; raises ``Terminal`` when it is none."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Terminal("no certificate", given=str(path), expected="a JSON certificate", remedy=str(error)) from error
    if not isinstance(document, Mapping) or "sha256" not in document:
        raise Terminal("no certificate", given=str(path), expected="a JSON object with a sha256")
    return document


def verify_file(path: Path) -> list[str]:
    """Verify the certificate in ``path`` with the predecessors found beside it (``core.certificate.verify``)."""
    return verify(load(path), certificates_in(path.parent))


def _write(path: Path, text: str) -> None:
    """Whole or not at all, even when the process is killed."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _document(findings: Findings) -> dict[str, Any]:
    parts = [{**asdict(part), "records": part.records, "unaccounted": part.unaccounted} for part in findings.accounts]
    verdicts: dict[str, dict[str, int]] = {"kafka": {}, "delta": {}, "completeness": {}}
    for name, n in sorted(findings.counts.items()):
        place, verdict = name.split(" ")
        verdicts[place][verdict] = n
    cut = findings.cut
    return {
        "audit": findings.audit,
        "stream": findings.topology.name,
        "outcome": findings.outcome,
        "interval_ms": [findings.interval.start_ms, findings.interval.end_ms],
        "source": findings.source,
        "seed": findings.seed.run.audit if findings.seed.run else None,
        "cut": {
            "generation": cut.generation,
            "batch": cut.batch,
            "batch_timestamp_ms": cut.batch_timestamp_ms,
            "frontier_ms": findings.frontier_ms,
        },
        "batches": len(findings.ledger.proofs),
        "declaration": _declaration(findings.topology),
        "partitions": parts,
        "totals": {name: sum(part[name] for part in parts) for name in _FATES},
        "published_ends": {str(partition): end for partition, end in findings.published_ends.items()},
        "results": sum(verdicts["kafka"].values()),
        "verdicts": verdicts,
        "differences_found": sum(findings.found.values()),
        "differences": [asdict(difference) for difference in findings.differences[:MAX_LISTED]],
        "grace_misses_found": len(findings.misses),
        "grace_misses": [asdict(miss) for miss in findings.misses[:MAX_LISTED]],
        "charted": findings.charted,
        "series": [
            {"window_start": one.window_start, **{side: format(getattr(one, side).normalize(), "f") for side in _SIDES}}
            for one in findings.series
        ],
    }


def _declaration(topology: Topology) -> dict[str, Any]:
    """What was audited, in words; ``aggregation`` is that of a topology that is a single one."""
    written = topology.written
    places = {
        "source": ", ".join(source.topic.name for source in topology.sources),
        "sink": ", ".join(node.topic.name for node in written),
        "table": ", ".join(node.table for node in written),
    }
    flow = flow_of(topology)
    if flow is not None:
        return {**places, "steps": [str(step) for step in flow.steps], "aggregation": str(flow.aggregate)}
    steps = [str(node) for node in topology.nodes() if not isinstance(node, Source | Sink)]
    return {**places, "steps": steps, "aggregation": None}


_SIDES = ("expected", "published", "complete")
