"""Whether the rows that audits and backfills go on from are those that certificates vouch for, by one digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import polars as pl
from deltalake import DeltaTable

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import CORRECTIONS, PARTIALS, PUBLISHED, AuditStore, Run, Seed
from recount.audit.cut.audited_ledger import LEDGER
from recount.audit.findings.finding_register import certified
from recount.audit.integrity.table_checksums import KeptRows, LineageChecksums
from recount.certificate.finding import Difference
from recount.declare.columns import AUDIT
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.batch_proofs import removable
from recount.tables.places import Released, Tables

_OF_AGGREGATIONS = (PARTIALS, PUBLISHED)


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Rows that the audits of ``stream`` have left for those to come; ``erased`` keys are removed from them."""

    settings: Settings
    stream: str
    erased: ErasedKeys

    @classmethod
    def of(cls, settings: Settings, stream: str) -> Self:
        """Read it with the keys that are erased now."""
        return cls(settings=settings, stream=stream, erased=ErasedKeys.of(settings, stream))

    def differences(self, seed: Run | None) -> list[Difference]:
        """The tables in which somebody has written to the rows that an audit which begins at ``seed`` goes on from."""
        return [
            Difference(
                kind=LEDGER,
                place=f"table audits/{self.stream}/{table}",
                verdict="altered",
                expected=f"the rows that the audit {part.audit} and those before it left",
                actual="other rows",
                cause="somebody wrote to the table, and results of late records follow from it: see who can, and audit "
                "--from-the-beginning; where the log is not there any more, restore the table and accept this",
                evidence=(f"audit {part.audit}",),
            )
            for part, rows in (self._sections(seed) if seed else ())
            for table in part.altered(rows)
        ]

    def require_unaltered(self, audit: str) -> None:
        """Raise ``Terminal`` where somebody has written to what the complete ``audit`` has left."""
        found = self.differences(self._store.seed_of(audit).run)
        if found:
            raise Terminal(
                f"what the audits of {self.stream} go on from is not what they left",
                given="; ".join(f"other rows in {one.place}, {', '.join(one.evidence)}" for one in found),
                expected="the rows that their certificates vouch for",
                remedy=f"see who can write to these tables, and run `recount audit --stream {self.stream} "
                "--from-the-beginning`; where the log is not there any more, restore the tables",
            )

    def built_on(
        self, seed: Seed, audit: str, released: Released | None, *, is_altered: bool
    ) -> tuple[LineageChecksums, ...]:
        """Return what the certificate of ``audit``, which began at ``seed``, says.

        Where ``is_altered`` it goes on saying what the rows before were, so that every night finds them altered.
        """
        before = self._told_by(seed.run) if is_altered and seed.run else ()
        audits = [audit] if before else [*seed.lineage, audit]
        rows = rows_of(self._store, audits, _OF_AGGREGATIONS)
        return (*before, LineageChecksums.of(audit, rows, KeptRows.of("window", released)))

    def _told_by(self, run: Run) -> tuple[LineageChecksums, ...]:
        """Return what the certificate of ``run`` says; behind an erasure what its row says, signed by the erasure."""
        newest = self.erased.newest
        told = certified(self.settings, self.stream, f"{run.audit}.json")
        if told is None or (newest is not None and newest.audit == run.audit):
            return run.built_on
        # certificates of earlier releases say nothing
        return LineageChecksums.of_documents(told.get("built_on") or ())

    def _sections(self, run: Run) -> Iterator[tuple[LineageChecksums, Mapping[str, pl.LazyFrame]]]:
        """Yield what is said of the lineage of ``run``, each with its rows; nothing where some may be removed."""
        gone = removable(self.settings.data, self.settings.reports, self.stream)
        begin = 0
        for part in self._told_by(run):
            end = run.lineage.index(part.audit) + 1 if part.audit in run.lineage else begin
            is_there = gone is None or (part.kept is not None and part.kept.since_ms >= gone.before_ms)
            if is_there or CORRECTIONS in part.tables:
                yield part, rows_of(self._store, run.lineage[begin:end], part.tables)
            begin = end

    @property
    def _store(self) -> AuditStore:
        return AuditStore(None, Tables(self.settings.data), self.stream)


def corrections_kept(store: AuditStore, audit: str) -> LineageChecksums:
    """Return what the certificate of ``audit``, of any topology, says of rows that a backfill would publish."""
    return LineageChecksums.of(audit, rows_of(store, [audit], (CORRECTIONS,)), None)


def rows_of(store: AuditStore, audits: Sequence[str], tables: Iterable[str]) -> dict[str, pl.LazyFrame]:
    """Return by table the rows that ``audits`` have left for others to go on from; of corrections, the last audit's."""
    return {table: store.rows(table, audits[-1:] if table == CORRECTIONS else audits) for table in tables}


def seed_sha256(tables: Tables, stream: str, lineage: Sequence[str]) -> str:
    """The SHA-256 of these rows of the audits ``lineage``, whatever their order and files.

    A row is hashed as its values in text, and what is hashed in the end are the sorted hashes of rows. In memory are
    the rows of one audit, and 32 bytes for each of the others.
    """
    whole = hashlib.sha256()
    for name in (PARTIALS, PUBLISHED):
        path = tables.audit(stream, name)
        if not DeltaTable.is_deltatable(path):
            continue
        columns = sorted(pl.scan_delta(path).collect_schema().names())
        digests: list[bytes] = []
        for audit in lineage:
            rows = pl.scan_delta(path).filter(pl.col(AUDIT) == audit)
            texts = rows.select(pl.struct(columns).struct.json_encode()).collect().to_series()
            digests += (hashlib.sha256(text.encode()).digest() for text in texts)
        whole.update(f"{name} {','.join(columns)} {len(digests)}\n".encode())
        for digest in sorted(digests):
            whole.update(digest)
    return whole.hexdigest()


def written_since(table: str, seed: Seed) -> Difference:
    """The difference where ``table`` has other rows than the audit at ``seed`` judged, and the log is not there."""
    assert seed.run is not None
    return Difference(
        kind=LEDGER,
        place=f"table outputs/{table}",
        verdict="altered",
        expected=f"the rows that the audit {seed.run.audit} judged",
        actual="other rows",
        cause="somebody wrote to the table; which rows, an audit --from-the-beginning would say, if the log were there",
        evidence=(f"batch {seed.run.generation}/{seed.run.batch}",),
    )
