"""Results that were older than their topic's retention when the stream wrote them, which an audit warns of.

They are ``expired`` on Kafka, not ``lost``: the audit finds them in the stream's table. A reader of the topic does not.
"""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable

from recount.audit.ledger import Ledger
from recount.core.limits import LEAST_COUNT
from recount.core.own_columns import BATCH, GENERATION, RESULT_TIME
from recount.core.short_lived import deleted_at_once, kept_for_ms
from recount.core.tables import Tables
from recount.core.topology import Topology, Written

_WRITTEN_MS = "__written_ms"


def short_lived(tables: Tables, topology: Topology, ledger: Ledger) -> list[str]:
    """A sentence for each sink of ``topology`` that the batches of ``ledger`` gave such results."""
    written = pl.LazyFrame(
        [(one.generation, one.batch, one.batch_timestamp_ms) for one in ledger.proofs],
        schema={GENERATION: pl.Int32(), BATCH: pl.Int64(), _WRITTEN_MS: pl.Int64()},
        orient="row",
    )
    found = [] if ledger.stands else [_of_sink(tables, node, written) for node in topology.written]
    return [sentence for sentence in found if sentence is not None]


def _of_sink(tables: Tables, sink: Written, written: pl.LazyFrame) -> str | None:
    kept_ms, path = kept_for_ms(sink.topic), tables.output(sink.table)
    if kept_ms is None or not DeltaTable.is_deltatable(path):
        return None
    times = pl.scan_delta(path).select(GENERATION, BATCH, RESULT_TIME).join(written, on=[GENERATION, BATCH])
    is_old = pl.col(RESULT_TIME) < pl.col(_WRITTEN_MS) - kept_ms
    oldest = pl.col(RESULT_TIME).min()
    results, of, first_ms = times.select(is_old.sum().alias("old"), pl.len(), oldest).collect().row(0)
    return None if results < LEAST_COUNT else deleted_at_once(sink.topic, results, of, first_ms)
