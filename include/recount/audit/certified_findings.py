"""What a certificate says of findings, those of earlier audits too, and of what it covers."""

from __future__ import annotations

from typing import Any

from recount.audit.findings import Findings
from recount.core.finding import difference_document, finding_id
from recount.core.finding_register import Standing


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
    """From which batch to which this audit judged, and which audit and certificate judged what lies before."""
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
