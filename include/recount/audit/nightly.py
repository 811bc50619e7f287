"""The whole of an audit: judge, certify, and only then let the next audit begin where this one ended."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from recount.audit.auditor import Auditor
from recount.audit.certificate import issue
from recount.audit.findings import Findings, Interval, Source
from recount.audit.shape import flow_of
from recount.audit.store import Run
from recount.audit.topologies.auditor import TopologyAuditor
from recount.audit.verdict_tables import write_tables
from recount.core.settings import Settings
from recount.core.topology import Topology


@dataclass(frozen=True, kw_only=True)
class CertifiedAudit:
    """What was found, and the certificate that says so."""

    findings: Findings
    certificate: Path


def new_audit_id() -> str:
    """A name for an audit that sorts by the time it began."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def audited(
    session: SparkSession,
    settings: Settings,
    topology: Topology,
    *,
    audit: str | None = None,
    interval: Interval | None = None,
    source: Source = "kafka",
    from_the_beginning: bool = False,
) -> CertifiedAudit:
    """Audit ``topology`` and issue its certificate; a violation is a result, not an error.

    A single aggregation is audited from where its last audit ended, any other topology from the beginning of the log.
    """
    interval = interval or Interval()
    audit = audit or new_audit_id()
    kind = TopologyAuditor if flow_of(topology) is None else Auditor
    auditor = kind(session, settings, topology)
    auditor.store.require_new(audit)
    findings = auditor.audit(audit, interval, source=source, from_the_beginning=from_the_beginning)
    write_tables(findings, auditor.store, settings.reports)
    certificate = issue(findings, settings.reports)
    seed = findings.seed
    auditor.store.complete(
        Run(
            audit=findings.audit,
            finished_ms=time.time_ns() // 1_000_000,
            interval_start_ms=interval.start_ms,
            interval_end_ms=interval.end_ms,
            source=source,
            seed=seed.run.audit if seed.run else None,
            lineage=(*seed.lineage, findings.audit),
            generation=findings.cut.generation,
            batch=findings.cut.batch,
            frontier_ms=findings.frontier_ms,
            published_ends=findings.published_ends,
            outcome=findings.outcome,
            certificate=certificate.name,
            counts=findings.counts,
        )
    )
    return CertifiedAudit(findings=findings, certificate=certificate)
