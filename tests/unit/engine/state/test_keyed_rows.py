"""Rows under an identity are the same as in a plain table, and a batch copies in proportion to what it touches."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recount.engine.state.keyed_rows import ARRIVED, DELETED, KeyedRows, RunSizes

SCHEMA: dict[str, pl.DataType] = {"id": pl.String(), "at": pl.Int64(), "group": pl.String(), "n": pl.Int64()}
IDENTITY = ["id", "at"]
Row = tuple[str | None, int | None, str | None, int]

names = st.sampled_from(["a", "b", "c", None])
rows = st.tuples(names, st.integers(0, 9) | st.none(), names, st.integers(0, 99))
steps = st.lists(st.tuples(st.sampled_from(["put", "remove", "read", "restart"]), st.lists(rows, max_size=12)))


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, SCHEMA, orient="row")


def numbered(first: int, end: int, n: int = 0) -> pl.DataFrame:
    numbers = pl.int_range(first, end, eager=True)
    name = pl.Series("id", [f"k{number}" for number in numbers], pl.String)
    return pl.DataFrame({"id": name, "at": numbers, "group": [f"g{number // 10}" for number in numbers], "n": n}).cast(
        pl.Schema(SCHEMA)
    )


@pytest.mark.parametrize("sizes", [RunSizes(), RunSizes(small=0, most=40), RunSizes(small=4, most=9)])
@settings(max_examples=20, deadline=None)
@given(steps=steps)
def test_they_are_a_table_in_the_order_in_which_rows_were_put_last(
    sizes: RunSizes, steps: list[tuple[str, list[Row]]]
) -> None:
    state, copy = KeyedRows(SCHEMA, IDENTITY, sizes), KeyedRows(SCHEMA, IDENTITY, sizes)
    table: dict[tuple[str | None, int | None], Row] = {}
    for what, given_rows in steps:
        last: dict[tuple[str | None, int | None], Row] = {}
        for row in given_rows:
            last.pop(row[:2], None)
            last[row[:2]] = row
        if what == "put":
            state.put(frame(given_rows))
            table = {place: row for place, row in table.items() if place not in last} | last
        elif what == "remove":
            state.remove(frame(given_rows))
            table = {place: row for place, row in table.items() if place not in last}
        elif what == "restart":
            state.load(state.rows)
        asked = [(row[2],) for row in given_rows]
        assert state.rows.rows() == list(table.values())
        assert state.height == len(table)
        assert state.of(frame(given_rows), IDENTITY).rows() == [table[place] for place in table if place in last]
        assert state.of(frame(given_rows), ["group"]).rows() == [row for row in table.values() if row[2:3] in asked]
        assert state.where(pl.col("n") > 50).rows() == [row for row in table.values() if row[3] > 50]
        for bound in {50, *(row[3] for row in given_rows)}:
            assert state.until("n", bound).rows() == [row for row in table.values() if row[3] <= bound]
            odd = [row for row in table.values() if row[3] <= bound and row[3] % 2]
            assert state.until("n", bound, pl.col("n") % 2 == 1).rows() == odd
        assert state.until("n", None).is_empty()
        assert state.highest("n") >= max((row[3] for row in table.values()), default=-1)
    changes = state.changes()
    copy.put(changes.filter(~pl.col(DELETED)))
    copy.remove(changes.filter(DELETED))
    if all(what != "restart" for what, _ in steps):
        assert copy.rows.sort(IDENTITY).equals(state.rows.sort(IDENTITY))


def test_a_row_with_the_highest_number_there_is_stands_in_place_of_the_one_before() -> None:
    state = KeyedRows({ARRIVED: pl.Int64(), "n": pl.Int64()}, [ARRIVED], RunSizes(small=2))
    for first, n in ((0, 0), (4, 1), (9, 2)):
        state.put(pl.DataFrame([(first + at, n) for at in range(5)], state.schema, orient="row"))
    assert state.rows.rows() == [
        *((at, 0) for at in range(4)),
        *((at, 1) for at in range(4, 9)),
        *((at, 2) for at in range(9, 14)),
    ]
    assert state.changes().filter(~pl.col(DELETED)).drop(DELETED).sort(ARRIVED).equals(state.rows.sort(ARRIVED))


def test_what_a_batch_copies_does_not_grow_with_what_is_held() -> None:
    """100 batches put 100 rows, half of them in place of others, and remove 50; a table that is copied copies 10^7."""
    state = KeyedRows(SCHEMA, IDENTITY, RunSizes(small=1_000))
    state.load(numbered(0, 100_000))
    for batch in range(100):
        state.put(
            pl.concat(
                [numbered(batch * 900, batch * 900 + 50, 1), numbered(1_000_000 + batch * 50, 1_000_050 + batch * 50)]
            )
        )
        state.remove(numbered(batch * 900 + 400, batch * 900 + 450))
        state.of(numbered(batch * 900, batch * 900 + 50), ["group"])
    assert state.height == 100_000 + 100 * (50 - 50)
    assert state.copied < 20 * 100 * 100
    assert state.runs < 10


def test_what_is_forgotten_in_the_order_of_its_coming_is_copied_about_once() -> None:
    """As a join does: each batch puts 1,000 rows and forgets those of the batch 50 before; 50,000 are held."""
    state = KeyedRows(SCHEMA, IDENTITY, RunSizes(small=1_000))
    for batch in range(300):
        state.put(numbered(batch * 1_000, batch * 1_000 + 1_000))
        state.remove(state.where(pl.col("at") < (batch - 49) * 1_000))
    assert state.height == 50_000
    assert state.copied < 300_000 * 8
    assert state.runs < 10


def test_no_run_is_longer_than_may_be_copied_at_once() -> None:
    state = KeyedRows(SCHEMA, IDENTITY, RunSizes(small=10, most=5_000))
    state.load(numbered(0, 20_000))
    before = state.copied
    state.put(numbered(50_000, 50_001))
    assert state.copied - before <= 5_000
    assert state.height == 20_001


def test_rows_that_are_mostly_removed_give_their_memory_back() -> None:
    state = KeyedRows(SCHEMA, IDENTITY, RunSizes(small=10))
    state.load(numbered(0, 1_000))
    state.remove(numbered(0, 500))
    assert state.copied == 0
    state.remove(numbered(500, 501))
    assert state.copied == state.height == 499
