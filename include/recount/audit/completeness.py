"""Completeness: what is published against the same computation with unlimited grace; late records explain the rest."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recount.audit.copies import DELTA, KAFKA
from recount.audit.fidelity import COMPLETE, EXPECTED, EXPIRED, same_result
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.verdict import Difference, GraceMiss
from recount.recompute.aggregating import group_of
from recount.recompute.columns import named
from recount.recompute.flow import Flow

COMPLETENESS, CORRECTION = "completeness", "correction"
KEPT, REPAIRED, MISSED = "kept", "repaired", "missed"
MAX_LATE_NAMED = 100


def with_completeness(lined_up: DataFrame, flow: Flow) -> DataFrame:
    """``lined_up`` (with verdicts) with ``completeness``: ``kept`` (grace lost nothing), ``missed``, ``repaired``.

    A backfill repairs a result when the newest revision is the complete one, in Delta and, unless it expired, on Kafka.
    """
    unaffected = same_result(F.col(EXPECTED), F.col(COMPLETE), flow)
    kafka, delta = (same_result(F.col(f"{place}_latest"), F.col(COMPLETE), flow) for place in (KAFKA, DELTA))
    repaired = delta & (kafka | (F.col(f"{KAFKA}_verdict") == EXPIRED))
    verdict = F.when(unaffected, KEPT).when(repaired, REPAIRED).otherwise(MISSED)
    return lined_up.withColumn(COMPLETENESS, verdict)


def grace_misses(judged: DataFrame, parts: DataFrame, late_ledger: DataFrame, flow: Flow) -> list[GraceMiss]:
    """Every missed result of ``judged`` with the late records behind it.

    ``parts`` are all partials of those windows, ``late_ledger`` the stream's own list: the miss is explained when the
    ledger lists as many records for the key and window as the recompute found late.
    """
    group = [named(name) for name in group_of(flow)]
    missed = judged.where(F.col(COMPLETENESS) == MISSED).select(*group, f"{KAFKA}_latest", COMPLETE)
    counted = parts.where("is_late").groupBy(*group).agg(F.sum("records").alias("late_records"))
    place = F.concat_ws(
        "", "topic", F.lit("-"), "partition", F.lit("@"), "offset", F.lit(" +"), "margin_ms", F.lit(" ms")
    )
    order = F.struct("topic", "partition", "offset", place.alias("place"))
    listed = late_ledger.groupBy(F.col("key").alias("late_key"), WINDOW_START, WINDOW_END).agg(
        F.count("*").alias("listed"), F.slice(F.array_sort(F.collect_list(order)), 1, MAX_LATE_NAMED).alias("late")
    )
    keyed = missed.join(counted, group_of(flow), "left").withColumn("late_key", named(flow.key).cast("string"))
    rows = keyed.join(listed, ["late_key", WINDOW_START, WINDOW_END], "left")
    found = rows.select(
        F.col("late_key").alias("key"),
        WINDOW_START,
        WINDOW_END,
        F.to_json(f"{KAFKA}_latest").alias("published"),
        F.to_json(COMPLETE).alias("complete"),
        F.coalesce("late_records", F.lit(0)).alias("late_records"),
        F.coalesce(F.col("late.place"), F.array()).alias("late"),
        (F.coalesce("listed", F.lit(0)) == F.coalesce("late_records", F.lit(0))).alias("explained"),
    )
    misses = [GraceMiss(**{**row.asDict(), "late": tuple(row.late)}) for row in found.collect()]
    return sorted(misses, key=lambda miss: (miss.window_start, miss.key or ""))


def completeness_differences(judged: DataFrame, misses: list[GraceMiss], flow: Flow) -> list[Difference]:
    """Grace misses that nothing explains, and corrections that are not there exactly once in both places."""
    unexplained = [
        Difference(
            kind=COMPLETENESS,
            place="late ledger",
            verdict="unexplained",
            key=miss.key,
            window_start=miss.window_start,
            window_end=miss.window_end,
            expected=miss.complete,
            actual=miss.published,
            cause="the late ledger does not list the records that are missing from the result",
            evidence=miss.late,
        )
        for miss in misses
        if not miss.explained
    ]
    return unexplained + _correction_differences(judged, flow)


def _correction_differences(judged: DataFrame, flow: Flow) -> list[Difference]:
    kafka, delta = (F.col(f"{place}_corrections") for place in (KAFKA, DELTA))
    verdict = (
        F.when((kafka > 1) | (delta > 1), "duplicated")
        .when((kafka > 0) & (delta == 0), "extra")
        .when((kafka == 0) & (delta > 0), "lost")
        .when(~same_result(F.col(f"{KAFKA}_latest"), F.col(f"{DELTA}_latest"), flow), "altered")
    )
    corrected = judged.where((kafka > 0) | (delta > 0)).withColumn("correction", verdict)
    rows = corrected.where(F.col("correction").isNotNull()).select(
        named(flow.key).cast("string").alias("key"),
        WINDOW_START,
        WINDOW_END,
        "correction",
        F.to_json(f"{DELTA}_latest").alias("stored"),
        F.to_json(f"{KAFKA}_latest").alias("published"),
    )
    return [
        Difference(
            kind=CORRECTION,
            place=flow.sink.topic.name,
            verdict=row.correction,
            key=row.key,
            window_start=row.window_start,
            window_end=row.window_end,
            expected=row.stored,
            actual=row.published,
            cause="a backfill's correction is not on Kafka exactly as in the corrections table",
        )
        for row in rows.collect()
    ]
