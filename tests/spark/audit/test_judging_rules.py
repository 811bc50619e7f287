"""The rules by which rows, records and corrections are judged, beside those of Great Expectations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as S
from tests.spark.audit.conftest import framed
from tests.unit.audit.documents import a_run

from recount.audit.carry.store import RECONCILIATION, AuditStore
from recount.audit.compare.claims import IDENTITY, SIDE
from recount.audit.compare.correction_claims import COMPLETE_ROWS, LATER_BATCH, uncorrected, with_corrections
from recount.audit.compare.differences import COMPARED, compared, reconciled
from recount.audit.compare.identity import Identity, identity_of
from recount.audit.compare.published import DELTA, KAFKA, LATER
from recount.audit.compare.results import COMPLETE, EXPECTED
from recount.audit.compare.sink_verdicts import (
    CORRECTED_AT,
    GOES_ON,
    HIGHEST,
    SEEN,
    judged_latest,
    judged_rows,
    of_backfills,
    of_stream,
    seen_rows,
)
from recount.audit.expectations.audited_frames import AuditedRows
from recount.audit.expectations.suites import QUERY, SUITES, expectations_of
from recount.audit.explain.completeness import CORRECTION
from recount.audit.findings.finding_register import ROW
from recount.certificate.finding import Difference, Finding
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import tumbling
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, once
from recount.recompute.operators.frontiers import ALL_DUE, NONE_DUE
from recount.tables.places import Tables

CORRECTED_CLICKS = Topic(name="clicks", key="who", value=RecordSchema.of(n=LONG, rate=DOUBLE))
OUT = Topic(name="out", key="who")
LATEST_CLAIM = identity_of(table(CORRECTED_CLICKS).to(OUT))
EVERY_CLAIM = identity_of(stream(CORRECTED_CLICKS).to(OUT))
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


def by_spark(spark: SparkSession, frame: Frame) -> DataFrame:
    return spark.createDataFrame(frame.arrow(), frame.schema)


def rows(database: Database, told_of: Mapping[str, Sequence[Told]], identity: Identity) -> Frame:
    origin = None if identity.is_latest else "clicks-0@3"
    told = [
        (key, n, float(rate), at_ms, revision, n is None, origin, 0, 1, "monday", 0)
        for key, said in told_of.items()
        for n, rate, revision, at_ms in said
    ]
    return of_backfills(framed(database, told, _ROWS), identity)


def judged(database: Database, cases: Mapping[str, Case], identity: Identity) -> Frame:
    """The corrections of all ``cases``, each of a row of its own, of which nothing else is known."""
    on_kafka = rows(database, {key: case[0] for key, case in cases.items()}, identity)
    in_delta = rows(database, {key: case[1] for key, case in cases.items()}, identity)
    claims = on_kafka.with_column(SIDE, F.lit(KAFKA)).union(in_delta).with_column(LATER_BATCH, F.lit(False))
    nothing = in_delta.where(F.lit(False))
    if identity.is_latest:
        known = judged_latest(nothing, identity, ALL_DUE, KEPT_SINCE_MS, NONE_DUE, is_whole_since=True)
        complete: Column = F.array(F.col(f"{COMPLETE}_entry"))
    else:
        known, complete = judged_rows(nothing, identity), F.col(COMPLETE)
    return with_corrections(known.with_column(COMPLETE_ROWS, complete), claims, in_delta, identity, KEPT_SINCE_MS)


@pytest.mark.parametrize(
    ("identity", "cases"), [(LATEST_CLAIM, OF_LATEST), (EVERY_CLAIM, OF_EVERY)], ids=["latest", "every"]
)
def test_the_suite_finds_the_corrections_that_the_judge_finds(
    spark: SparkSession, database: Database, identity: Identity, cases: Mapping[str, Case]
) -> None:
    found = once(judged(database, cases, identity))
    assert {row["key"]: row[CORRECTION] for row in found.select("key", CORRECTION).rows()} == {
        key: expected for key, (_, _, expected) in cases.items()
    }
    [query] = [
        one["kwargs"][QUERY]
        for one in expectations_of(SUITES, "reconciliation", "any")
        if one["meta"].get("judged_as") == "corrections"
    ]
    told = by_spark(spark, found.select(*IDENTITY, compared(identity, KEPT_SINCE_MS, None)))
    told = told.select("*", f"{COMPARED}.*").withColumns({"sink": S.lit("out"), "correction_is_accepted": S.lit(False)})
    told.createOrReplaceTempView("compared_corrections")
    unexpected = {row.key for row in spark.sql(query.format(batch="compared_corrections")).collect()}
    assert unexpected == {key for key, (_, _, expected) in cases.items() if expected is not None}


SIZE_MS = 10_000
ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(region=STRING))
BY_REGION = stream(ORDERS).select_key(region=col("region")).windowed_by(tumbling("10 s", grace="3 s"))
REVENUE = Topic(name="revenue", key="region")
COUNTED = Topology(name="counted", sinks=[BY_REGION.aggregate(n=count()).emit_each_batch().to(REVENUE)])
COUNTS = identity_of(COUNTED.sinks[0])
_COUNTS = (
    "key string, window_start long, window_end long, origin string, entry struct<is_null: boolean, row: struct<region:"
    " string, window_start: long, window_end: long, n: long>, at_ms: long>, standing boolean, side string,"
    " revision int, evidence string"
)
Copies = Sequence[tuple[int, int]]
"""The count that each copy has, and its revision."""
CASES: list[tuple[Copies, Copies, Copies, str, str]] = [
    ([(2, 0)], [(2, 0)], [], "match", "match"),
    ([], [(2, 0)], [], "lost", "match"),
    ([(2, 0)], [], [], "match", "lost"),
    ([(2, 0), (2, 0)], [(2, 0)], [], "duplicated", "match"),
    ([(3, 0)], [(2, 0)], [], "altered", "match"),
    ([(3, 0), (2, 0)], [(2, 0)], [], "altered", "match"),
    ([(2, -1)], [(2, 0)], [], "extra", "match"),
    ([(3, 0), (2, 1)], [(2, 1)], [], "match", "lost"),
    ([(3, 0), (2, 1)], [(3, 0), (2, 1)], [], "match", "match"),
    ([(2, 0)], [(3, 0), (2, 1)], [], "altered", "altered"),
    ([(2, 0), (2, 1)], [(2, 0)], [], "extra", "match"),
    ([(2, 0), (3, 1)], [(2, 0)], [(3, 1)], "match", "match"),
]
"""What Kafka and Delta have of a count of 2, what only later batches wrote to Delta, and the verdicts."""


def counted(database: Database) -> Frame:
    """Every case judged in a window of its own; and rows that nobody makes, on Kafka and in Delta."""
    last = len(CASES)
    told = [(number, side, 2, None) for number in range(last) for side in (EXPECTED, COMPLETE)]
    told += [(last, KAFKA, 3, 0), (last + 1, DELTA, 3, 0)]
    for number, case in enumerate(CASES):
        for side, copies in zip((KAFKA, DELTA, LATER), case[:3], strict=True):
            told += [(number, side, n, revision) for n, revision in copies]
    rows = []
    for number, side, n, revision in told:
        bounds = (number * SIZE_MS, (number + 1) * SIZE_MS)
        rows.append(("EU", *bounds, None, (False, ("EU", *bounds, n), 9), False, side, revision, side))
    claims = framed(database, rows, _COUNTS)
    found = judged_latest(claims, COUNTS, ALL_DUE, NONE_DUE, NONE_DUE, is_whole_since=True)
    return once(uncorrected(found.with_column(COMPLETE_ROWS, F.array(F.col(f"{COMPLETE}_entry"))), COUNTS))


def found_by(
    spark: SparkSession, database: Database, folder: Path, accepted: tuple[Finding, ...] = ()
) -> tuple[Frame, Callable[[str], set[Any]]]:
    """The judged rows, and those that the suite's query for a place finds."""
    found, tables = counted(database), Tables(str(folder))
    told = found.select(
        F.lit("revenue").alias("sink"), F.lit("revenue").alias("table"), *IDENTITY, compared(COUNTS, None, None)
    )
    AuditStore(tables, COUNTED.name).put(RECONCILIATION, "tonight", reconciled(told))
    run = a_run("tonight", outcome="violation")
    rows = AuditedRows(session=spark, tables=tables, topology=COUNTED, run=run, accepted=accepted)
    rows.reconciliation().createOrReplaceTempView("compared_rows")
    queries = {
        one["meta"]["judged_as"]: one["kwargs"][QUERY]
        for one in expectations_of(SUITES, "reconciliation", COUNTED.name)
        if QUERY in one["kwargs"]
    }

    def of_place(place: str) -> set[Any]:
        told = spark.sql(queries[place].format(batch="compared_rows")).select(*ROW).collect()
        assert len(told) == len(set(told))
        return {tuple(row) for row in told}

    return found, of_place


