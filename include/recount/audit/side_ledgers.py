"""The stream's lists of single records (late ledger, rejected records, dead letters) against the recomputed ones."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.committed import committed_records, header
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.verdict import Difference
from recount.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC
from recount.recompute.log import Ranges

LATE_LEDGER, DEAD_LETTERS = "late ledger", "dead letters"
_PLACE = ("topic", "partition", "offset")
MAX_DIFFERENCES = 1_000


def late_differences(recomputed: DataFrame, ledger: DataFrame) -> list[Difference]:
    """Where the late ledger and the recomputed late (record, window) pairs differ.

    A record can be late for several operators, and for one that has no windows: then its lines are compared together.
    """
    return _differences(
        LATE_LEDGER,
        "late table",
        recomputed,
        ledger,
        key=(*_PLACE, WINDOW_START),
        values=("timestamp_ms", "stream_time_ms", "key", WINDOW_END, "margin_ms"),
    )


def rejected_differences(recomputed: DataFrame, table: DataFrame) -> list[Difference]:
    """Where the table of rejected records and the recomputed bad records differ."""
    return _differences(
        DEAD_LETTERS, "rejected table", recomputed, table, key=_PLACE, values=("timestamp_ms", "reason")
    )


def dead_letter_differences(recomputed: DataFrame, letters: DataFrame, topic: str) -> list[Difference]:
    """Where the dead-letter topic and the recomputed bad records differ; a letter written twice counts."""
    return _differences(DEAD_LETTERS, topic, recomputed, letters, key=_PLACE, values=("reason",))


def dead_letters(session: SparkSession, bootstrap_servers: str, topic: str, ranges: Ranges) -> DataFrame:
    """The records of the dead-letter topic, by the source offsets in their headers."""
    records = committed_records(session, bootstrap_servers, topic, ranges)
    if records is None:
        return session.createDataFrame([], "topic string, partition int, offset long, reason string")
    return records.select(
        header(SOURCE_TOPIC).alias("topic"),
        header(SOURCE_PARTITION).try_cast("int").alias("partition"),
        header(SOURCE_OFFSET).try_cast("long").alias("offset"),
        header(REASON).alias("reason"),
    )


def within(rows: DataFrame, topic: str, ranges: Ranges) -> DataFrame:
    """The rows whose source offset lies in ``ranges`` of ``topic``, and those that name no place at all."""
    inside = F.lit(False)
    for partition, (start, end) in ranges.items():
        inside = inside | ((F.col("partition") == partition) & (F.col("offset") >= start) & (F.col("offset") < end))
    return rows.where((F.col("topic") == topic) & inside | F.col("offset").isNull())


def _differences(
    kind: str, place: str, recomputed: DataFrame, found: DataFrame, *, key: Sequence[str], values: Sequence[str]
) -> list[Difference]:
    """One shuffle lines both up by ``key``; what does not pair one to one, with equal ``values``, is a difference."""
    told = recomputed.select(*key, F.struct(*values).alias("said"), F.lit(True).alias("expected"))
    seen = found.select(*key, F.struct(*values).alias("said"), F.lit(False).alias("expected"))
    is_told = F.col("expected")
    lined_up = (
        told.unionByName(seen)
        .groupBy(*key)
        .agg(
            F.array_sort(F.collect_list(F.when(is_told, F.col("said")))).alias("should_all"),
            F.array_sort(F.collect_list(F.when(~is_told, F.col("said")))).alias("does_all"),
        )
        .withColumns(
            {"should": F.try_element_at("should_all", F.lit(1)), "does": F.try_element_at("does_all", F.lit(1))}
        )
    )
    expected, copies = F.size("should_all"), F.size("does_all")
    strange = (F.size(F.array_except("does_all", "should_all")) > 0) | (
        F.size(F.array_except("should_all", "does_all")) > 0
    )
    verdict = (
        F.when(copies == 0, "lost")
        .when(expected == 0, "extra")
        .when(strange & (copies < expected), "lost")
        .when(strange, "altered")
        .when(copies > expected, "duplicated")
        .when(copies < expected, "lost")
    )
    wrong = lined_up.withColumn("verdict", verdict).where(F.col("verdict").isNotNull())
    rows = wrong.select("*", F.to_json("should").alias("should_text"), F.to_json("does").alias("does_text")).orderBy(
        *key
    )
    return [
        Difference(
            kind=kind,
            place=place,
            verdict=row.verdict,
            window_start=row.window_start if WINDOW_START in key else None,
            expected=row.should_text,
            actual=row.does_text,
            cause=_CAUSES[row.verdict],
            evidence=(f"{row.topic}-{row.partition}@{row.offset}",),
        )
        for row in rows.limit(MAX_DIFFERENCES).collect()
    ]


_CAUSES = {
    "lost": "the stream did not list a record that the log and its stream time make one",
    "extra": "the stream lists a record that the log and its stream time do not make one",
    "altered": "the stream judged the record by another time, key or reason than the log gives",
    "duplicated": "the record is listed more than once",
}
