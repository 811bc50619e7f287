"""The rows of a sink that its readers see as of a batch: the newest of each identity, with corrections, none deleted.

The rule is that of docs/audit.md, "Which row is newer": a correction takes the place of all rows that batches up to its
own had written, and what the stream writes in a later batch takes the place of the correction.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from recount.codec.decoder import arrow_type
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import (
    BACKFILL_NUMBER,
    BATCH,
    GENERATION,
    IS_NULL,
    ORIGIN,
    PUBLISHED_AT,
    RESULT_TIME,
    REVISION,
)
from recount.proofs import earlier
from recount.serve.asked_sink import AskedSink
from recount.serve.moment import Moment

OF_STREAM = -1
"""In place of the number of a backfill, in rows that the stream wrote."""
_AT, _CORRECTED_AT = "__at", "__corrected_at"
_WRITTEN = [GENERATION, BATCH, BACKFILL_NUMBER]


def seen_rows(
    outputs: DeltaTable, corrections: DeltaTable | None, sink: AskedSink, moment: Moment, wanted: pl.Expr | None = None
) -> pl.LazyFrame:
    """What readers see at ``moment`` of the rows that are ``wanted`` (None: all), which is asked of each row alone.

    ``outputs`` and ``corrections`` (None: no such table) are the tables of ``sink``. Columns: the fields,
    ``recount_timestamp_ms``, ``recount_revision``, ``recount_origin`` of rows of records, the batch and, of a
    correction, the number of its backfill, else ``OF_STREAM``.
    """
    generation, batch = moment.order
    parts = [_as_rows(outputs, sink, earlier((generation, batch + 1)), of_backfill=False)]
    if corrections is not None:
        by_then = pl.lit(value=True) if moment.at_ms is None else pl.col(PUBLISHED_AT) <= moment.at_ms
        parts.append(_as_rows(corrections, sink, by_then, of_backfill=True))
    written = pl.concat(parts, how="vertical")
    if wanted is not None:
        written = written.filter(wanted)
    if sink.identity.is_latest:
        seen = _latest(written, sink)
    else:
        seen = written if corrections is None else _since_corrected(written, sink)
    kept = seen.filter(~pl.col(IS_NULL)).drop(IS_NULL)
    return kept if sink.identity.has_origin else kept.drop(ORIGIN)


def _as_rows(table: DeltaTable, sink: AskedSink, by_then: pl.Expr, *, of_backfill: bool) -> pl.LazyFrame:
    """What is in ``table`` ``by_then``, in the columns of rows; a table lacks those that say nothing in it."""
    there = {field.name for field in table.schema().fields}
    is_single = sink.is_single  # there the origin in corrections says who wrote it, and nothing is withdrawn

    def known(name: str, kind: pl.DataType, otherwise: object = None, *, known: bool = True) -> pl.Expr:
        return (pl.col(name) if known and name in there else pl.lit(otherwise)).cast(kind).alias(name)

    types = pl.DataFrame(
        pa.schema([(name, arrow_type(kind)) for name, kind in sink.fields.items()]).empty_table()
    ).schema
    return (
        pl.scan_delta(table)
        .filter(by_then)
        .select(
            *(pl.col(name).cast(kind) for name, kind in types.items()),
            known(RESULT_TIME, pl.Int64()),
            known(REVISION, pl.Int32()),
            known(IS_NULL, pl.Boolean(), otherwise=False, known=not is_single).fill_null(value=False),
            known(ORIGIN, pl.String(), known=not is_single),
            known(GENERATION, pl.Int32()),
            known(BATCH, pl.Int64()),
            known(BACKFILL_NUMBER, pl.Int64(), otherwise=OF_STREAM, known=of_backfill),
        )
    )


def _latest(written: pl.LazyFrame, sink: AskedSink) -> pl.LazyFrame:
    """The newest row of each key and window. Corrections of a single aggregation are ordered by their revision."""
    bounds = [WINDOW_START, WINDOW_END] if sink.identity.has_bounds else []
    order = [REVISION, BACKFILL_NUMBER] if sink.is_single else [*_WRITTEN, REVISION]
    return written.sort(order).unique([sink.key, *bounds], keep="last", maintain_order=True)


def _since_corrected(written: pl.LazyFrame, sink: AskedSink) -> pl.LazyFrame:
    """Of each identity what came after its last correction, or the rows of the correction where nothing did."""
    identity = sink.identity
    by_time = pl.lit(None) if identity.has_bounds else pl.lit("at ") + pl.col(RESULT_TIME).cast(pl.String)
    origin = (pl.coalesce(ORIGIN, by_time) if identity.has_origin else by_time).cast(pl.String).alias("__origin")
    bounds = [WINDOW_START, WINDOW_END] if identity.has_bounds else []
    rows = written.sort(_WRITTEN).with_columns(origin, pl.struct(_WRITTEN).rle_id().alias(_AT))
    group = [sink.key, *bounds, "__origin"]
    corrected_at = pl.col(_AT).filter(pl.col(BACKFILL_NUMBER) > OF_STREAM).max().over(group)
    rows = rows.with_columns(corrected_at.alias(_CORRECTED_AT))
    goes_on = (pl.col(_AT) > pl.col(_CORRECTED_AT)).any().over(group)
    is_seen = (
        pl.col(_CORRECTED_AT).is_null()
        | (pl.col(_AT) > pl.col(_CORRECTED_AT))
        | (~goes_on & (pl.col(_AT) == pl.col(_CORRECTED_AT)))
    )
    return rows.filter(is_seen).drop("__origin", _AT, _CORRECTED_AT)