def test_judge_and_suite_find_each_way_in_which_a_result_can_be_wrong(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    found, of_place = found_by(spark, database, tmp_path)
    rows = found.sorted_by("window_start").rows()
    assert [(one["kafka_verdict"], one["delta_verdict"]) for one in rows] == [
        *(case[3:] for case in CASES),
        ("extra", "match"),
        ("match", "extra"),
    ]
    for place in ("kafka", "delta"):
        wrong = [one for one in rows if one[f"{place}_verdict"] != "match"]
        assert of_place(place) == {("revenue", "EU", one["window_start"], one["window_end"], None) for one in wrong}
    assert of_place("corrections") == set()


def test_what_a_person_has_accepted_is_none_of_them(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    lost = Difference(
        kind="output", place="topic revenue", verdict="lost", key="EU", window_start=SIZE_MS, window_end=2 * SIZE_MS
    )
    finding = Finding(
        id="1",
        state="accepted",
        difference=lost,
        first_audit="tonight",
        first_ms=0,
        last_audit="tonight",
        last_ms=0,
        last_cut=(0, 1),
    )
    row = ("revenue", "EU", SIZE_MS, 2 * SIZE_MS, None)
    elsewhere = replace(finding, difference=replace(lost, place="table outputs/revenue"))
    before, after, other = (
        found_by(spark, database, tmp_path, one)[1]("kafka") for one in ((), (finding,), (elsewhere,))
    )
    assert (before - after, other) == ({row}, before)


LATEST_CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))
TOTALS = identity_of(
    stream(LATEST_CLICKS).aggregate(clicks=count()).to(Topic(name="totals", key="user", cleanup_policy="compact"))
)
_SCHEMA = (
    "key string, window_start long, window_end long, origin string, entry struct<is_null: boolean, row: struct<`__key`:"
    " string, clicks: long>, at_ms: long>, standing boolean, side string, revision int, evidence string"
)


