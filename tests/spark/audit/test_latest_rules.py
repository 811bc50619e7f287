"""Rules about rows that replace each other: gaps that retention explains, and earlier values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from recount.audit.compare.identity import identity_of
from recount.audit.compare.published import DELTA, KAFKA
from recount.audit.compare.results import COMPLETE, EXPECTED
from recount.audit.compare.sink_verdicts import judged_latest
from recount.declare.aggregates import count
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import stream
from recount.recompute.operators.frontiers import ALL_DUE, NONE_DUE

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))
TOTALS = identity_of(
    stream(CLICKS).aggregate(clicks=count()).to(Topic(name="totals", key="user", cleanup_policy="compact"))
)
_SCHEMA = (
    "key string, window_start long, window_end long, origin string, entry struct<is_null: boolean, row: struct<`__key`:"
    " string, clicks: long>, at_ms: long>, standing boolean, side string, revision int, evidence string"
)


def claims(spark: SparkSession, revisions: Sequence[int], stood: int | None) -> DataFrame:
    """Ann has five clicks, of which the table has these revisions; the topic was compacted."""
    told = [(EXPECTED, 4, None), (COMPLETE, 4, None), *((DELTA, revision, revision) for revision in revisions)]
    rows = [
        (
            "ann",
            None,
            None,
            None,
            (False, ("ann", 1 + number), number),
            side == DELTA and number == stood,
            side,
            of,
            None,
        )
        for side, number, of in told
    ]
    return spark.createDataFrame(rows, _SCHEMA)


@pytest.mark.parametrize(
    ("revisions", "stood", "since_ms", "whole_since", "verdict"),
    [
        ((0, 1, 3, 4), None, NONE_DUE, False, "lost"),
        ((3, 4), None, 3, False, "match"),
        ((0, 1, 3, 4), 0, 3, False, "match"),
        ((0, 1, 3, 4), 0, 3, True, "lost"),
        ((1, 2, 3, 4), 1, 3, True, "match"),
        ((2, 3), 2, 3, True, "altered"),
    ],
)
def test_a_gap_counts_where_no_row_can_have_been_removed(
    spark: SparkSession, revisions: Sequence[int], stood: int | None, since_ms: int, whole_since: bool, verdict: str
) -> None:
    judged = judged_latest(
        claims(spark, revisions, stood), TOTALS, ALL_DUE, NONE_DUE, since_ms, is_whole_since=whole_since
    )
    [row] = judged.select("delta_verdict", "delta_is_dense").collect()
    assert row.delta_verdict == verdict


def test_where_topic_and_table_contradict_each_other_about_an_earlier_value_both_are_altered(
    spark: SparkSession,
) -> None:
    """So a row that was found altered in one night still is in the next, when a newer one has replaced it."""
    changed = {(DELTA, 3): 9}
    written = [(side, revision) for side in (KAFKA, DELTA) for revision in range(5)]
    told = [
        ("ann", None, None, None, (False, ("ann", changed.get(one, 1 + one[1])), one[1]), False, *one, str(one))
        for one in written
    ]
    known = claims(spark, (), None).unionByName(spark.createDataFrame(told, _SCHEMA))
    judged = judged_latest(known, TOTALS, ALL_DUE, NONE_DUE, NONE_DUE, is_whole_since=True)
    [row] = judged.collect()
    assert (row.kafka_verdict, row.delta_verdict) == ("altered", "altered")
    assert (row.kafka_shown.row.clicks, row.delta_shown.row.clicks) == (4, 9)
    assert (row.kafka_evidence, row.delta_evidence) == ([str((KAFKA, 3))], [str((DELTA, 3))])
    assert row.kafka_entry == row.delta_entry == row.expected_entry
