"""Checksums of a sink's tables and of what backfills go on from: they show a write to rows judged before.

The batches that an audit has judged write no more rows, nor does a backfill that is published. So an audit that goes on
from a cut may pass over earlier rows only while they are those that the audit before saw.

The rows that an audit has kept for a backfill have a checksum too: the backfill publishes them, so a certificate says
what they were.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import polars as pl
from deltalake import DeltaTable

from recount.audit.compare.published import written_after
from recount.audit.cut.audited_ledger import Order
from recount.declare.columns import BACKFILL_NUMBER, IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.tables.places import AGE_COLUMN, Ageing, Released, Tables

ALL_FILES = pl.QueryOptFlags(predicate_pushdown=False)
"""By which all rows are read, and no file or part of one is passed over for what its statistics say."""


@dataclass(frozen=True, kw_only=True)
class Checksum:
    """The sum of the hashes of rows, whatever their order and files, over the ``columns`` that there were.

    The hash is Polars' with a ``secret`` of one audit: who cannot read it cannot make other rows with the same sum.
    Another version of Polars may give another sum.
    """

    secret: int
    columns: Sequence[str]
    value: int

    @classmethod
    def of(cls, rows: pl.LazyFrame) -> Self:
        """Return the checksum of ``rows`` now."""
        secret, columns = secrets.randbits(63), rows.collect_schema().names()
        return cls(secret=secret, columns=columns, value=_summed(rows, secret, columns))

    def holds(self, rows: pl.LazyFrame) -> bool:
        """Whether ``rows`` are the same still; columns that are younger do not count, but one that withdraws rows."""
        schema = rows.collect_schema()
        is_there = set(self.columns) <= schema.keys()
        # Delta and Spark do not tell Id and id apart
        for name in schema.keys() - set(self.columns):
            if name.lower() == IS_NULL:
                marked = pl.col(name) if schema[name] == pl.Boolean() else pl.col(name).is_not_null()
                rows = rows.filter(~marked.fill_null(value=False))
        return is_there and _summed(rows, self.secret, self.columns) == self.value


@dataclass(frozen=True, kw_only=True)
class KeptRows:
    """The rows of an output table that the stream may not remove, ``since_ms``: those that are not older.

    Where they get old ``by`` another of the same ``key`` that replaces them, also the last one of each.
    """

    by: Ageing
    since_ms: int
    key: str = ""

    @classmethod
    def of(cls, by: Ageing | None, released: Released | None, key: str = "") -> Self | None:
        """Return the kept rows: those that are not ``released``; None: all."""
        if by is None or released is None:
            return None
        return cls(by=by, since_ms=released.before_ms, key=key)

    def among(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows of ``rows`` that are kept."""
        if self.by != "table":
            return rows.filter((pl.col(AGE_COLUMN[self.by]) >= self.since_ms).fill_null(value=True))
        is_last = pl.col(REVISION) == pl.col(REVISION).max().over(pl.col(self.key))
        return rows.filter(((pl.col(RESULT_TIME) >= self.since_ms) | is_last).fill_null(value=True))


