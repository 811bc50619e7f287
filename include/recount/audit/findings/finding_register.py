"""Findings of an audit before it is certified, and the findings of a stream from all its complete audits."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from recount.audit.carry.store import VERDICTS, AuditStore, Seed
from recount.audit.certificate.certificate_files import sound
from recount.audit.certificate.signing import PublicKeys, trusted_in
from recount.audit.compare.fidelity import EXPIRED, MATCH, PLACES
from recount.audit.compare.published import DELTA, KAFKA
from recount.audit.compare.results import Chart
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.in_force import InForce
from recount.audit.explain.causes import OUTPUT
from recount.audit.explain.completeness import CORRECTION, LookupShare
from recount.audit.integrity.evidence import Evidence
from recount.audit.integrity.table_checksums import LeftRows, TableChecksums
from recount.certificate.document import Certificate, version_of
from recount.certificate.finding import (
    UNLISTED,
    Difference,
    Finding,
    GraceMiss,
    Outcome,
    PartitionAccount,
    Register,
    Sighting,
    Standing,
    difference_from,
    found_repaired,
    register,
    sightings,
    standing,
)
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import DeclarationLog, acceptances
from recount.tables.ledger import BatchProof
from recount.tables.places import Released, Tables
from recount.tables.signed_orders import AsideOrder, Erasure

Source = Literal["auto", "kafka", "archive"]
"""Where the raw log is read: ``auto`` takes from Kafka what it still has, and from the archive what it has not."""
_LOG = logging.getLogger(__name__)
_OUTPUT = "output"
_ROW = ("key", WINDOW_START, WINDOW_END, "origin")
ROW = ("sink", "key", WINDOW_START, WINDOW_END, "origin")
AcceptedRow = tuple[str, str | None, int | None, int | None, str | None]
"""A row as ``ROW`` names it, the sink by its topic."""


def source_named(name: str) -> Source:
    """The source ``name``; raises ``Terminal`` when there is none of that name."""
    sources: tuple[Source, ...] = get_args(Source)
    for source in sources:
        if source == name:
            return source
    raise Terminal("no such source", given=name, expected=" or ".join(sources), remedy="--source auto")


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The data interval of an audit, ms; its end decides the cut. ``end_ms`` None: the last batch there is."""

    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Findings:
    """``ledger`` holds the batches that were judged, ``counts`` the verdicts by ``<place> <verdict>``.

    ``before`` is the batch that they follow. ``standing`` says how the findings stand after this audit, once that is
    known; until then only its own differences count. For the next audit it has up to where each sink's topic was
    ``read_to``, the checksums of its ``tables``, and the SHA-256 and declaration's ``fingerprint`` of its snapshot.
    ``beyond`` are late records, as ``topic-partition@offset``, that lie before its look back: of ``beyond_found`` the
    first. ``erasures`` are those of the stream so far; ``begins_after`` is the one behind which an audit from the
    beginning cannot look, where there is one. ``set_aside`` are the orders by which records were set aside so far.
    ``lookups`` says how many records found no row, ``short_lived`` of which sinks Kafka deletes the results at once.
    ``released`` and ``built_on`` are those of the audit's ``Run``.
    """

    audit: str
    topology: Topology
    interval: Interval
    source: Source
    seed: Seed
    ledger: Ledger
    before: BatchProof | None = None
    frontier_ms: int | None
    accounts: tuple[PartitionAccount, ...]
    counts: Mapping[str, int]
    differences: tuple[Difference, ...]
    misses: tuple[GraceMiss, ...]
    evidence: Evidence
    in_force: InForce | None = None
    chart: Chart | None = None
    standing: Standing | None = None
    read_to: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    tables: Mapping[str, TableChecksums] = field(default_factory=dict)
    fingerprint: str | None = None
    snapshot_sha256: str | None = None
    beyond: tuple[str, ...] = ()
    beyond_found: int = 0
    released: Released | None = None
    built_on: tuple[LeftRows, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    set_aside: tuple[AsideOrder, ...] = ()
    lookups: tuple[LookupShare, ...] = ()
    short_lived: tuple[str, ...] = ()
    begins_after: str | None = None

    @property
    def cut(self) -> BatchProof:
        """The last batch that was judged."""
        return self.ledger.proofs[-1]

    @property
    def found(self) -> Mapping[str, int]:
        """How many differences there are of each kind; of outputs that is all, of which some may not be listed."""
        listed = Counter(difference.kind for difference in self.differences)
        wrong = sum(
            n
            for name, n in self.counts.items()
            if name.split(" ")[0] in PLACES and name.split(" ")[1] not in (MATCH, EXPIRED)
        )
        return {**listed, OUTPUT: wrong} if wrong else dict(listed)

    @property
    def outcome(self) -> Outcome:
        """Whether the stream is proved: no finding of this or an earlier audit is open."""
        if self.standing is None:
            return "violation" if self.differences else "match"
        return "violation" if self.standing.open else "match"


def read_register(settings: Settings, stream: str) -> Register:
    """All findings of ``stream``, as its last audit and the acceptances since left them.

    An audit that was killed after it had issued its certificate counts, though no other begins where it ended. Findings
    of the versions before a reset belong to these. What the newest certificate calls open is open, even if it was taken
    out of the tables.
    """
    tables = Tables(settings.data)
    store = AuditStore(tables, stream)
    differences, runs = store.all_differences(), store.runs()
    order = {run.audit: run.order for run in runs}
    seen = [
        sighting
        for run in runs
        for sighting in sightings(
            stream,
            differences.get(run.audit, []),
            audit=run.audit,
            at_ms=run.finished_ms,
            cut=run.order,
            repaired=run.repaired,
            since=order.get(run.seed) if run.seed else None,
        )
    ]
    audits = {run.audit for run in runs}
    certificates = certificates_in_force(settings, stream)
    for certificate in certificates:
        if certificate["audit"] not in audits:
            seen += _certified_only(certificate)
    accepted = acceptances(tables, stream)
    found = register(seen, accepted)
    newest = max(certificates, key=lambda one: int(one["sequence"]), default=None)
    return register(_removed(found, newest), accepted, before=found) if newest else found


def certificates_in_force(settings: Settings, stream: str) -> list[Certificate]:
    """The certificates of the present version of ``stream`` that hold and count."""
    version = DeclarationLog(settings.data, stream).version()
    files = sorted((Path(settings.reports) / "certificates" / stream).glob("*.json"))
    return [one for one in _certified(files, stream, trusted_in(settings.keys)) if version_of(one) == version]


def standing_after(
    known: Register, now: Register, tables: Tables, findings: Findings, store: AuditStore, at_ms: int
) -> Standing:
    """How the findings stand after the audit that made ``findings``.

    It judged again what was ``known`` when it began, and closes nothing else; ``now`` are all findings there are.
    """
    stream, cut = findings.topology.name, findings.cut.order
    judged = {name: one for name, one in now.items() if name in known}
    repaired = found_repaired(judged, stream, findings.differences, cut, _is_in_order(known, findings, store))
    mine = sightings(
        stream,
        findings.differences,
        audit=findings.audit,
        at_ms=at_ms,
        cut=cut,
        repaired=repaired,
        since=findings.seed.order,
    )
    return standing(register(mine, acceptances(tables, stream), before=now), findings.audit)


def certified(settings: Settings, stream: str, name: str) -> Certificate | None:
    """The certificate of ``stream`` in the file ``name``; None where there is none that holds."""
    path = Path(settings.reports) / "certificates" / stream / name
    return next(_certified([path], stream, trusted_in(settings.keys)), None) if path.exists() else None


def _certified(files: Iterable[Path], stream: str, trusted: PublicKeys) -> Iterator[Certificate]:
    """The certificates of ``stream`` that hold; where keys are trusted, those that one of them has signed.

    Others can write to the folder who cannot sign. What is left out ``recount verify --chain`` names.
    """
    for path in files:
        try:
            certificate = sound(path)
        except Terminal as error:
            _LOG.warning("%s does not hold: %s", path, error)
            continue
        fault = trusted.fault(certificate) if trusted.keys else None
        if fault or certificate["stream"] != stream:
            _LOG.warning("%s counts for nothing: %s", path, fault or f"it is of the stream {certificate['stream']}")
            continue
        yield certificate


def _certified_only(certificate: Mapping[str, Any]) -> Iterator[Sighting]:
    """Yield what the certificate of an audit that is not complete says of findings."""
    section, cut = certificate.get("findings", {}), certificate["cut"]
    for one in (*section.get("open", ()), *section.get("accepted", ()), *section.get("repaired", ())):
        is_repaired = one["state"] == "repaired"
        if one["repaired_audit" if is_repaired else "last_audit"] == certificate["audit"]:
            yield Sighting(
                finding=one["finding"],
                audit=certificate["audit"],
                at_ms=one["repaired_ms" if is_repaired else "last_ms"],
                cut=(cut["generation"], cut["batch"]),
                difference=None if is_repaired else difference_from(one),
            )


def _removed(found: Register, newest: Certificate) -> Iterator[Sighting]:
    """Yield what ``newest`` has open and the tables lack or call repaired: no audit after it can have repaired it."""
    cut = newest["cut"]
    for one in newest.get("findings", {}).get("open", ()):
        known = found.get(one["finding"])
        if known is None or known.state == "repaired":
            _LOG.warning("finding %s is open in %s, and missing in the audits' tables", one["finding"], newest["audit"])
            yield Sighting(
                finding=one["finding"],
                audit=one["last_audit"],
                at_ms=one["last_ms"],
                cut=(cut["generation"], cut["batch"]),
                difference=difference_from(one),
            )


def _is_in_order(known: Register, findings: Findings, store: AuditStore) -> Callable[[Finding], bool]:
    """Whether a finding's place was judged by this audit and nothing differs there.

    Rows are judged again by every audit; ranges of the log and the ledger by one that begins no later than the audit
    that saw the finding first, such as one from the beginning.
    """
    verdicts = _verdicts([one for one in known.values() if one.is_of_row], findings, store)
    places = places_of(findings.topology)
    unlisted = {one.kind for one in findings.differences if one.verdict == UNLISTED}

    def is_in_order(finding: Finding) -> bool:
        if not finding.is_of_row:
            begins = findings.seed.order
            is_within = begins is None or (finding.since is not None and begins <= finding.since)
            return is_within and finding.difference.kind not in unlisted
        if finding.difference.kind != _OUTPUT:
            return True
        if finding.id not in verdicts and not _would_be_judged(finding, findings):
            return False
        # a row that nobody knows any more is in order; one that has left by retention was never repaired
        return finding.difference.place in places and verdicts.get(finding.id, MATCH) == MATCH

    return is_in_order


def _would_be_judged(finding: Finding, findings: Findings) -> bool:
    """Whether the audit knew the row of ``finding``: a snapshot has those that its own audit found wrong."""
    seed = findings.seed.run
    return seed is None or finding.last_audit == seed.audit


def _verdicts(found: Sequence[Finding], findings: Findings, store: AuditStore) -> dict[str, str]:
    """The verdicts that this audit has for the rows of ``found``, by finding."""
    places = places_of(findings.topology)
    wanted = [
        {"finding": one.id, "place": place, "sink": sink, **{name: getattr(one.difference, name) for name in _ROW}}
        for one in found
        if one.difference.kind == _OUTPUT
        for place, sink in [places.get(one.difference.place, ("", ""))]
    ]
    if not wanted:
        return {}
    text, number = pl.String(), pl.Int64()
    schema = {"finding": text, "place": text, "sink": text, "key": text, WINDOW_START: number, WINDOW_END: number}
    rows = pl.DataFrame(wanted, schema={**schema, "origin": text}).lazy()
    judged = store.rows(VERDICTS, [findings.audit]).with_columns(
        pl.col(WINDOW_START, WINDOW_END).cast(number), pl.col("key", "origin").cast(text)
    )
    met = judged.join(rows, on=["sink", *_ROW], how="inner", nulls_equal=True)
    verdict = pl.when(pl.col("place") == KAFKA).then(f"{KAFKA}_verdict").otherwise(f"{DELTA}_verdict")
    told = met.select("finding", verdict.alias("verdict")).collect()
    return dict(told.iter_rows())


def places_of(topology: Topology) -> dict[str, tuple[str, str]]:
    """How differences name the places of each sink: which of the two places, and the sink's topic."""
    return {
        name: found
        for written in topology.written
        for name, found in (
            (f"topic {written.topic.name}", (KAFKA, written.topic.name)),
            (f"table outputs/{written.table}", (DELTA, written.topic.name)),
        )
    }


def accepted_rows(topology: Topology, accepted: Iterable[Finding], place: str) -> list[AcceptedRow]:
    """Return the rows of findings about outputs in ``place``, each once."""
    places = places_of(topology)
    found = [(places.get(one.difference.place), one) for one in accepted if one.difference.kind == OUTPUT]
    return sorted({_row(one, where[1]) for where, one in found if where is not None and where[0] == place}, key=str)


def accepted_corrections(accepted: Iterable[Finding]) -> list[AcceptedRow]:
    """Return the rows of findings about corrections of backfills."""
    return sorted({_row(one, one.difference.place) for one in accepted if one.difference.kind == CORRECTION}, key=str)


def _row(finding: Finding, sink: str) -> AcceptedRow:
    one = finding.difference
    return (sink, one.key, one.window_start, one.window_end, one.origin)
