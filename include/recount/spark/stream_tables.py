"""The Delta tables of one stream: state with the batch ledger, late records, rejected records, output."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import polars as pl

from recount.core.ledger import BatchProof
from recount.core.nodes import WINDOW_END
from recount.core.tables import Tables
from recount.spark.compaction import Compaction
from recount.spark.delta_table import AppendOnlyTable
from recount.spark.history import History
from recount.spark.intake import REJECTED_SCHEMA
from recount.spark.open_windows import NOT_EMITTED, REVISION, OpenWindows
from recount.spark.partials import Partials
from recount.spark.plan import AggregationPlan
from recount.spark.stage import LATE_SCHEMA

_BATCH: dict[str, pl.DataType] = {"generation": pl.Int32(), "batch": pl.Int64()}
_REJECTED = {name: kind for name, kind in REJECTED_SCHEMA.items() if not name.startswith("record_")}

Order = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class BatchRows:
    """What one batch adds to the tables."""

    partials: pl.DataFrame
    late: pl.DataFrame
    rejected: pl.DataFrame
    emitted: pl.DataFrame


class StreamTables:
    """The tables that the stream of ``plan`` writes below ``root``, and nobody else."""

    def __init__(self, plan: AggregationPlan, root: str) -> None:
        self._plan = plan
        self._partials = Partials.of(plan.aggregate)
        places, name = Tables(root), plan.topology.name

        def table(path: str, schema: dict[str, pl.DataType]) -> AppendOnlyTable:
            return AppendOnlyTable(path=path, schema={**schema, **_BATCH})

        self.state = table(places.state(name), self._partials.schema)
        self.late = table(places.late(name), LATE_SCHEMA)
        self.rejected = table(places.rejected(name), _REJECTED)
        self.output = table(places.output(plan.sink.table), {**self._partials.schema, REVISION: pl.Int32()})
        self.history = History(places.state(name))
        self._compaction = Compaction([self.state, self.late, self.rejected, self.output])

    def create(self) -> None:
        """Create the tables that do not exist."""
        for table in (self.state, self.late, self.rejected, self.output):
            table.create()

    def append(self, rows: BatchRows, proof: BatchProof) -> None:
        """Append the batch to each table, in parallel; a table that has it already is left alone.

        The state commit carries the proof, so it is made even when the batch adds no state.
        """
        writer = f"recount/{proof.stream}/{proof.checkpoint_id}"

        def append(table: AppendOnlyTable, frame: pl.DataFrame, metadata: str | None = None) -> None:
            numbered = frame.with_columns(
                pl.lit(proof.generation, pl.Int32).alias("generation"), pl.lit(proof.batch, pl.Int64).alias("batch")
            )
            table.append(numbered, writer=writer, version=proof.batch, metadata=metadata)

        others = [(self.late, rows.late), (self.rejected, rows.rejected), (self.output, rows.emitted)]
        with ThreadPoolExecutor(max_workers=len(others) + 1) as pool:
            done = [pool.submit(append, self.state, rows.partials, proof.to_json())]
            done += [pool.submit(append, table, frame) for table, frame in others if not frame.is_empty()]
        for future in done:
            future.result()
        self._compaction.batch_appended()

    def open_windows(self, before: Order, frontier_ms: int | None) -> OpenWindows:
        """The windows that were open before the batch ``before``, when the frontier was ``frontier_ms``."""
        bound_ms = None if frontier_ms is None else frontier_ms - self._plan.windows.grace_ms
        still_open = pl.lit(True) if bound_ms is None else pl.col(WINDOW_END) > bound_ms
        return OpenWindows(self._plan.aggregate, self._plan.windows.grace_ms, self._rows(before, still_open))

    def emitted_before(self, before: Order, wanted: pl.DataFrame) -> pl.DataFrame:
        """The rows of the keys and windows of ``wanted`` as they stood before the batch ``before``."""
        ends = wanted[WINDOW_END].unique()
        group = self._partials.group
        return self._rows(before, pl.col(WINDOW_END).is_in(ends.implode())).join(
            wanted.select(group), on=group, how="semi"
        )

    def _rows(self, before: Order, condition: pl.Expr) -> pl.DataFrame:
        """Merged partials, each with the last revision that was emitted."""
        wanted = condition & _earlier(before)
        merged = self._partials.merge(self.state.read().filter(wanted).select(list(self._partials.schema)).collect())
        group = self._partials.group
        revisions = self.output.read().filter(wanted).group_by(group).agg(pl.col(REVISION).max()).collect()
        return merged.join(revisions, on=group, how="left").with_columns(pl.col(REVISION).fill_null(NOT_EMITTED))


def _earlier(before: Order) -> pl.Expr:
    generation, batch = before
    same_generation = (pl.col("generation") == generation) & (pl.col("batch") < batch)
    return (pl.col("generation") < generation) | same_generation
