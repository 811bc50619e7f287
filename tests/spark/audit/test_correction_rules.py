"""A correction is wrong for the audit's judge where it is wrong for the suite ``reconciliation``, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.compare.claims import SIDE
from recount.audit.compare.correction_claims import COMPLETE_ROWS, LATER_BATCH, with_corrections
from recount.audit.compare.differences import COMPARED, compared
from recount.audit.compare.identity import Identity, identity_of
from recount.audit.compare.published import KAFKA
from recount.audit.compare.results import COMPLETE
from recount.audit.compare.sink_verdicts import judged_latest, judged_rows, of_backfills
from recount.audit.expectations.suites import QUERY, SUITES, expectations_of
from recount.audit.explain.completeness import CORRECTION
from recount.declare.schema import DOUBLE, LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import stream, table
from recount.recompute.operators.frontiers import ALL_DUE, NONE_DUE

CLICKS = Topic(name="clicks", key="who", value=RecordSchema.of(n=LONG, rate=DOUBLE))
OUT = Topic(name="out", key="who")
LATEST = identity_of(table(CLICKS).to(OUT))
EVERY = identity_of(stream(CLICKS).to(OUT))
_ROWS = (
    "__key string, n long, rate double, recount_timestamp_ms long, recount_revision int, recount_is_null boolean,"
    " recount_origin string, recount_generation int, recount_batch long, recount_backfill string,"
    " recount_backfill_number long"
)
KEPT_SINCE_MS = 10
"""Older corrections may have left the topic."""
Told = tuple[int | None, float, int, int]
"""What a row says (None: it is a deletion), twice, its revision and its time."""
Case = tuple[Sequence[Told], Sequence[Told], str | None]
"""The corrections of a row on Kafka, those in Delta, and what the judge says of them."""

OF_ANY: Mapping[str, Case] = {
    "the same": ([(3, 0.1, 1, 20)], [(3, 0.1, 1, 20)], None),
    "rounded otherwise": ([(3, 0.1, 1, 20)], [(3, 0.1 * (1 + 1e-12), 1, 20)], None),
    "deleted": ([(None, 0, 1, 20)], [(None, 0, 1, 20)], None),
    "corrected again": ([(4, 0, 2, 20), (3, 0, 1, 20)], [(3, 0, 1, 20), (4, 0, 2, 20)], None),
    "lost": ([], [(3, 0, 1, 20)], "lost"),
    "gone by retention": ([], [(3, 0, 1, 5)], None),
    "the second lost": ([(3, 0, 1, 20)], [(3, 0, 1, 20), (4, 0, 2, 20)], "lost"),
    "extra": ([(3, 0, 1, 20)], [], "extra"),
    "of another revision": ([(3, 0, 1, 20)], [(3, 0, 2, 20)], "extra"),
    "another value": ([(4, 0, 1, 20)], [(3, 0, 1, 20)], "altered"),
    "another double": ([(3, 0.1, 1, 20)], [(3, 0.2, 1, 20)], "altered"),
    "another time": ([(3, 0, 1, 20)], [(3, 0, 1, 21)], "altered"),
    "deleted there only": ([(None, 0, 1, 20)], [(3, 0, 1, 20)], "altered"),
    "twice": ([(3, 0, 1, 20), (3, 0, 1, 20)], [(3, 0, 1, 20)], "duplicated"),
}
TWO: list[Told] = [(7, 0, 1, 20), (8, 0, 1, 20)]
OF_LATEST: Mapping[str, Case] = {**OF_ANY, "twice in both": (TWO, TWO, "duplicated")}
OF_EVERY: Mapping[str, Case] = {
    **OF_ANY,
    "two rows": (TWO[::-1], TWO, None),
    "one of two": (TWO[:1], TWO, "altered"),
    "three of two": ([*TWO, *TWO[:1]], TWO, "duplicated"),
}


def rows(spark: SparkSession, told_of: Mapping[str, Sequence[Told]], identity: Identity) -> DataFrame:
    origin = None if identity.is_latest else "clicks-0@3"
    told = [
        (key, n, float(rate), at_ms, revision, n is None, origin, 0, 1, "monday", 0)
        for key, said in told_of.items()
        for n, rate, revision, at_ms in said
    ]
    return of_backfills(spark.createDataFrame(told, _ROWS), identity)


def judged(spark: SparkSession, cases: Mapping[str, Case], identity: Identity) -> DataFrame:
    """The corrections of all ``cases``, each of a row of its own, of which nothing else is known."""
    on_kafka = rows(spark, {key: case[0] for key, case in cases.items()}, identity)
    in_delta = rows(spark, {key: case[1] for key, case in cases.items()}, identity)
    claims = on_kafka.withColumn(SIDE, F.lit(KAFKA)).unionByName(in_delta).withColumn(LATER_BATCH, F.lit(False))
    nothing = in_delta.where(F.lit(False))
    if identity.is_latest:
        known = judged_latest(nothing, identity, ALL_DUE, KEPT_SINCE_MS, NONE_DUE, is_whole_since=True)
        complete: Column = F.array(f"{COMPLETE}_entry")
    else:
        known, complete = judged_rows(nothing, identity), F.col(COMPLETE)
    return with_corrections(known.withColumn(COMPLETE_ROWS, complete), claims, in_delta, identity, KEPT_SINCE_MS)


@pytest.mark.parametrize(("identity", "cases"), [(LATEST, OF_LATEST), (EVERY, OF_EVERY)], ids=["latest", "every"])
def test_the_suite_finds_the_corrections_that_the_judge_finds(
    spark: SparkSession, identity: Identity, cases: Mapping[str, Case]
) -> None:
    found = judged(spark, cases, identity).persist()
    assert {row.key: row[CORRECTION] for row in found.select("key", CORRECTION).collect()} == {
        key: expected for key, (_, _, expected) in cases.items()
    }
    [query] = [
        one["kwargs"][QUERY]
        for one in expectations_of(SUITES, "reconciliation", "any")
        if one["meta"].get("judged_as") == "corrections"
    ]
    told = found.select("key", "window_start", "window_end", "origin", compared(identity, KEPT_SINCE_MS, None))
    told = told.select("*", f"{COMPARED}.*").withColumns({"sink": F.lit("out"), "correction_is_accepted": F.lit(False)})
    told.createOrReplaceTempView("compared_corrections")
    unexpected = {row.key for row in spark.sql(query.format(batch="compared_corrections")).collect()}
    assert unexpected == {key for key, (_, _, expected) in cases.items() if expected is not None}
    found.unpersist()
