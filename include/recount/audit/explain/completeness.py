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

from recount.audit.compare.fidelity import EXPIRED, JUDGED_GROUP
from recount.audit.compare.published import DELTA, KAFKA
from recount.audit.compare.results import COMPLETE, EXPECTED, KEY_TEXT, in_order, same_result, text_of
from recount.audit.cut.audited_ledger import Ledger
from recount.certificate.finding import MAX_LATE_NAMED, Difference, GraceMiss, PartitionAccount
from recount.declare.columns import BATCH, GENERATION, IS_LATE, JUDGED_KEY, RECORDS, RESULT_TIME
from recount.declare.limits import LEAST_COUNT, Health
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.output import deleted_at_once, kept_for_ms
from recount.declare.topology import Topology, Written
from recount.recompute.single_flow import Flow
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables
from recount.tables.signed_orders import AsideOrder

COMPLETENESS, CORRECTION = "completeness", "correction"
KEPT, REPAIRED, MISSED = "kept", "repaired", "missed"
_MOST_BATCHES = 20
_WRITTEN_MS = "__written_ms"


def with_completeness(lined_up: pl.DataFrame, flow: Flow) -> pl.DataFrame:
    """``lined_up`` (with verdicts) with ``completeness``: ``kept`` (grace lost nothing), ``missed``, ``repaired``.

    A backfill repairs a result when the newest revision is the complete one, in Delta and, unless it expired, on Kafka.
    One that was corrected must be that, also where grace lost nothing: readers see the correction.
    """
    corrected = pl.any_horizontal(pl.col(f"{place}_corrections") > 0 for place in (KAFKA, DELTA))
    unaffected = same_result(pl.col(EXPECTED), pl.col(COMPLETE), flow) & ~corrected
    kafka, delta = (same_result(pl.col(f"{place}_latest"), pl.col(COMPLETE), flow) for place in (KAFKA, DELTA))
    repaired = delta & (kafka | (pl.col(f"{KAFKA}_verdict") == EXPIRED))
    verdict = pl.when(unaffected).then(pl.lit(KEPT)).when(repaired).then(pl.lit(REPAIRED)).otherwise(pl.lit(MISSED))
    return lined_up.with_columns(verdict.alias(COMPLETENESS))


def grace_misses(
    judged: pl.DataFrame, partials: pl.DataFrame, late_ledger: pl.LazyFrame, flow: Flow
) -> list[GraceMiss]:
    """Every missed result of ``judged`` with the late records behind it.

    ``partials`` are all of those windows, ``late_ledger`` the stream's own list: the miss is explained when there are
    late records, and the ledger lists as many for the key and window as the recompute found.
    """
    missed = judged.filter(pl.col(COMPLETENESS) == MISSED)
    if missed.is_empty():
        return []
    group, place = JUDGED_GROUP, ["late_key", WINDOW_START, WINDOW_END]
    counted = (
        partials.rename({flow.key: JUDGED_KEY})
        .filter(IS_LATE)
        .group_by(group)
        .agg(pl.col(RECORDS).sum().alias("late_records"))
    )
    found = missed.join(counted, on=group, how="left", nulls_equal=True).with_columns(
        pl.col(JUDGED_KEY).cast(pl.String).alias("late_key")
    )
    record = pl.format("{}-{}@{} +{} ms", "topic", "partition", "offset", "margin_ms").alias("late")
    listed = (
        late_ledger.rename({"key": "late_key"})
        .join(found.select(place).lazy(), on=place, how="semi")
        .sort("topic", "partition", "offset", "margin_ms")
        .group_by(place, maintain_order=True)
        .agg(pl.len().alias("listed"), record.head(MAX_LATE_NAMED))
    )
    rows = found.join(listed.collect(), on=place, how="left").to_dicts()
    return [
        GraceMiss(
            key=row["late_key"],
            window_start=row[WINDOW_START],
            window_end=row[WINDOW_END],
            published=text_of(row[f"{KAFKA}_latest"]),
            complete=text_of(row[COMPLETE]),
            late_records=row["late_records"] or 0,
            late=tuple(row["late"] or ()),
            explained=(row["listed"] or 0) == (row["late_records"] or 0) > 0,
        )
        for row in in_order(rows, WINDOW_START, "late_key")
    ]


def unexplained(misses: Sequence[GraceMiss]) -> list[Difference]:
    """Grace misses that nothing explains."""
    return [
        Difference(
            kind=COMPLETENESS,
            place="late ledger",
            verdict="unexplained",
            key=miss.key,
            window_start=miss.window_start,
            window_end=miss.window_end,
            expected=miss.complete,
            actual=miss.published,
            cause="the late ledger does not list the records that are missing from the result"
            if miss.late_records
            else "a correction that no late record asked for",
            evidence=miss.late,
        )
        for miss in misses
        if not miss.explained
    ]


def correction_differences(judged: pl.DataFrame, flow: Flow) -> list[Difference]:
    """Corrections that are not there exactly once in both places."""
    kafka, delta = (pl.col(f"{place}_corrections") for place in (KAFKA, DELTA))
    same = same_result(pl.col(f"{KAFKA}_latest"), pl.col(f"{DELTA}_latest"), flow)
    verdict = (
        pl.when((kafka > 1) | (delta > 1))
        .then(pl.lit("duplicated"))
        .when((kafka > 0) & (delta == 0))
        .then(pl.lit("extra"))
        .when((kafka == 0) & (delta > 0))
        .then(pl.lit("lost"))
        .when(~same)
        .then(pl.lit("altered"))
    )
    told = pl.col(JUDGED_KEY).cast(pl.String).alias(KEY_TEXT)
    corrected = judged.filter((kafka > 0) | (delta > 0)).with_columns(verdict.alias(CORRECTION), told)
    rows = corrected.filter(pl.col(CORRECTION).is_not_null()).to_dicts()
    return [
        Difference(
            kind=CORRECTION,
            place=flow.sink.topic.name,
            verdict=row[CORRECTION],
            key=row[KEY_TEXT],
            window_start=row[WINDOW_START],
            window_end=row[WINDOW_END],
            expected=text_of(row[f"{DELTA}_latest"]),
            actual=text_of(row[f"{KAFKA}_latest"]),
            cause="a backfill's correction is not on Kafka exactly as in the corrections table",
        )
        for row in in_order(rows, WINDOW_START, JUDGED_KEY)
    ]


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
