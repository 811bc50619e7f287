"""Which backfills have written to the tables of corrections of a stream, and whose of them count."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import polars as pl
from deltalake import DeltaTable

from recount.audit.completeness import CORRECTION
from recount.audit.fidelity import EXTRA
from recount.audit.ledger import Order
from recount.core.own_columns import BACKFILL, BACKFILL_NUMBER, BATCH, GENERATION
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.core.verdict import Difference

_ABOUT = [BACKFILL_NUMBER, BACKFILL, GENERATION, BATCH]


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The rows that the backfill ``name``, the one with ``number``, has in the corrections of ``table``.

    They say what is right after the batch ``order``.
    """

    table: str
    number: int | None
    name: str | None
    order: Order | None
    rows: int


def listed_backfills(tables: Tables, topology: Topology) -> list[Listed]:
    """By table and number, the backfills in all tables of corrections of ``topology``."""
    found = []
    for table in sorted(node.table for node in topology.written):
        path = tables.corrections(table)
        if DeltaTable.is_deltatable(path):
            rows = pl.scan_delta(path).group_by(_ABOUT).len().collect().sort(_ABOUT)
            found += [_listed(table, *row) for row in rows.iter_rows()]
    return found


def _listed(
    table: str, number: int | None, name: str | None, generation: int | None, batch: int | None, n: int
) -> Listed:
    order = None if generation is None or batch is None else (generation, batch)
    return Listed(table=table, number=number, name=name, order=order, rows=n)


def published_names(listed: Iterable[Listed], done: int) -> tuple[str, ...]:
    """The names of the backfills before the number ``done``, which Kafka has."""
    names = {one.name for one in listed if one.name is not None and one.number is not None and one.number < done}
    return tuple(sorted(names))


def strange_backfills(
    listed: Iterable[Listed], done: int, audits: Collection[str], batches: Collection[Order]
) -> list[Difference]:
    """A difference for each backfill that follows from none of the ``audits``, or names none of the ``batches``.

    Nobody will publish its rows, or no audit judges them. A backfill that was killed before it published has the
    number ``done`` or, with others before it, one of the next.
    """
    listed = list(listed)
    waiting = sorted({one.number for one in listed if one.number is not None and one.number >= done})
    expected = set(range(done, done + len(waiting)))
    return [
        Difference(
            kind=CORRECTION,
            place=f"table corrections/{one.table}",
            verdict=EXTRA,
            expected="corrections that an audit has found",
            actual=f"{one.rows} rows of backfill {one.name}, number {one.number}, after batch {one.order}",
            cause="no backfill has written these rows: somebody else wrote to the table",
            evidence=(f"backfill {one.name}",),
            origin=f"backfill {one.name}, number {one.number}",
        )
        for one in listed
        if not (_follows(one.name, audits) and one.order in batches and _has_turn(one.number, done, expected))
    ]


def audit_of(backfill: str) -> tuple[str, str]:
    """What the audit can be called that ``backfill`` was made for: the second one of an audit has a number behind."""
    return backfill, backfill.rpartition(".")[0]


def _follows(name: str | None, audits: Collection[str]) -> bool:
    return name is not None and any(audit in audits for audit in audit_of(name))


def _has_turn(number: int | None, done: int, expected: Collection[int]) -> bool:
    return number is not None and (0 <= number < done or number in expected)
