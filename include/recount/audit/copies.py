"""Every copy of every result that can be found: records on the sink's topic, rows of its Delta tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as F

from recount.audit.ledger import Order
from recount.codec.decoder import arrow_type
from recount.core.own_columns import BACKFILL as BACKFILL_ID
from recount.core.own_columns import BATCH, EVIDENCE, GENERATION, ORIGIN, PLACE, RESULT_TIME, REVISION
from recount.core.tables import Tables
from recount.recompute.flow import Flow

KAFKA, DELTA, LATER = "kafka", "delta", "later"
STREAM, BACKFILL = "stream", "backfill"
NO_REVISION = -1


def copy_schema(flow: Flow) -> pa.Schema:
    """The columns of a copy: those of a result, where it is, who wrote it, as which revision."""
    told = {
        RESULT_TIME: pa.int64(),
        PLACE: pa.string(),
        ORIGIN: pa.string(),
        REVISION: pa.int32(),
        EVIDENCE: pa.string(),
    }
    return pa.schema([*((name, arrow_type(kind)) for name, kind in flow.aggregate.fields.items()), *told.items()])


def copies_in_output(tables: Tables, flow: Flow, cut: Order) -> pl.LazyFrame:
    """The rows of the sink's Delta table; those of batches after ``cut`` have the place ``LATER``."""
    told: Mapping[str, pl.Expr] = {
        PLACE: pl.when(written_after(cut)).then(pl.lit(LATER)).otherwise(pl.lit(DELTA)),
        ORIGIN: pl.lit(STREAM),
        REVISION: pl.col(REVISION).fill_null(NO_REVISION),
        EVIDENCE: pl.format(f"outputs/{flow.sink.table} batch {{}}/{{}}", _told(GENERATION), _told(BATCH)),
    }
    return as_copies(pl.scan_delta(tables.output(flow.sink.table)).with_columns(**told), flow)


def copies_in_corrections(tables: Tables, flow: Flow, backfills: Sequence[str] | None = None) -> pl.LazyFrame:
    """The rows that ``backfills`` (None: all) wrote for the sink."""
    path = tables.corrections(flow.sink.table)
    if not DeltaTable.is_deltatable(path):
        return pl.DataFrame(copy_schema(flow).empty_table()).lazy()
    told: Mapping[str, pl.Expr] = {
        PLACE: pl.lit(DELTA),
        ORIGIN: pl.lit(BACKFILL),
        EVIDENCE: pl.format(f"corrections/{flow.sink.table} {{}}", _told(BACKFILL_ID)),
    }
    rows = pl.scan_delta(path)
    known = rows if backfills is None else rows.filter(pl.col(BACKFILL_ID).is_in(list(backfills)))
    return as_copies(known.with_columns(**told), flow)


def _told(name: str) -> pl.Expr:
    """A column as text, also where somebody wrote a row without it."""
    return pl.col(name).cast(pl.String).fill_null("?")


def written_after(order: Order) -> pl.Expr:
    """Whether a row was written by a batch after ``order``."""
    generation, batch = order
    same = (pl.col(GENERATION) == generation) & (pl.col(BATCH) > batch)
    return (pl.col(GENERATION) > generation) | same


def is_after(order: Order) -> Column:
    """The same for Spark."""
    generation, batch = order
    same = (F.col(GENERATION) == generation) & (F.col(BATCH) > batch)
    return (F.col(GENERATION) > generation) | same


def as_copies(rows: pl.LazyFrame, flow: Flow) -> pl.LazyFrame:
    """``rows`` in the columns of a copy, in their order and types."""
    columns = pl.DataFrame(copy_schema(flow).empty_table()).schema
    return rows.select(pl.col(name).cast(kind) for name, kind in columns.items())
