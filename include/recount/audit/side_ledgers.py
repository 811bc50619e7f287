"""The stream's lists of single records (late ledger, rejected records, dead letters) against the recomputed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from recount.audit.committed import committed_records, header
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.verdict import Difference
from recount.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC
from recount.recompute.log import Ranges

LATE_LEDGER, DEAD_LETTERS = "late ledger", "dead letters"
_COMPARISON = "comparison"
_PLACE = ("topic", "partition", "offset")
MAX_DIFFERENCES = 1_000


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the stream has ``listed`` in ``place``, and what it should have: ``values`` of records, by their place."""

    kind: str
    place: str
    recomputed: DataFrame
    listed: DataFrame
    values: Sequence[str]
    by_window: bool = False


def late_records(recomputed: DataFrame, ledger: DataFrame) -> Comparison:
    """The late ledger beside the recomputed late (record, window) pairs.

    A record can be late for several operators, and for one that has no windows: then its lines are compared together.
    """
    return Comparison(
        kind=LATE_LEDGER,
        place="late table",
        recomputed=recomputed,
        listed=ledger,
        values=("timestamp_ms", "stream_time_ms", "key", WINDOW_END, "margin_ms"),
        by_window=True,
    )


def rejected_records(recomputed: DataFrame, table: DataFrame) -> Comparison:
    """The table of rejected records beside the recomputed bad records."""
    return Comparison(
        kind=DEAD_LETTERS,
        place="rejected table",
        recomputed=recomputed,
        listed=table,
        values=("timestamp_ms", "reason"),
    )


def posted_letters(recomputed: DataFrame, letters: DataFrame, topic: str) -> Comparison:
    """The dead-letter topic beside the recomputed bad records; a letter written twice counts."""
    return Comparison(kind=DEAD_LETTERS, place=topic, recomputed=recomputed, listed=letters, values=("reason",))


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


def side_ledger_differences(comparisons: Sequence[Comparison]) -> list[Difference]:
    """Where the lists differ, at most ``MAX_DIFFERENCES`` of each.

    One shuffle lines all of them up; what does not pair one to one, with equal values, is a difference.
    """
    claims = [_claims(number, one) for number, one in enumerate(comparisons)]
    lined_up = (
        reduce(DataFrame.unionByName, claims)
        .groupBy(_COMPARISON, *_PLACE, WINDOW_START)
        .agg(
            F.array_sort(F.collect_list(F.when(F.col("expected"), F.col("said")))).alias("should"),
            F.array_sort(F.collect_list(F.when(~F.col("expected"), F.col("said")))).alias("does"),
        )
    )
    expected, copies = F.size("should"), F.size("does")
    strange = (F.size(F.array_except("does", "should")) > 0) | (F.size(F.array_except("should", "does")) > 0)
    verdict = (
        F.when(copies == 0, "lost")
        .when(expected == 0, "extra")
        .when(strange & (copies < expected), "lost")
        .when(strange, "altered")
        .when(copies > expected, "duplicated")
        .when(copies < expected, "lost")
    )
    wrong = lined_up.withColumn("verdict", verdict).where(F.col("verdict").isNotNull())
    in_order = Window.partitionBy(_COMPARISON).orderBy(*_PLACE, WINDOW_START)
    listed = wrong.withColumn("number", F.row_number().over(in_order)).where(F.col("number") <= MAX_DIFFERENCES)
    rows = sorted(listed.collect(), key=lambda row: (row[_COMPARISON], row.number))
    return [_difference(comparisons[row[_COMPARISON]], row) for row in rows]


def _claims(number: int, comparison: Comparison) -> DataFrame:
    def claimed(rows: DataFrame, *, expected: bool) -> DataFrame:
        window_start = F.col(WINDOW_START) if comparison.by_window else F.lit(None)
        return rows.select(
            F.lit(number).alias(_COMPARISON),
            *_PLACE,
            window_start.cast("long").alias(WINDOW_START),
            F.to_json(F.struct(*comparison.values)).alias("said"),
            F.lit(expected).alias("expected"),
        )

    return claimed(comparison.recomputed, expected=True).unionByName(claimed(comparison.listed, expected=False))


def _difference(comparison: Comparison, row: Row) -> Difference:
    return Difference(
        kind=comparison.kind,
        place=comparison.place,
        verdict=row.verdict,
        window_start=row.window_start,
        expected=next(iter(row.should), None),
        actual=next(iter(row.does), None),
        cause=_CAUSES[row.verdict],
        evidence=(f"{row.topic}-{row.partition}@{row.offset}",),
    )


_CAUSES = {
    "lost": "the stream did not list a record that the log and its stream time make one",
    "extra": "the stream lists a record that the log and its stream time do not make one",
    "altered": "the stream judged the record by another time, key or reason than the log gives",
    "duplicated": "the record is listed more than once",
}
