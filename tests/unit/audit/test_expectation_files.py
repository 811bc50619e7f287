"""Suites are JSON files that users add to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recount.audit.expectations.suites import OUTPUTS, QUERY, RECONCILIATION, SUITES, declared_columns, expectations_of
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


def test_a_suite_of_a_project_is_put_to_every_stream_instead_of_that_of_recount(tmp_path: Path) -> None:
    (tmp_path / f"{OUTPUTS}.json").write_text(json.dumps({"expectations": [NOT_NULL]}))
    assert expectations_of(tmp_path, OUTPUTS, STREAM, "revenue") == [NOT_NULL]
    assert expectations_of(tmp_path, RECONCILIATION, STREAM) == expectations_of(SUITES, RECONCILIATION, STREAM)


def test_the_lines_of_a_query_are_one_text_for_great_expectations() -> None:
    queries = [
        one["kwargs"][QUERY] for one in expectations_of(SUITES, RECONCILIATION, STREAM) if QUERY in one["kwargs"]
    ]
    assert len(queries) == 3
    assert all(isinstance(query, str) and "{batch}" in query for query in queries)


def test_a_file_that_is_no_suite_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / f"{OUTPUTS}.json").write_text('{"expectations": [{"type": "no kwargs"}]}')
    with pytest.raises(Terminal) as refused:
        expectations_of(tmp_path, OUTPUTS, STREAM)
    assert str(tmp_path / f"{OUTPUTS}.json") in str(refused.value.given)


def test_no_suite_reads_a_verdict() -> None:
    for path in SUITES.glob("*.json"):
        assert "verdict" not in path.read_text()


def test_a_table_has_the_declared_fields() -> None:
    [sink] = declared().topology(STREAM).written
    kinds = {one["kwargs"]["column"]: one["kwargs"]["type_"] for one in declared_columns(sink)}
    assert kinds["revenue"] == "DecimalType"
    assert kinds["orders"] == kinds["window_start"] == "LongType"


def test_streams_and_audits_go_in_pairs() -> None:
    with pytest.raises(Terminal):
        main(stream=["a", "b"], audit=["x"])
