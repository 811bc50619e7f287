"""Checksums of what the audits of a single aggregation go on from: partials, and copies that were seen on Kafka.

Rows of earlier nights become money: a backfill publishes what they come to, and no audit recomputes them from the log.
So a certificate says what they were, and the next audit asks whether they still are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import polars as pl

from recount.audit.table_checksums import Checksum, KeptRows


@dataclass(frozen=True, kw_only=True)
class LineageChecksums:
    """By table, of the rows that ``audit``, which took them, and audits before it had left.

    Only rows of windows that are ``kept`` count (None: all). Where ``polars`` is another version than the installed
    one, nothing can be said: it may hash otherwise.
    """

    audit: str
    tables: Mapping[str, Checksum]
    kept: KeptRows | None
    polars: str = field(default_factory=lambda: pl.__version__)

    @classmethod
    def of(cls, audit: str, tables: Mapping[str, pl.LazyFrame], kept: KeptRows | None) -> Self:
        """Those of the rows of ``tables`` now."""
        sums = {name: Checksum.of(_among(rows, kept)) for name, rows in tables.items()}
        return cls(audit=audit, tables=sums, kept=kept)

    @classmethod
    def of_documents(cls, documents: Iterable[Mapping[str, Any]]) -> tuple[Self, ...]:
        """Those that ``dataclasses.asdict`` made documents of."""
        return tuple(
            cls(
                **{
                    **one,
                    "tables": {name: Checksum(**told) for name, told in one["tables"].items()},
                    "kept": None if one["kept"] is None else KeptRows(**one["kept"]),
                }
            )
            for one in documents
        )

    def altered(self, tables: Mapping[str, pl.LazyFrame]) -> list[str]:
        """The tables whose rows are others now."""
        if self.polars != pl.__version__:
            return []
        return [name for name, told in self.tables.items() if not told.holds(_among(tables[name], self.kept))]


def _among(rows: pl.LazyFrame, kept: KeptRows | None) -> pl.LazyFrame:
    return rows if kept is None else kept.among(rows)
