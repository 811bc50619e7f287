"""``recount verify --again``: the audit of one certificate repeated from the raw log, and what comes out otherwise."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from recount.audit.certificate.assembly import document_of
from recount.audit.cut.audited_ledger import Repetition
from recount.audit.findings.finding_register import Interval, Source
from recount.audit.topology_auditor import TopologyAuditor
from recount.certificate.document import Certificate, verify_alone
from recount.declare.fingerprint import Declared
from recount.declare.topology import Topology
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import quantity

_COMPARED = ("results", "verdicts", "totals", "differences_found", "grace_misses_found")
_DIGESTS = {"log": ("topic", "partition"), "published": ("topic", "partition"), "tables": ("table",)}


class NotTheSame(Terminal):
    """The repeated audit came to something else: ``differing`` says what, in sentences."""

    def __init__(self, audit: str, differing: Sequence[str]) -> None:
        self.differing = tuple(differing)
        super().__init__(
            f"the audit {audit} does not come out again",
            given="; ".join(differing),
            expected="the digests and verdicts of the certificate",
            remedy="outputs or the log were changed after the audit, or the certificate is false: audit from the "
            "beginning, and compare with copies kept elsewhere",
        )


def again(
    session: SparkSession,
    settings: Settings,
    topology: Topology,
    certificate: Certificate,
    *,
    source: Source | None = None,
) -> list[str]:
    """Audit the same batches and offsets again; returns what was compared, as sentences.

    It reads the log from ``source`` (None: from where the audit read it) and leaves nothing in the audit's tables.
    Raises ``NotTheSame``, or ``Terminal`` where the certificate says too little or the declaration is another one.
    """
    verify_alone(certificate)
    _require_repeatable(certificate, topology)
    name = f"again-{secrets.token_hex(6)}"
    auditor = TopologyAuditor(session, settings, topology)
    start_ms, end_ms = certificate["interval_ms"]
    try:
        findings = auditor.audit(
            name,
            Interval(start_ms=start_ms, end_ms=end_ms),
            source=source or certificate["source"],
            repetition=Repetition.of(certificate),
        )
    finally:
        auditor.store.forget(name)
    found = document_of(findings)
    differing = [*_differing_digests(certificate["digests"], found["digests"]), *_differing(certificate, found)]
    if differing:
        raise NotTheSame(certificate["audit"], differing)
    return list(_compared(found))


def _require_repeatable(certificate: Certificate, topology: Topology) -> None:
    fingerprint = Declared.of(topology).fingerprint
    if certificate["declaration"]["fingerprint"] != fingerprint:
        raise Terminal(
            f"the declaration of {topology.name} is not the one that was audited",
            given=fingerprint,
            expected=certificate["declaration"]["fingerprint"],
            remedy=f"check out the code of the audit, commit {certificate['versions']['commit']}, and verify there; "
            "after a reset or an upgrade that brought another declaration into force no code can repeat it",
        )


def _differing_digests(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for section, names in _DIGESTS.items():
        was, now = ({tuple(one[name] for name in names): one for one in side[section]} for side in (before, after))
        for key in sorted(was.keys() | now.keys()):
            place = f"{section} {'-'.join(map(str, key))}"
            one, other = was.get(key), now.get(key)
            if one is None or other is None:
                yield f"{place}: {'only the certificate' if one else 'only the repeated audit'} has it"
            elif one != other:
                parts = [name for name in one if one[name] != other.get(name)]
                yield f"{place}: " + ", ".join(f"{name} was {one[name]}, is {other.get(name)}" for name in parts)


def _differing(before: Certificate, after: Mapping[str, Any]) -> Iterator[str]:
    for name in _COMPARED:
        was, now = before[name], after[name]
        if was == now:
            continue
        if isinstance(was, Mapping):
            parts = [part for part in sorted({*was, *now}) if was.get(part) != now.get(part)]
            yield f"{name}: " + ", ".join(f"{part} was {was.get(part)}, is {now.get(part)}" for part in parts)
        else:
            yield f"{name} was {was}, is {now}"


def _compared(found: Mapping[str, Any]) -> Iterator[str]:
    for one in found["digests"]["log"]:
        place = f"{one['topic']}-{one['partition']}@[{one['start']}, {one['end']})"
        yield f"{place}: the same {quantity(one['records'], 'record')}, sha256 {one['sha256']}"
    published = sum(one["records"] for one in found["digests"]["published"])
    tables = quantity(len(found["digests"]["tables"]), "table")
    yield f"{quantity(published, 'published record')} and the rows of {tables} are the same"
    yield f"the verdicts on {quantity(found['results'], 'result')} come out again"
