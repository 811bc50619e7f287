"""Whether the rows that audits and backfills go on from are those that certificates vouch for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import polars as pl

from recount.audit.erased_keys import ErasedKeys
from recount.audit.ledger_rules import LEDGER
from recount.audit.lineage_checksums import LineageChecksums
from recount.audit.register import certified
from recount.audit.store import CORRECTIONS, PARTIALS, PUBLISHED, AuditStore, Run, Seed
from recount.audit.table_checksums import KeptRows
from recount.core.errors import Terminal
from recount.core.retention import Released
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.verdict import Difference
from recount.released import removable

_OF_AGGREGATIONS = (PARTIALS, PUBLISHED)


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """What the audits of ``stream``, from which ``erased`` keys are gone, have left for those to come."""

    settings: Settings
    stream: str
    erased: ErasedKeys

    @classmethod
    def of(cls, settings: Settings, stream: str) -> Self:
        """With the keys that are erased now."""
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
        """What the certificate of ``audit``, which began at ``seed``, says.

        Where the rows before ``is_altered`` it goes on saying what they were, so that every night finds them altered.
        """
        before = self._told_by(seed.run) if is_altered and seed.run else ()
        audits = [audit] if before else [*seed.lineage, audit]
        rows = rows_of(self._store, audits, _OF_AGGREGATIONS)
        return (*before, LineageChecksums.of(audit, rows, KeptRows.of("window", released)))

    def _told_by(self, run: Run) -> tuple[LineageChecksums, ...]:
        """What the certificate of ``run`` says; behind an erasure what its row says, which the erasure has signed."""
        newest = self.erased.newest
        told = certified(self.settings, self.stream, f"{run.audit}.json")
        if told is None or (newest is not None and newest.audit == run.audit):
            return run.built_on
        # certificates of earlier releases say nothing
        return LineageChecksums.of_documents(told.get("built_on") or ())

    def _sections(self, run: Run) -> Iterator[tuple[LineageChecksums, Mapping[str, pl.LazyFrame]]]:
        """What is said of the lineage of ``run``, each with its rows; nothing where some of them may be gone."""
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
    """What the certificate of ``audit``, of any topology, says of the rows that a backfill after it would publish."""
    return LineageChecksums.of(audit, rows_of(store, [audit], (CORRECTIONS,)), None)


def rows_of(store: AuditStore, audits: Sequence[str], tables: Iterable[str]) -> dict[str, pl.LazyFrame]:
    """By table the rows that ``audits`` have left for others to go on from; of corrections, those of the last audit."""
    return {table: store.rows(table, audits[-1:] if table == CORRECTIONS else audits) for table in tables}
