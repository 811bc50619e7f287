"""Rows that replace each other, in the order of the batches that they name: readers take the last one for the newest.

An audit takes the highest revision for the newest. Both are the same in what a stream writes. Who makes an earlier
revision name a later batch shows readers what had been replaced, and changes no value that an audit judges.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import polars as pl
from deltalake import DeltaTable

from recount.audit.copies import written_after
from recount.audit.ledger import Order
from recount.audit.ledger_rules import LEDGER
from recount.audit.table_checksums import ALL_FILES
from recount.audit.topologies.identity import Identity
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import BATCH, GENERATION, REVISION
from recount.core.tables import Tables
from recount.core.verdict import Difference

ROWS_AT_ONCE = 1_000_000


def reordered_rows(
    tables: Tables,
    identities: Iterable[Identity],
    seed: Order | None,
    cut: Order,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> list[Difference]:
    """A difference for each sink of ``identities`` with rows of a revision that an earlier batch has gone beyond.

    Rows of batches after ``seed`` (None: all) up to ``cut`` count: those before have been looked at, and one of them
    that comes to name a later batch is a revision from before the seed, which the verdicts find.
    """
    found = {one.written.table: _first_of(tables, one, seed, cut, rows_at_once) for one in identities if one.is_latest}
    return [
        Difference(
            kind=LEDGER,
            place=f"table outputs/{table}",
            verdict="altered",
            expected="revisions in the order of the batches that wrote them",
            actual=f"{number} rows of an earlier revision in a later batch",
            cause="readers take the row of the last batch for the newest: somebody has changed which batch a row names",
            evidence=(f"batch {generation}/{batch}",),
        )
        for table, (number, generation, batch) in found.items()
        if number
    ]


def _first_of(
    tables: Tables, identity: Identity, seed: Order | None, cut: Order, rows_at_once: int
) -> tuple[int, int | None, int | None]:
    """How many rows there are, and the first of the batches that they name."""
    path = tables.output(identity.written.table)
    if not DeltaTable.is_deltatable(path):
        return 0, None, None
    rows = pl.scan_delta(path).filter(~written_after(cut))
    if seed is not None:
        rows = rows.filter(written_after(seed))
    bounds = [WINDOW_START, WINDOW_END] if identity.has_bounds else []
    group = [identity.written.key, *bounds]
    order = [GENERATION, BATCH, REVISION]
    parts = max(1, ceil(rows.select(pl.len()).collect().item() / rows_at_once))
    late = []
    for part in range(parts):
        here = pl.col(identity.written.key).cast(pl.String).hash() % parts == part if parts > 1 else pl.lit(value=True)
        is_beyond = pl.col(REVISION) < pl.col(REVISION).cum_max().over(group)
        beyond = rows.filter(here).select(*group, *order).sort(order).filter(is_beyond).select(order)
        late.append(beyond.collect(optimizations=ALL_FILES))
    found = pl.concat(late).sort(order)
    return (found.height, *found.row(0)[:2]) if found.height else (0, None, None)