def claims(database: Database, revisions: Sequence[int], stood: int | None) -> Frame:
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
    return framed(database, rows, _SCHEMA)


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
    database: Database, revisions: Sequence[int], stood: int | None, since_ms: int, whole_since: bool, verdict: str
) -> None:
    judged = judged_latest(
        claims(database, revisions, stood), TOTALS, ALL_DUE, NONE_DUE, since_ms, is_whole_since=whole_since
    )
    [row] = judged.select("delta_verdict").rows()
    assert row["delta_verdict"] == verdict


def test_where_topic_and_table_contradict_each_other_about_an_earlier_value_both_are_altered(
    database: Database,
) -> None:
    """So a row that was found altered in one night still is in the next, when a newer one has replaced it."""
    changed = {(DELTA, 3): 9}
    written = [(side, revision) for side in (KAFKA, DELTA) for revision in range(5)]
    told = [
        ("ann", None, None, None, (False, ("ann", changed.get(one, 1 + one[1])), one[1]), False, *one, str(one))
        for one in written
    ]
    known = claims(database, (), None).union(framed(database, told, _SCHEMA))
    judged = judged_latest(known, TOTALS, ALL_DUE, NONE_DUE, NONE_DUE, is_whole_since=True)
    [row] = judged.rows()
    assert (row["kafka_verdict"], row["delta_verdict"]) == ("altered", "altered")
    assert [row[f"{place}_shown"]["row"]["clicks"] for place in (KAFKA, DELTA)] == [4, 9]
    assert (row["kafka_evidence"], row["delta_evidence"]) == ([str((KAFKA, 3))], [str((DELTA, 3))])
    assert row["kafka_entry"] == row["delta_entry"] == row["expected_entry"]


CLICKS = Topic(name="clicks", key="who", value=RecordSchema.of(n=LONG))
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


def seen(database: Database, identity: Identity, rows: Sequence[Row], corrections: Sequence[Row]) -> Any:
    """What readers see of ann, the highest revision, whether she was corrected, whether the stream went on."""
    written = of_stream(framed(database, rows, _WRITTEN), identity)
    corrected = of_backfills(framed(database, corrections, _CORRECTED), identity)
    [found] = seen_rows(written.union(corrected), identity).rows()
    values = [None if one["row"] is None else one["row"]["n"] for one in found[SEEN]]
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
    database: Database, rows: list[Row], corrections: list[Row], expected: Any
) -> None:
    assert seen(database, LATEST, rows, corrections) == expected


@pytest.mark.parametrize(
    ("corrections", "expected"),
    [
        ([], ([1, 2], 0, False, False)),
        ([correction(7, 1, 1, 0, "clicks-0@3")], ([7], 1, True, False)),
        ([correction(7, 1, 1, 0, "clicks-0@3"), correction(8, 1, 1, 0, "clicks-0@3")], ([7, 8], 1, True, False)),
        ([correction(None, 1, 1, 0, "clicks-0@3")], ([None], 1, True, False)),
    ],
)
def test_all_rows_of_a_record_are_replaced_together(database: Database, corrections: list[Row], expected: Any) -> None:
    rows = [row(1, 0, 1, "clicks-0@3"), row(2, 0, 1, "clicks-0@3")]
    assert seen(database, EVERY, rows, corrections) == expected
