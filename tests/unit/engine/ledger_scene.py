"""A state table and a ledger without a stream: batches are their proofs, and time passes when a test says so."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from tests.batch_proofs import a_proof

from recount.declare.columns import BATCH
from recount.engine.commit.delta_table import AppendOnlyTable, LedgerTable
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof, PartitionProof
from recount.tables.places import Tables

ROWS = pl.DataFrame({"n": [1, 2]})
STREAM = "counts"


def proof_of(batch: int, generation: int = 0) -> BatchProof:
    """A batch of ten records."""
    part = PartitionProof(topic="clicks", partition=0, start=10 * batch, end=10 * batch + 10, records=10, counted=10)
    checkpoint = f"checkpoint {generation}"
    at_ms = 1_000 * batch
    return a_proof(
        batch,
        part,
        stream=STREAM,
        generation=generation,
        checkpoint_id=checkpoint,
        batch_timestamp_ms=at_ms,
        frontier_ms=at_ms,
    )


class LedgerScene:
    """The tables below ``root``; another scene there is another process."""

    def __init__(self, root: Path, *, most_at_once: int = 5_000) -> None:
        places = Tables(str(root))
        self.state = AppendOnlyTable(path=places.state(STREAM), schema=dict(ROWS.schema), carries_proofs=True)
        self.ledger = LedgerTable(places.ledger(STREAM), self.state, most_at_once=most_at_once)
        self.proofs = Proofs(state=self.state.path, moved_to=self.ledger.table.path)
        self.state.create()
        self.ledger.table.create()

    def commit(self, *batches: int, generation: int = 0) -> None:
        """Append so many batches with their proofs."""
        for batch in batches:
            proof = proof_of(batch, generation)
            self.state.append(ROWS, writer=proof.checkpoint_id, version=batch, metadata=proof.to_json())

    def pass_hours(self, hours: float = 2) -> None:
        """Let all that is in the log now be as old as that."""
        then_s = time.time() - hours * 3_600
        for file in self._log.iterdir():
            os.utime(file, (then_s, then_s))

    @property
    def found(self) -> list[int]:
        """The batches in the ledger, newest first."""
        return [entry.proof.batch for entry in self.proofs.newest_first()]

    @property
    def commits(self) -> list[int]:
        """The versions in the log of the state table."""
        return sorted(int(file.stem) for file in self._log.glob("*.json") if file.stem.isdecimal())

    @property
    def moved(self) -> list[int]:
        """The batches in the table ``ledger``, in order."""
        return self.ledger.table.read().collect()[BATCH].sort().to_list()

    @contextmanager
    def without_commit(self, version: int) -> Iterator[None]:
        """One has gone from the log of the state table, as nobody should do it; it comes back in the end."""
        file = self._log / f"{version:020}.json"
        file.rename(file.with_suffix(".gone"))
        yield
        file.with_suffix(".gone").rename(file)

    @property
    def _log(self) -> Path:
        return Path(self.state.path) / "_delta_log"