@dataclass(frozen=True, kw_only=True)
class Unsettled:
    """The ``rows`` that an audit found wrong, by key as text, bounds and origin: the next one reads them again.

    A person who repairs one of them writes to what was judged, and may.
    """

    key: str
    has_bounds: bool
    has_origin: bool
    is_latest: bool
    rows: Sequence[Sequence[str | int | None]]

    def without(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """``rows`` without these."""
        nothing = pl.lit(None)
        time = pl.lit("at ") + pl.col(RESULT_TIME).cast(pl.String)
        by_time = nothing if self.is_latest or self.has_bounds else time
        by_origin = pl.col(ORIGIN) if self.has_origin else nothing
        told = {
            "key": pl.col(self.key).cast(pl.String),
            "start": pl.col(WINDOW_START) if self.has_bounds else nothing,
            "end": pl.col(WINDOW_END) if self.has_bounds else nothing,
            "origin": pl.coalesce(by_origin, by_time),
        }
        types = {"key": pl.String, "start": pl.Int64, "end": pl.Int64, "origin": pl.String}
        mine = pl.LazyFrame(
            [list(row) for row in self.rows], {f"__{name}": kind for name, kind in types.items()}, orient="row"
        )
        marked = rows.with_columns(column.cast(types[name]).alias(f"__{name}") for name, column in told.items())
        return marked.join(mine, on=list(mine.collect_schema()), how="anti", nulls_equal=True).drop(
            f"__{name}" for name in types
        )


@dataclass(frozen=True, kw_only=True)
class TableChecksums:
    """Checksums of ``outputs`` up to a cut, and of ``corrections`` (None: no such table) by the first ``backfills``.

    Only rows that are ``kept`` count (None: all), without those that are ``unsettled``. ``waiting`` counts rows of
    later backfills: one waits to be published from its append to its Kafka transaction.
    """

    outputs: Checksum
    backfills: int
    corrections: Checksum | None
    waiting: int
    kept: KeptRows | None = None
    unsettled: Unsettled | None = None

    @classmethod
    def of(
        cls,
        tables: Tables,
        table: str,
        cut: Order,
        backfills: int,
        kept: KeptRows | None = None,
        unsettled: Unsettled | None = None,
    ) -> Self:
        """Return the checksums of the rows now; ``backfills`` is how many were published before."""
        published, waiting = corrections_of(tables, table, backfills)
        return cls(
            outputs=Checksum.of(_outputs(tables, table, cut, kept, unsettled)),
            backfills=backfills,
            corrections=None if published is None else Checksum.of(published),
            waiting=waiting,
            kept=kept,
            unsettled=unsettled,
        )

    def hold(self, tables: Tables, table: str, cut: Order, backfills: int) -> bool:
        """Whether the rows that were there at ``cut`` are the same still, and no backfill has waited since."""
        _, waiting = corrections_of(tables, table, self.backfills)
        if self.waiting and waiting and backfills == self.backfills:
            return False
        return self.are_those_of(tables, table, cut)

    def are_those_of(self, tables: Tables, table: str, cut: Order) -> bool:
        """Whether the rows that were there at ``cut`` are the same still; those of waiting backfills do not count."""
        published, _ = corrections_of(tables, table, self.backfills)
        if self.corrections is None:
            is_same = published is None or published.select(pl.len()).collect().item() == 0
        else:
            is_same = published is not None and self.corrections.holds(published)
        return is_same and self.outputs.holds(_outputs(tables, table, cut, self.kept, self.unsettled))


def _outputs(
    tables: Tables, table: str, cut: Order, kept: KeptRows | None, unsettled: Unsettled | None
) -> pl.LazyFrame:
    rows = pl.scan_delta(tables.output(table)).filter(~written_after(cut))
    rows = rows if unsettled is None else unsettled.without(rows)
    return rows if kept is None else kept.among(rows)


def corrections_of(tables: Tables, table: str, backfills: int) -> tuple[pl.LazyFrame | None, int]:
    """The rows by the first ``backfills``, and the number of the others."""
    path = tables.corrections(table)
    if not DeltaTable.is_deltatable(path):
        return None, 0
    rows = pl.scan_delta(path)
    is_published = (pl.col(BACKFILL_NUMBER) < backfills).fill_null(value=False)
    return rows.filter(is_published), rows.filter(~is_published).select(pl.len()).collect().item()


def _summed(rows: pl.LazyFrame, secret: int, columns: Sequence[str]) -> int:
    summed = rows.select(pl.struct(columns).hash(secret).sum())
    # every file is read: the table's log may be false about which batches lie in one
    return int(summed.collect(engine="streaming", optimizations=ALL_FILES).item())


@dataclass(frozen=True, kw_only=True)
class LeftRows:
    """Checksums by table, of the rows that ``audit`` has left.

    Where ``polars`` is another version than the installed one, nothing can be said: it may hash otherwise.
    """

    audit: str
    tables: Mapping[str, Checksum]
    polars: str = field(default_factory=lambda: pl.__version__)

    def is_altered(self, table: str, rows: pl.LazyFrame) -> bool:
        """Whether ``rows``, which ``table`` has now, are others."""
        return self.polars == pl.__version__ and table in self.tables and not self.tables[table].holds(rows)
