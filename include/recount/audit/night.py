"""The whole of an audit: judge, certify, and only then let the next audit begin where this one ended.

Several audits share a Spark application: each stream is judged alone, or a line says why it was not judged.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from recount.audit.audit_session import FEW_OFFSETS, session_for
from recount.audit.carry.delta_frames import purge
from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import CORRECTIONS, RECONCILIATION, VERDICTS, Run
from recount.audit.certificate.assembly import document_of
from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.issuing import issue, require_issuable
from recount.audit.certificate.signing import signer_in, trusted_in
from recount.audit.cut.auditable import Auditable, AuditRequest
from recount.audit.cut.in_force import certified_runs, removed_by_now
from recount.audit.findings.finding_register import Findings, Interval, Source, read_register, standing_after
from recount.audit.integrity.strangers import damage_told
from recount.audit.topology_auditor import TopologyAuditor
from recount.certificate.document import Certificate
from recount.declare.columns import AUDIT
from recount.declare.operators.nodes import WINDOW_END
from recount.declare.topology import Topology
from recount.kafka.compacted import HeadPublisher, published_head
from recount.kafka.connection import Connection, refusals_told
from recount.runtime.errors import RecountError, Transient
from recount.runtime.log_lines import about
from recount.runtime.settings import Keeping, Settings
from recount.tables.places import Tables

_LOG = logging.getLogger(__name__)

_BUILT_ON = (VERDICTS, CORRECTIONS)
"""The tables with a row per result of which later audits and backfills read what their lineage has left.

Nobody reads the ``reconciliation`` of another audit. The other tables are small and stay.
"""
OF_EARLIER_RELEASES = ("partials", "published")
"""What audits of a single aggregation went on from; no erasure looks there any more."""
_FILES_KEPT_H = 24
"""For readers of an earlier version."""


@dataclass(frozen=True, kw_only=True)
class CertifiedAudit:
    """Findings of an audit, and the certificate that says so."""

    findings: Findings
    certificate: Path


class ErasedMeanwhile(Transient):
    """A key was erased while an audit was at work, which has still seen it."""


def _require_nothing_erased_since(settings: Settings, stream: str, judged: Findings) -> None:
    """Asked while no other certificate, and no erasure, can come between."""
    now = ErasedKeys.of(settings, stream)
    if now.unfinished is not None or now.done != judged.erasures:
        raise ErasedMeanwhile(
            f"a key was erased from {stream} while it was audited",
            given=judged.audit,
            expected="an audit that begins after the erasure",
            remedy="audit again",
        )


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
    source: Source = "auto",
    from_the_beginning: bool = False,
) -> CertifiedAudit:
    """Audit ``topology`` and issue its certificate; a violation is a result, not an error.

    It goes on from where the last audit ended, unless ``from_the_beginning``.
    """
    with damage_told(topology.name):
        return _audited(
            session, settings, topology, audit or new_audit_id(), interval or Interval(), source, from_the_beginning
        )


def _audited(
    session: SparkSession,
    settings: Settings,
    topology: Topology,
    audit: str,
    interval: Interval,
    source: Source,
    from_the_beginning: bool,
) -> CertifiedAudit:
    # what would keep the certificate from being issued is said before the work
    signer = signer_in(settings.keys)
    connection = Connection.of(settings)
    published_head(connection, topology.name)
    require_issuable(settings.reports, topology.name)
    auditor = TopologyAuditor(session, settings, topology)
    auditor.store.require_new(audit)
    tables = Tables(settings.data)
    known = read_register(settings, topology.name)
    with refusals_told():
        judged = auditor.audit(audit, interval, source=source, from_the_beginning=from_the_beginning, known=known)
    finished_ms = auditor.store.next_ms()

    def standing_now() -> Findings:
        """Another audit of the stream may have ended meanwhile, and what it saw is not forgotten either."""
        now = read_register(settings, topology.name)
        return replace(judged, standing=standing_after(known, now, tables, judged, auditor.store, finished_ms))

    certified = [standing_now()]

    def said() -> dict[str, Any]:
        _require_nothing_erased_since(settings, topology.name, judged)
        certified.append(standing_now())
        return document_of(certified[-1])

    try:
        certificate = issue(
            topology.name,
            audit,
            said,
            settings.reports,
            signer=signer,
            trusted=trusted_in(settings.keys),
            opened=lambda: HeadPublisher(connection, topology.name),
        )
    except ErasedMeanwhile:
        # what it wrote has the key
        auditor.store.forget(audit)
        auditor.store.purge()
        raise
    findings = certified[-1]
    seed = findings.seed
    auditor.store.complete(
        Run(
            audit=findings.audit,
            finished_ms=finished_ms,
            interval_start_ms=interval.start_ms,
            interval_end_ms=interval.end_ms,
            source=source,
            seed=seed.run.audit if seed.run else None,
            lineage=(*seed.lineage, findings.audit),
            generation=findings.cut.generation,
            batch=findings.cut.batch,
            frontier_ms=findings.frontier_ms,
            outcome=findings.outcome,
            certificate=certificate.name,
            counts=findings.counts,
            checkpoint_id=findings.cut.checkpoint_id,
            repaired=tuple(finding.id for finding in findings.standing.repaired) if findings.standing else (),
            certificate_sha256=str(load(certificate)["sha256"]),
            read_to=findings.read_to,
            tables=findings.tables,
            fingerprint=findings.fingerprint,
            released=findings.released,
            built_on=findings.built_on,
        )
    )
    trim_audits(tables, topology.name, Keeping.of(settings.keeping), certified_runs(settings, topology.name))
    return CertifiedAudit(findings=findings, certificate=certificate)


def trim_audits(tables: Tables, stream: str, keeping: Keeping, runs: Sequence[Run]) -> None:
    """Remove rows of old ``runs`` on which none builds, and of windows that are judged no more; then unused files.

    Raises nothing: the audit is complete, and the next one tries again.
    """
    try:
        old = _old(runs, keeping.milliseconds("verdicts"))
        unneeded = old - {audit for run in runs if run.audit not in old for audit in run.lineage}
        released = removed_by_now(runs)
        # of the newest all stays: its expectations are still to be compared with its verdicts
        gone = f"{WINDOW_END} < {released.before_ms} AND {AUDIT} <> '{runs[-1].audit}'" if released else None
        for name in _BUILT_ON:
            _trim(tables.audit(stream, name), unneeded, gone)
        _trim(tables.audit(stream, RECONCILIATION), old, None)
        for path in (tables.audit(stream, name) for name in OF_EARLIER_RELEASES):
            if DeltaTable.is_deltatable(path) and DeltaTable(path).partitions():
                DeltaTable(path).delete()
                purge(path)
    except Exception:
        _LOG.warning("removing old rows of the audits of %s failed", stream, exc_info=True)


def _old(runs: Sequence[Run], kept_ms: int | None) -> set[str]:
    """The audits that were older than ``kept_ms`` when the newest ended; None: none ever is."""
    if kept_ms is None:
        return set()
    return {run.audit for run in runs if runs[-1].finished_ms - run.finished_ms > kept_ms}


def _trim(path: str, unneeded: set[str], gone: str | None) -> None:
    if not DeltaTable.is_deltatable(path):
        return
    table = DeltaTable(path)
    there = {str(partition[AUDIT]) for partition in table.partitions()}
    if there & unneeded:
        names = ", ".join(f"'{audit}'" for audit in sorted(there & unneeded))
        table.delete(f"{AUDIT} IN ({names})")
    if gone and WINDOW_END in {field.name for field in table.schema().fields}:
        table.delete(gone)
    table.vacuum(retention_hours=_FILES_KEPT_H, enforce_retention_duration=False, dry_run=False)


_AT_A_TIME = 4
"""While some audits of few records plan or wait for the brokers, others compute. One of many takes all cores."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of the audit of ``stream``: its ``certificate``, or ``refusal``, the reason why there is none."""

    stream: str
    certificate: Path | None = None
    refusal: Exception | None = None

    @property
    def document(self) -> Certificate | None:
        """The certificate as it was issued."""
        return load(self.certificate) if self.certificate else None


