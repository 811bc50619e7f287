"""The digest of a log or a table follows from its rows alone, and from every one of them (issue 12, 4)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from recount.recompute.digests import RowsDigest

HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
SCHEMA = pa.schema(
    {
        "offset": pa.int64(),
        "timestamp_ms": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS,
        "amount": pa.decimal128(15, 2),
        "is_null": pa.bool_(),
        "share": pa.float64(),
    }
)


def record(offset: int, **change: Any) -> dict[str, Any]:
    row = {"offset": offset, "timestamp_ms": offset * 10, "key": None, "value": b"v%d" % offset, "headers": None}
    return {**row, "amount": None, "is_null": False, "share": 0.5, **change}


ROWS = [
    record(0),
    record(1, key=b"", value=None),
    record(3, key=b"EU", headers=[{"key": "a", "value": b"1"}, {"key": "b", "value": None}]),
    record(4, amount=Decimal("1.50"), share=None),
    record(9, headers=[], is_null=None),
    record(10, key=b"US", headers=[{"key": "", "value": b""}]),
]


def table(rows: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def digest(*batches: pa.Table) -> str:
    made = RowsDigest()
    for batch in batches:
        made.update(batch)
    return made.digest().sha256


@pytest.mark.parametrize("cuts", [[1], [2], [3], [4], [5], [1, 2, 3, 4, 5], [2, 2, 4]])
def test_it_does_not_depend_on_where_batches_are_cut(cuts: list[int]) -> None:
    whole = table(ROWS)
    bounds = [0, *cuts, len(ROWS)]
    pieces = [whole.slice(start, end - start) for start, end in pairwise(bounds)]
    assert digest(*pieces) == digest(whole)
    copies = [table(ROWS[start:end]) for start, end in pairwise(bounds)]
    assert digest(*copies) == digest(whole)


@pytest.mark.parametrize(
    "changed",
    [
        [*ROWS[1:], ROWS[0]],
        ROWS[:-1],
        [*ROWS, record(11)],
        [*ROWS[:-1], ROWS[-1], ROWS[-1]],
        [record(0, timestamp_ms=1), *ROWS[1:]],
        [record(0, value=b"v"), *ROWS[1:]],
        [record(0, value=None), *ROWS[1:]],
        [record(0, key=b""), *ROWS[1:]],
        [record(0, value=b"v0v"), record(1, key=b"", value=b""), *ROWS[2:]],
        [record(0, headers=[]), *ROWS[1:]],
        [*ROWS[:2], record(3, key=b"EU", headers=[{"key": "a", "value": b"1"}, {"key": "b", "value": b""}]), *ROWS[3:]],
        [
            *ROWS[:2],
            record(3, key=b"EU", headers=[{"key": "b", "value": b"1"}, {"key": "a", "value": None}]),
            *ROWS[3:],
        ],
        [record(0, amount=Decimal("0.00")), *ROWS[1:]],
        [record(0, amount=Decimal("0.01")), *ROWS[1:]],
        [record(0, is_null=True), *ROWS[1:]],
        [record(0, share=0.25), *ROWS[1:]],
    ],
)
def test_it_is_another_one_for_every_change_of_a_row_or_of_their_order(changed: list[dict[str, Any]]) -> None:
    assert digest(table(changed)) != digest(table(ROWS))


def test_bytes_that_move_from_one_column_or_row_to_the_next_change_it() -> None:
    one, other = table([record(0, key=b"ab", value=b"c")]), table([record(0, key=b"a", value=b"bc")])
    assert digest(one) != digest(other)
    assert digest(table([record(0, value=b"ab"), record(1, value=b"c")])) != digest(
        table([record(0, value=b"a"), record(1, value=b"bc")])
    )


def test_a_column_of_nulls_that_is_added_later_changes_nothing() -> None:
    wider = table(ROWS).append_column("later", pa.nulls(len(ROWS), pa.string()))
    assert digest(wider) == digest(table(ROWS))


def test_how_arrow_lays_out_texts_and_integers_changes_nothing() -> None:
    narrow = table(ROWS)
    wide = narrow.cast(pa.schema(SCHEMA).set(2, pa.field("key", pa.large_binary())))
    assert digest(wide) == digest(narrow)
    numbers = pa.table({"n": pa.array([1, None, 3], pa.int32())})
    assert digest(numbers) == digest(numbers.cast(pa.schema({"n": pa.int64()})))


def test_no_rows_have_a_digest() -> None:
    assert digest() == digest(table([]))
    assert digest() != digest(table(ROWS[:1]))
