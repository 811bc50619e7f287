"""What an audit found, before it is certified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from recount.audit.causes import OUTPUT
from recount.audit.evidence import Evidence
from recount.audit.fidelity import EXPIRED, MATCH, PLACES
from recount.audit.in_force import InForce
from recount.audit.ledger import Ledger
from recount.audit.lineage_checksums import LineageChecksums
from recount.audit.series import WindowTotal
from recount.audit.shares import LookupShare
from recount.audit.store import Seed
from recount.audit.table_checksums import TableChecksums
from recount.core.aside_order import AsideOrder
from recount.core.erasure import Erasure
from recount.core.errors import Terminal
from recount.core.finding_register import Standing
from recount.core.ledger import BatchProof
from recount.core.retention import Released
from recount.core.topology import Topology
from recount.core.verdict import Difference, GraceMiss, Outcome, PartitionAccount

Source = Literal["auto", "kafka", "archive"]
"""Where the raw log is read: ``auto`` takes from Kafka what it still has, and from the archive what it has not."""


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
    known; until then only its own differences count. ``series`` are the totals of the aggregate ``charted``, of which a
    topology that is no single aggregation has none: that has, for the next audit, up to where each sink's topic was
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
    published_ends: Mapping[int, int]
    accounts: tuple[PartitionAccount, ...]
    counts: Mapping[str, int]
    differences: tuple[Difference, ...]
    misses: tuple[GraceMiss, ...]
    evidence: Evidence
    in_force: InForce | None = None
    charted: str | None = None
    series: tuple[WindowTotal, ...] = ()
    standing: Standing | None = None
    checksums: TableChecksums | None = None
    read_to: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    tables: Mapping[str, TableChecksums] = field(default_factory=dict)
    fingerprint: str | None = None
    snapshot_sha256: str | None = None
    beyond: tuple[str, ...] = ()
    beyond_found: int = 0
    released: Released | None = None
    built_on: tuple[LineageChecksums, ...] = ()
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