def audited_together(
    settings: Settings,
    topologies: Sequence[Topology],
    request: AuditRequest,
    application: Callable[[int], SparkSession],
) -> Iterator[Outcome]:
    """The outcome of each audit, as soon as it is known.

    ``application`` starts Spark for audits that read so many offsets at most. It is called once, and only when a stream
    can be audited; its session is the caller's to stop.
    """
    found = Auditable.of(settings, topologies, request)
    for stream, refusal in found.refusals.items():
        yield Outcome(stream=stream, refusal=refusal)
    if not found.offsets:
        return
    most = max(found.offsets.values())
    spark = application(most)

    def outcome(topology: Topology) -> Outcome:
        session = session_for(spark, found.offsets[topology.name])
        with about(stream=topology.name, audit=request.audit):
            try:
                done = audited(
                    session,
                    settings,
                    topology,
                    audit=request.audit,
                    interval=request.interval,
                    source=request.source,
                    from_the_beginning=request.from_the_beginning,
                )
            except Exception as refusal:
                # whatever it is, the others are audited
                if not isinstance(refusal, RecountError):
                    _LOG.exception("the audit of %s failed", topology.name)
                return Outcome(stream=topology.name, refusal=refusal)
            return Outcome(stream=topology.name, certificate=done.certificate)

    # the longest first, so that no core is left idle in the end
    todo = [one for one in topologies if one.name in found.offsets]
    todo.sort(key=lambda topology: -found.offsets[topology.name])
    with ThreadPoolExecutor(_AT_A_TIME if most <= FEW_OFFSETS else 1) as threads:
        for audit in as_completed([threads.submit(outcome, topology) for topology in todo]):
            yield audit.result()
