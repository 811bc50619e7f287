"""The grace misses that the audits of a stream found, and the grace that each would have taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from deltalake import DeltaTable

from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import AUDIT
from recount.core.tables import Tables
from recount.core.verdict import MAX_LATE_NAMED
from recount.grace.shortfalls import JUDGE, RECORD, SHORT_BY
from recount.released import MISSES, complete_audits

_ROW = ["sink", "key", WINDOW_START, WINDOW_END, "origin"]
"""By what a grace miss is known from audit to audit."""
_NUMBER, _LATE = "__miss", "late"
_PLACE = r"^(?<topic>.+)-(?<partition>\d+)@(?<offset>\d+) \+(?<margin_ms>\d+) ms$"
"""How a miss names a late record."""
_UNKNOWN = pl.Series(dtype=pl.Int64())


@dataclass(frozen=True, kw_only=True)
class AuditedMisses:
    """All grace misses of complete audits, each once, as the newest audit that names it says.

    ``short_by`` has by judge (its place) what the grace was short by, rising, for each miss that a longer grace of that
    operator alone would have saved. Of the others (``untold``) the tables do not say: they have more late records than
    an audit names, or such as have left the late ledger, or of several operators; or changes of tables made them.
    """

    found: int = 0
    audits: int = 0
    short_by: Mapping[int, pl.Series]

    @property
    def untold(self) -> int:
        return self.found - sum(len(one) for one in self.short_by.values())

    def of(self, place: int) -> pl.Series:
        """Those that the judge at ``place`` alone would have saved."""
        return self.short_by.get(place, _UNKNOWN)


def audited_misses(tables: Tables, stream: str, rows: pl.LazyFrame) -> AuditedMisses:
    """Those of ``stream``; ``rows`` are its late ledger, ``attributed``."""
    audits = {one["audit"]: number for number, one in enumerate(complete_audits(tables.root, stream))}
    path = tables.audit(stream, MISSES)
    if not audits or not DeltaTable.is_deltatable(path):
        return AuditedMisses(audits=len(audits), short_by={})
    misses = _each_once(pl.scan_delta(path), audits).collect()
    named = misses.lazy().explode(_LATE).with_columns(pl.col(_LATE).str.extract_groups(_PLACE)).unnest(_LATE)
    typed = named.with_columns(pl.col("partition").cast(pl.Int32), pl.col("offset", "margin_ms").cast(pl.Int64))
    each = typed.join(rows.select(*RECORD, "margin_ms", JUDGE, SHORT_BY), on=[*RECORD, "margin_ms"], how="left")
    is_told = (
        (pl.col("late_records").first() <= pl.col("named").first())
        & (pl.col("named").first() < MAX_LATE_NAMED)
        & pl.col(JUDGE).is_not_null().all()
        & (pl.col(JUDGE).n_unique() == 1)
    )
    told = each.group_by(_NUMBER).agg(is_told.alias("is_told"), pl.col(JUDGE).first(), pl.col(SHORT_BY).max())
    saved = told.filter("is_told").sort(SHORT_BY).collect()
    short_by = {int(place): part[SHORT_BY] for (place,), part in saved.partition_by(JUDGE, as_dict=True).items()}
    return AuditedMisses(found=misses.height, audits=len(audits), short_by=short_by)


def _each_once(rows: pl.LazyFrame, audits: Mapping[str, int]) -> pl.LazyFrame:
    """The newest sighting of each miss, numbered; tables of earlier releases have no sinks and origins."""
    there = rows.collect_schema().names()
    whole = rows.with_columns(pl.lit(None, pl.String).alias(name) for name in _ROW if name not in there)
    known = whole.filter(pl.col(AUDIT).is_in(list(audits)))
    newest_first = known.sort(pl.col(AUDIT).replace_strict(audits, return_dtype=pl.Int64), descending=True)
    each = newest_first.unique(_ROW, keep="first", maintain_order=True).with_row_index(_NUMBER)
    return each.select(_NUMBER, "late_records", _LATE, pl.col(_LATE).list.len().alias("named"))
