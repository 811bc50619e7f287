"""The log of a stream's state table without the commits that hold an erased key, and no proof lost by it."""

from __future__ import annotations

from deltalake import DeltaTable

from recount.audit.purging import purge
from recount.core.errors import Terminal
from recount.core.tables import Tables
from recount.spark.delta_table import AppendOnlyTable
from recount.spark.ledger_table import LedgerTable


def purge_state(tables: Tables, stream: str) -> None:
    """Purge the state table of ``stream``, whose proofs are moved to the table ``ledger`` before its commits go."""
    path = tables.state(stream)
    if not DeltaTable.is_deltatable(path):
        return
    ledger = LedgerTable(tables.ledger(stream), AppendOnlyTable(path=path, schema={}, carries_proofs=True))
    ledger.table.create()

    def move(version: int) -> None:
        moved = ledger.move()
        if moved < version:
            raise Terminal(
                "the proofs of the newest batches are not in the ledger",
                given=f"moved up to version {moved}",
                expected=f"version {version}",
                remedy="run the erasure again",
            )

    purge(path, move)
