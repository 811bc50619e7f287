"""What readers see of rows that backfills have corrected: the newest batch, and within it the newest backfill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from recount.audit.compare.identity import Identity, identity_of
from recount.audit.compare.sink_verdicts import CORRECTED_AT, GOES_ON, HIGHEST, SEEN, of_backfills, of_stream, seen_rows
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import stream, table

CLICKS = Topic(name="clicks", key="who", value=RecordSchema.of(n=LONG))
OUT = Topic(name="out", key="who")
LATEST = identity_of(table(CLICKS).to(OUT))
EVERY = identity_of(stream(CLICKS).to(OUT))
_WRITTEN = (
    "__key string, n long, recount_timestamp_ms long, recount_revision int, recount_is_null boolean,"
    " recount_origin string, recount_generation int, recount_batch long"
)
_CORRECTED = f"{_WRITTEN}, recount_backfill string, recount_backfill_number long"
Row = tuple[Any, ...]


def row(n: int | None, revision: int, batch: int, origin: str | None = None) -> Row:
    """A row of ann; n None: a deletion."""
    return ("ann", n, 5, revision, n is None, origin, 0, batch)


def correction(n: int | None, revision: int, batch: int, number: int, origin: str | None = None) -> Row:
    return (*row(n, revision, batch, origin), "monday", number)


def seen(spark: SparkSession, identity: Identity, rows: Sequence[Row], corrections: Sequence[Row]) -> Any:
    """What readers see of ann, the highest revision, whether she was corrected, whether the stream went on."""
    written = of_stream(spark.createDataFrame(rows, _WRITTEN), identity)
    corrected = of_backfills(spark.createDataFrame(corrections, _CORRECTED), identity)
    [found] = seen_rows(written.unionByName(corrected), identity).collect()
    values = [None if one.row is None else one.row.n for one in found[SEEN]]
    return values, found[HIGHEST], found[CORRECTED_AT] is not None, found[GOES_ON]


@pytest.mark.parametrize(
    ("rows", "corrections", "expected"),
    [
        ([row(1, 0, 1), row(2, 1, 2)], [], ([2], 1, False, False)),
        ([row(2, 1, 2)], [correction(3, 2, 2, 0)], ([3], 2, True, False)),
        ([row(2, 1, 2)], [correction(4, 3, 2, 1), correction(3, 2, 2, 0)], ([4], 3, True, False)),
        ([row(2, 1, 2), row(5, 2, 3)], [correction(4, 3, 2, 1), correction(3, 2, 2, 0)], ([5], 3, True, True)),
        ([row(2, 1, 2)], [correction(None, 2, 2, 0)], ([None], 2, True, False)),
        ([row(2, 0, 2), row(5, 1, 2)], [correction(3, 2, 1, 0)], ([5], 2, True, True)),
    ],
)
def test_a_row_that_is_replaced_is_seen_as_of_the_newest_batch_and_then_of_the_newest_backfill(
    spark: SparkSession, rows: list[Row], corrections: list[Row], expected: Any
) -> None:
    assert seen(spark, LATEST, rows, corrections) == expected


@pytest.mark.parametrize(
    ("corrections", "expected"),
    [
        ([], ([1, 2], 0, False, False)),
        ([correction(7, 1, 1, 0, "clicks-0@3")], ([7], 1, True, False)),
        ([correction(7, 1, 1, 0, "clicks-0@3"), correction(8, 1, 1, 0, "clicks-0@3")], ([7, 8], 1, True, False)),
        ([correction(None, 1, 1, 0, "clicks-0@3")], ([None], 1, True, False)),
    ],
)
def test_all_rows_of_a_record_are_replaced_together(spark: SparkSession, corrections: list[Row], expected: Any) -> None:
    rows = [row(1, 0, 1, "clicks-0@3"), row(2, 0, 1, "clicks-0@3")]
    assert seen(spark, EVERY, rows, corrections) == expected
