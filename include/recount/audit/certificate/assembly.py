"""Content of a certificate of an audit's findings, before it has a number."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import recount
from recount.audit.explain.completeness import unsigned_orders, warnings_of, warnings_of_lookups
from recount.audit.findings.finding_register import Findings
from recount.certificate.document import FATES
from recount.certificate.finding import Standing, difference_document, finding_id
from recount.declare.fingerprint import SEMANTICS_VERSION, Declared
from recount.declare.operators.event_time import records_of
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import Sink, Source
from recount.declare.topology import Topology
from recount.tables.ledger import warnings_of_seconds

MAX_LISTED = 1_000
_PACKAGE = Path(recount.__file__).parent


def document_of(findings: Findings) -> dict[str, Any]:
    """The document of ``findings``, which is still to be numbered, hashed and signed."""
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
        "warnings": [
            *warnings_of(findings.topology.health, findings.accounts, findings.ledger.proofs),
            *warnings_of_lookups(findings.topology.health, findings.lookups),
            *warnings_of_seconds(part for proof in findings.ledger.proofs for part in proof.partitions).values(),
            *findings.short_lived,
            *unsigned_orders(findings.set_aside, findings.ledger),
        ],
        "interval_ms": [findings.interval.start_ms, findings.interval.end_ms],
        "source": findings.source,
        "seed": findings.seed.run.audit if findings.seed.run else None,
        "cut": {
            "generation": cut.generation,
            "batch": cut.batch,
            "batch_timestamp_ms": cut.batch_timestamp_ms,
            "frontier_ms": findings.frontier_ms,
        },
        "batches": 0 if findings.ledger.stands else len(findings.ledger.proofs),
        "erasures": [one.to_document() for one in findings.erasures],
        "begins_after_erasure": findings.begins_after,
        "set_aside": [one.to_document() for one in findings.set_aside],
        "lookups": [asdict(one) for one in findings.lookups],
        "by_arrival": lookups_by_arrival(findings.topology),
        "declaration": {
            **_declaration(findings.topology),
            "fingerprint": Declared.of(findings.topology).fingerprint,
            **(findings.in_force.section(findings.ledger) if findings.in_force else {}),
        },
        "digests": findings.evidence.as_document(),
        "versions": code_versions() | {"semantics": SEMANTICS_VERSION},
        "partitions": parts,
        "totals": {name: sum(part[name] for part in parts) for name in ("records", *FATES)},
        "results": sum(verdicts["kafka"].values()),
        "verdicts": verdicts,
        "differences_found": sum(findings.found.values()),
        "differences": listed_differences(findings, MAX_LISTED),
        "findings": findings_section(findings, MAX_LISTED),
        "covers": covered(findings),
        "snapshot": findings.snapshot_sha256,
        "released": None if findings.released is None else asdict(findings.released),
        "built_on": [asdict(one) for one in findings.built_on],
        "grace_misses_found": len(findings.misses),
        "grace_misses": [asdict(miss) for miss in findings.misses[:MAX_LISTED]],
        "beyond_look_back_found": findings.beyond_found,
        "beyond_look_back": list(findings.beyond),
        "charted": findings.chart.charted if findings.chart else None,
        "series": [
            {"window_start": one.window_start, **{side: format(getattr(one, side).normalize(), "f") for side in _SIDES}}
            for one in (findings.chart.series if findings.chart else ())
        ],
    }


def _declaration(topology: Topology) -> dict[str, Any]:
    """Return what was audited, in words."""
    written = topology.written
    return {
        "source": ", ".join(source.topic.name for source in topology.sources),
        "sink": ", ".join(node.topic.name for node in written),
        "table": ", ".join(node.table for node in written),
        "steps": [str(node) for node in topology.nodes() if not isinstance(node, Source | Sink)],
    }


_SIDES = ("expected", "published", "complete")


def lookups_by_arrival(topology: Topology) -> list[str]:
    """Every lookup that is declared ``as_of="arrival"``, in words: fidelity takes what it found from the ledger."""
    return [
        f"{node}, of {', '.join(sorted(records_of(node.right)))}"
        for node in topology.nodes()
        if isinstance(node, StreamTableJoin) and node.as_of == "arrival"
    ]


def listed_differences(findings: Findings, at_most: int) -> list[dict[str, Any]]:
    """The differences that this very audit saw, each with the id of its finding."""
    stream = findings.topology.name
    return [{**difference_document(one), "finding": finding_id(stream, one)} for one in findings.differences[:at_most]]


def findings_section(findings: Findings, at_most: int) -> dict[str, Any]:
    """The open findings, the accepted ones, and those that this audit found repaired."""
    stands = findings.standing or Standing()
    groups = {"open": stands.open, "accepted": stands.accepted, "repaired": stands.repaired}
    section: dict[str, Any] = {"repaired_before": stands.repaired_before}
    for state, found in groups.items():
        section |= {f"{state}_found": len(found), state: [one.document() for one in found[:at_most]]}
    return section


def covered(findings: Findings) -> dict[str, Any]:
    """Return from which batch to which this audit judged, and which audit and certificate judged what is before."""
    run, first, before = findings.seed.run, findings.ledger.proofs[0], findings.before
    former = None
    if run and before:
        former = {
            "audit": run.audit,
            "certificate": run.certificate,
            "sha256": run.certificate_sha256 or None,
            "outcome": run.outcome,
            "batch": f"{before.generation}/{before.batch}",
            "batch_timestamp_ms": before.batch_timestamp_ms,
            "frontier_ms": run.frontier_ms,
        }
    cut = findings.cut
    return {
        "from": {"batch": f"{first.generation}/{first.batch}", "batch_timestamp_ms": first.batch_timestamp_ms},
        "to": {"batch": f"{cut.generation}/{cut.batch}", "batch_timestamp_ms": cut.batch_timestamp_ms},
        "judged_before": former,
    }


def code_versions() -> dict[str, Any]:
    """Return the versions that a certificate names; ``commit`` and ``lock_sha256`` are None outside a checkout."""
    lock = _PACKAGE.parents[1] / "requirements" / "main.lock"
    return {
        "recount": version("recount"),
        "sources_sha256": sources_sha256(_PACKAGE),
        **_commit(),
        "python": platform.python_version(),
        "installed_sha256": _hash("\n".join(sorted(_installed()))),
        "lock_sha256": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else None,
    }


def _installed() -> set[str]:
    """Names and versions, as the folders of their metadata tell them: to read each file would take half a second."""
    return {metadata.name for folder in sys.path for metadata in Path(folder).glob("*.dist-info")}


def sources_sha256(package: Path) -> str:
    """The hash of all Python files below ``package``, with their paths."""
    lines = [
        f"{file.relative_to(package).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in sorted(package.rglob("*.py"))
    ]
    return _hash("\n".join(lines))


def _commit() -> dict[str, Any]:
    """The checkout's commit, and whether the package was changed since; none where the package is not in its files."""
    try:
        _git("ls-files", "--error-unmatch", "__init__.py")
        return {"commit": _git("rev-parse", "HEAD"), "is_changed": bool(_git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "is_changed": None}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_PACKAGE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
