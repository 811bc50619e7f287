"""The Delta tables of one stream: state with the batch ledger, late records, rejected records, output."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import polars as pl
from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.core.ledger import BatchProof
from recount.core.nodes import WINDOW_END
from recount.core.tables import Tables
from recount.spark.compaction import Compaction
from recount.spark.delta_table import AppendOnlyTable, to_polars
from recount.spark.history import History
from recount.spark.open_windows import NOT_EMITTED, REVISION, OpenWindows
from recount.spark.partials import Partials
from recount.spark.plan import AggregationPlan
from recount.spark.stage import LATE_SCHEMA, REJECTED_SCHEMA

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

    def __init__(self, session: SparkSession, plan: AggregationPlan, root: str) -> None:
        self._session = session
        self._plan = plan
        self._partials = Partials.of(plan.aggregate)
        places, name = Tables(root), plan.topology.name

        def table(path: str, schema: dict[str, pl.DataType]) -> AppendOnlyTable:
            return AppendOnlyTable(session=session, path=path, schema={**schema, **_BATCH})

        self.state = table(places.state(name), self._partials.schema)
        self.late = table(places.late(name), LATE_SCHEMA)
        self.rejected = table(places.rejected(name), _REJECTED)
        self.output = table(places.output(plan.sink.table), {**self._partials.schema, REVISION: pl.Int32()})
        self.history = History(session, places.state(name))
        self._compaction = Compaction(session, [self.state, self.late, self.rejected, self.output])

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
            target = inheritable_thread_target(self._session)(append)
            done = [pool.submit(target, self.state, rows.partials, proof.to_json())]
            done += [pool.submit(target, table, frame) for table, frame in others if not frame.is_empty()]
        for future in done:
            future.result()
        self._compaction.batch_appended()

    def open_windows(self, before: Order, frontier_ms: int | None) -> OpenWindows:
        """The windows that were open before the batch ``before``, when the frontier was ``frontier_ms``."""
        bound_ms = None if frontier_ms is None else frontier_ms - self._plan.windows.grace_ms
        still_open = F.lit(True) if bound_ms is None else F.col(WINDOW_END) > bound_ms
        return OpenWindows(self._plan.aggregate, self._plan.windows.grace_ms, self._rows(before, still_open))

    def emitted_before(self, before: Order, wanted: pl.DataFrame) -> pl.DataFrame:
        """The rows of the keys and windows of ``wanted`` as they stood before the batch ``before``."""
        ends = wanted[WINDOW_END].unique().to_list()
        group = self._partials.group
        return self._rows(before, F.col(WINDOW_END).isin(ends)).join(wanted.select(group), on=group, how="semi")

    def _rows(self, before: Order, condition: Column) -> pl.DataFrame:
        """Merged partials, each with the last revision that was emitted."""
        state = _earlier(self.state.read(), before).where(condition)
        merged = self._partials.merge(to_polars(state, self._partials.schema))
        group = self._partials.group
        output = _earlier(self.output.read(), before).where(condition).groupBy(*group)
        schema = {**{name: self._partials.schema[name] for name in group}, REVISION: pl.Int32()}
        revisions = to_polars(output.agg(F.max(REVISION).alias(REVISION)), schema)
        return merged.join(revisions, on=group, how="left").with_columns(pl.col(REVISION).fill_null(NOT_EMITTED))


def _earlier(frame: DataFrame, before: Order) -> DataFrame:
    generation, batch = before
    same_generation = (F.col("generation") == generation) & (F.col("batch") < batch)
    return frame.where((F.col("generation") < generation) | same_generation)
