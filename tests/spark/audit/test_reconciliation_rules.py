"""The rules of the suite ``reconciliation``, in SQL, find the rows that the judge's rules find, and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession
from tests.unit.audit.documents import a_run
from tests.unit.audit.test_judgement import CASES, OTHER, Copy, R, Tried, published, stored

from recount.audit.carry.store import VERDICTS
from recount.audit.expectations.audited_frames import AuditedRows
from recount.audit.expectations.suites import QUERY, SUITES, expectations_of
from recount.audit.findings.finding_register import ROW
from recount.certificate.finding import Difference, Finding
from recount.declare.topology import Topology

SIZE_MS = 10_000


def moved(copy: Copy, windows: int) -> Copy:
    start = copy["window_start"] + windows * SIZE_MS
    return {**copy, "window_start": start, "window_end": start + SIZE_MS}


@pytest.fixture
def tried(tmp_path: Path) -> Tried:
    """Every case of the judge's own test, each in a window of its own."""
    tried = Tried(tmp_path)
    on_kafka = [moved(copy, number) for number, case in enumerate(CASES) for copy in case[0]]
    in_delta = [moved(copy, number) for number, case in enumerate(CASES) for copy in case[1]]
    extra = len(CASES)
    on_kafka += [published(moved(OTHER, extra))]
    in_delta += [stored(moved(OTHER, extra + 1))]
    tried.judged([moved(R, number) for number in range(len(CASES))], on_kafka, in_delta)
    return tried


def found_by(spark: SparkSession, tried: Tried, accepted: tuple[Finding, ...] = ()) -> Callable[[str], set[Any]]:
    """The rows that the suite's query for a place finds."""
    run = a_run("tonight", outcome="violation")
    topology: Topology = tried.flow.topology
    rows = AuditedRows(session=spark, tables=tried.tables, topology=topology, run=run, accepted=accepted)
    rows.reconciliation().createOrReplaceTempView("compared_rows")
    queries = {
        one["meta"]["judged_as"]: one["kwargs"][QUERY]
        for one in expectations_of(SUITES, "reconciliation", topology.name)
        if QUERY in one["kwargs"]
    }

    def found(place: str) -> set[Any]:
        told = spark.sql(queries[place].format(batch="compared_rows")).select(*ROW).collect()
        assert len(told) == len(set(told))
        return {tuple(row) for row in told}

    return found


def test_the_suite_finds_the_rows_that_the_judge_finds_in_each_way_that_a_result_can_be_wrong(
    spark: SparkSession, tried: Tried
) -> None:
    found = found_by(spark, tried)
    for place, number in (("kafka", 8), ("delta", 3)):
        wrong = tried.store.rows(VERDICTS, ["tonight"]).filter(~pl.col(f"{place}_verdict").is_in(["match", "expired"]))
        expected = {tuple(row) for row in wrong.select(ROW).collect().rows()}
        assert len(expected) == number
        assert found(place) == expected
    assert found("corrections") == set()


def test_what_a_person_has_accepted_is_none_of_them(spark: SparkSession, tried: Tried) -> None:
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
    before, after = found_by(spark, tried)("kafka"), found_by(spark, tried, (finding,))("kafka")
    assert before - after == {row}
    elsewhere = replace(finding, difference=replace(lost, place="table outputs/revenue"))
    assert found_by(spark, tried, (elsewhere,))("kafka") == before
