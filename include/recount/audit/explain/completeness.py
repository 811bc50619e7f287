"""Completeness of what is published, against a computation with unlimited grace, and the warnings of an audit.

Late records explain what differs. An audit in which nothing differs warns of too many records lost, and of results that
Kafka deleted at once. Lost are dead-lettered and late records beyond the declared share. A result that was older than
its topic's retention when the stream wrote it is ``expired`` on Kafka, not ``lost``: the stream's table has it, a
reader of the topic not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from deltalake import DeltaTable

from recount.audit.cut.audited_ledger import Ledger
from recount.certificate.finding import PartitionAccount
from recount.declare.columns import BATCH, GENERATION, RESULT_TIME
from recount.declare.limits import LEAST_COUNT, Health
from recount.declare.output import deleted_at_once, kept_for_ms
from recount.declare.topology import Topology, Written
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables
from recount.tables.signed_orders import AsideOrder

COMPLETENESS, CORRECTION = "completeness", "correction"
KEPT, REPAIRED, MISSED = "kept", "repaired", "missed"
_MOST_BATCHES = 20
_WRITTEN_MS = "__written_ms"


def warnings_of(limits: Health, parts: Sequence[PartitionAccount], proofs: Sequence[BatchProof]) -> list[str]:
    """The shares beyond ``limits``: of all that was judged, by the audit's own account, then of single batches.

    The first batches only: of so many more, the last sentence says how many.
    """
    dead_letters, late = sum(part.dead_lettered for part in parts), sum(part.late for part in parts)
    found = limits.excesses(sum(part.records for part in parts), dead_letters, late)
    of_batches = [
        sentence
        for proof in proofs
        for sentence in limits.excesses_of_batch(f"batch {proof.generation}/{proof.batch}", *_counts(proof))
    ]
    more = len(of_batches) - _MOST_BATCHES
    return [*found, *of_batches[:_MOST_BATCHES], *([f"{more} more of single batches"] if more > 0 else [])]


@dataclass(frozen=True, kw_only=True)
class LookupShare:
    """Share of the ``records`` that looked up a row of a table: ``misses`` found none, for a ``cause`` if known."""

    lookup: str
    records: int
    misses: int
    cause: str | None = None


def warnings_of_lookups(limits: Health, lookups: Sequence[LookupShare]) -> list[str]:
    """The lookups in which more records than ``limits`` allow find no row."""
    return [text for one in lookups for text in limits.excess_of_lookup(one.lookup, one.records, one.misses, one.cause)]


def unsigned_orders(orders: Sequence[AsideOrder], ledger: Ledger) -> list[str]:
    """The records that batches of ``ledger`` have set aside by ``orders`` that nobody has signed."""
    return [
        f"{one.place} was set aside by {one.by}: {one.because}; nobody has signed the order"
        for one in orders
        if one.signature is None and _is_in(one, ledger.ranges.get(one.topic, {}).get(one.partition, (0, 0)))
    ]


def _is_in(order: AsideOrder, span: tuple[int, int]) -> bool:
    return span[0] <= order.offset < span[1]


def _counts(proof: BatchProof) -> tuple[int, int, int]:
    parts = proof.partitions
    return sum(p.records for p in parts), sum(p.dead_lettered for p in parts), sum(p.late for p in parts)


def short_lived(tables: Tables, topology: Topology, ledger: Ledger) -> list[str]:
    """A sentence for each sink of ``topology`` whose results of the batches of ``ledger`` Kafka deleted at once."""
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
