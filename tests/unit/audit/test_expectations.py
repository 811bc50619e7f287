"""Suites are JSON files that users add to; what Great Expectations and the judge say must be the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recount.audit.expectations.suites import (
    OUTPUTS,
    QUERY,
    RECONCILIATION,
    SUITES,
    Judged,
    declared_columns,
    disagreements,
    expectations_of,
)
from recount.audit.expectations.validation import main
from recount.declare.registry import declared
from recount.runtime.errors import Terminal

STREAM = "revenue-by-region"
NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "revenue"}}


def test_a_suite_of_one_stream_is_added_to_that_of_all(tmp_path: Path) -> None:
    every = expectations_of(SUITES, OUTPUTS, STREAM, "revenue")
    (tmp_path / STREAM).mkdir()
    (tmp_path / STREAM / "revenue.json").write_text(json.dumps({"expectations": [NOT_NULL]}))
    assert expectations_of(tmp_path, OUTPUTS, STREAM, "revenue") == [*every, NOT_NULL]
    assert expectations_of(tmp_path, OUTPUTS, "another", "revenue") == every


def test_a_table_with_the_name_of_a_suite_has_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / STREAM).mkdir()
    (tmp_path / STREAM / "reconciliation.json").write_text(json.dumps({"expectations": [NOT_NULL]}))
    assert NOT_NULL in expectations_of(tmp_path, RECONCILIATION, STREAM)
    assert NOT_NULL not in expectations_of(tmp_path, OUTPUTS, STREAM, "reconciliation")
    (tmp_path / STREAM / "outputs.reconciliation.json").write_text(json.dumps({"expectations": [NOT_NULL]}))
    assert NOT_NULL in expectations_of(tmp_path, OUTPUTS, STREAM, "reconciliation")
    # a suite of a project is put to every stream instead of that of Recount
    (tmp_path / f"{OUTPUTS}.json").write_text(json.dumps({"expectations": [NOT_NULL]}))
    assert expectations_of(tmp_path, OUTPUTS, STREAM, "revenue") == [NOT_NULL]
    assert expectations_of(tmp_path, RECONCILIATION, "another") == expectations_of(SUITES, RECONCILIATION, "another")


def test_the_lines_of_a_query_are_one_text_and_a_file_that_is_no_suite_is_refused_with_its_name(tmp_path: Path) -> None:
    queries = [
        one["kwargs"][QUERY] for one in expectations_of(SUITES, RECONCILIATION, STREAM) if QUERY in one["kwargs"]
    ]
    assert len(queries) == 3
    assert all(isinstance(query, str) and "{batch}" in query for query in queries)
    (tmp_path / f"{OUTPUTS}.json").write_text('{"expectations": [{"type": "no kwargs"}]}')
    with pytest.raises(Terminal) as refused:
        expectations_of(tmp_path, OUTPUTS, STREAM)
    assert str(tmp_path / f"{OUTPUTS}.json") in str(refused.value.given)


def test_no_suite_reads_a_verdict_and_a_table_has_the_declared_fields() -> None:
    for path in SUITES.glob("*.json"):
        assert "verdict" not in path.read_text()
    [sink] = declared().topology(STREAM).written
    kinds = {one["kwargs"]["column"]: one["kwargs"]["type_"] for one in declared_columns(sink)}
    assert kinds["revenue"] == "DecimalType"
    assert kinds["orders"] == kinds["window_start"] == "LongType"
    with pytest.raises(Terminal):
        main(stream=["a", "b"], audit=["x"])


@pytest.mark.parametrize(
    ("judged", "unexpected", "agrees"),
    [
        (Judged(must=0, may=0), 0, True),
        (Judged(must=0, may=0), 1, False),
        (Judged(must=2, may=2), 0, False),
        (Judged(must=2, may=2), 5, True),
        (Judged(must=0, may=3), 0, True),
        (Judged(must=0, may=3), 1, True),
        (Judged(must=3, may=3, is_exact=True), 3, True),
        (Judged(must=3, may=3, is_exact=True), 2, False),
        (Judged(must=3, may=3, is_exact=True), 4, False),
    ],
)
def test_what_one_finds_the_other_must_find(judged: Judged, unexpected: int, agrees: bool) -> None:
    assert judged.agrees(unexpected) is agrees


def test_a_suite_without_the_expectation_found_nothing() -> None:
    judged = {"kafka": Judged(must=2, may=2, is_exact=True), "delta": Judged(must=0, may=0, is_exact=True)}
    assert disagreements({"kafka": [2]}, judged) == []
    assert disagreements({}, judged) == ["kafka: Great Expectations found 0, the audit's judge 2"]
