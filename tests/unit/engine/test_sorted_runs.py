"""Rows by identity, whatever was put when: the same as a dictionary."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recount.engine.state.open_windows import SortedRuns

SCHEMA = {"key": pl.String(), "start": pl.Int64(), "n": pl.Int64()}
EMPTY = SortedRuns(schema=SCHEMA, identity=["key", "start"], small=2)
"""Few rows make several runs, as millions do by default."""

Rows = dict[tuple[str, int], int]
SOME_ROWS = st.dictionaries(
    st.tuples(st.sampled_from(["ann", "bob", "eve", ""]), st.integers(0, 5)), st.integers(0, 99), max_size=12
)


def frame(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame([(*place, n) for place, n in rows.items()], EMPTY.schema, orient="row")


def content(rows: pl.DataFrame) -> Rows:
    found = {(key, start): n for key, start, n in rows.rows()}
    assert len(found) == rows.height, "an identity is there once"
    return found


class AllAlike(SortedRuns):
    """Every hash is the same."""

    def _hashed(self, rows: pl.DataFrame) -> pl.DataFrame:
        return super()._hashed(rows).with_columns(pl.lit(7, pl.UInt64).alias("__hash"))


@given(st.lists(SOME_ROWS), SOME_ROWS)
def test_the_last_row_of_an_identity_counts(puts: list[Rows], wanted: Rows) -> None:
    runs, expected = EMPTY, Rows()
    for rows in puts:
        runs = runs.put(frame(rows))
        expected.update(rows)
    assert content(runs.rows) == expected
    assert content(runs.of(frame(wanted))) == {place: expected[place] for place in wanted if place in expected}


@given(st.lists(SOME_ROWS), st.integers(0, 5))
def test_a_filter_keeps_its_rows_and_no_row_that_was_hidden(puts: list[Rows], start: int) -> None:
    runs, expected = EMPTY, Rows()
    for rows in puts:
        runs = runs.put(frame(rows))
        expected.update(rows)
    later = {place: n for place, n in expected.items() if place[1] > start}
    assert content(runs.filter(pl.col("start") > start).rows) == later
    assert content(runs.without(pl.col("start") <= start).rows) == later


@given(SOME_ROWS, SOME_ROWS, SOME_ROWS)
def test_rows_put_below_show_where_nothing_was_put_above(below: Rows, above: Rows, wanted: Rows) -> None:
    runs = EMPTY.put(frame(above)).above(EMPTY.put(frame(below)))
    expected = {**below, **above}
    assert content(runs.rows) == expected
    assert content(runs.of(frame(wanted))) == {place: expected[place] for place in wanted if place in expected}


@pytest.mark.parametrize(("rows", "runs"), [(4, 1), (5, 1), (20, 2)])
def test_a_run_is_joined_with_one_that_has_outgrown_a_quarter_of_it(rows: int, runs: int) -> None:
    large = EMPTY.put(frame({("ann", start): 0 for start in range(rows)}))
    assert len(large.put(frame({("bob", start): 0 for start in range(5)})).runs) == runs


def test_rows_whose_hashes_are_alike_are_told_apart() -> None:
    empty = AllAlike(schema=SCHEMA, identity=["key", "start"], small=2)
    runs = empty.put(frame({("ann", 1): 1, ("bob", 1): 2, ("eve", 1): 3})).put(frame({("bob", 1): 4}))
    assert content(runs.of(frame({("ann", 1): 0, ("bob", 1): 0}))) == {("ann", 1): 1, ("bob", 1): 4}
    assert content(runs.rows) == {("ann", 1): 1, ("bob", 1): 4, ("eve", 1): 3}
