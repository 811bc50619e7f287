"""Completeness: what is published against the same computation with unlimited grace; late records explain the rest."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from recount.audit.copies import DELTA, KAFKA
from recount.audit.fidelity import EXPIRED, JUDGED_GROUP
from recount.audit.results import COMPLETE, EXPECTED, KEY_TEXT, in_order, same_result, text_of
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import IS_LATE, JUDGED_KEY, RECORDS
from recount.core.verdict import MAX_LATE_NAMED, Difference, GraceMiss
from recount.recompute.flow import Flow

COMPLETENESS, CORRECTION = "completeness", "correction"
KEPT, REPAIRED, MISSED = "kept", "repaired", "missed"


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
