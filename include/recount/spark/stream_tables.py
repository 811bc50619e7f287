"""The Delta tables of one stream: state, its batch ledger, late records, rejected records, outputs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import polars as pl

from recount.core.ledger import BatchProof
from recount.core.own_columns import BATCH, GENERATION
from recount.core.tables import Tables
from recount.spark.compaction import Compaction
from recount.spark.delta_table import DELTA_LOG_KEPT_MS, AppendOnlyTable
from recount.spark.history import History
from recount.spark.intake import REJECTED_SCHEMA
from recount.spark.ledger_table import LedgerTable
from recount.spark.stage import LATE_SCHEMA

Schema = Mapping[str, pl.DataType]
Order = tuple[int, int]
"""Generation and batch."""

_BATCH: Schema = {GENERATION: pl.Int32(), BATCH: pl.Int64()}
_REJECTED = {name: kind for name, kind in REJECTED_SCHEMA.items() if not name.startswith("record_")}


@dataclass(frozen=True, kw_only=True)
class BatchRows:
    """What one batch adds to the tables; ``emitted`` by table."""

    state: pl.DataFrame
    late: pl.DataFrame
    rejected: pl.DataFrame
    emitted: Mapping[str, pl.DataFrame]


class StreamTables:
    """The tables that the stream ``name`` writes below ``root``, and nobody else; ``outputs`` by table.

    Earlier versions can be read for ``delta_log_kept_ms``.
    """

    def __init__(
        self,
        name: str,
        root: str,
        *,
        state: Schema,
        outputs: Mapping[str, Schema],
        delta_log_kept_ms: int = DELTA_LOG_KEPT_MS,
    ) -> None:
        places = Tables(root)

        def table(path: str, schema: Schema, *, carries_proofs: bool = False) -> AppendOnlyTable:
            return AppendOnlyTable(
                path=path, schema={**schema, **_BATCH}, carries_proofs=carries_proofs, log_kept_ms=delta_log_kept_ms
            )

        self.state = table(places.state(name), state, carries_proofs=True)
        self.late = table(places.late(name), LATE_SCHEMA)
        self.rejected = table(places.rejected(name), _REJECTED)
        self.outputs = {output: table(places.output(output), schema) for output, schema in outputs.items()}
        self.ledger = LedgerTable(places.ledger(name), self.state)
        self.history = History(places.state(name), moved_to=places.ledger(name))
        others = [self.late, self.rejected, *self.outputs.values()]
        self.compaction = Compaction(others, self.state, self.ledger)
        self._all = [*others, self.state, self.ledger.table]

    def create(self) -> None:
        """Create the tables that do not exist."""
        for table in self._all:
            table.create()

    def append(self, rows: BatchRows, proof: BatchProof) -> None:
        """Append the batch to each table; a table that has it already is left alone.

        The state comes last, for its commit carries the proof: a batch that is in the ledger is in every table. It is
        made even when the batch adds no state.
        """
        writer = f"recount/{proof.stream}/{proof.checkpoint_id}"

        def append(table: AppendOnlyTable, frame: pl.DataFrame, metadata: str | None = None) -> None:
            numbered = frame.with_columns(
                pl.lit(proof.generation, pl.Int32).alias(GENERATION), pl.lit(proof.batch, pl.Int64).alias(BATCH)
            )
            table.append(numbered, writer=writer, version=proof.batch, metadata=metadata)

        others = [(self.late, rows.late), (self.rejected, rows.rejected)]
        others += [(self.outputs[name], frame) for name, frame in rows.emitted.items()]
        with ThreadPoolExecutor(max_workers=len(others)) as pool:
            done = [pool.submit(append, table, frame) for table, frame in others if not frame.is_empty()]
        for future in done:
            future.result()
        append(self.state, rows.state, proof.to_json())
        self.compaction.batch_appended(proof.batch)
