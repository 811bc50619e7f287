"""Stream and recompute find each in its own way how many bytes a result has: as many as are published."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recount.declare.evaluation import evaluate
from recount.declare.operators.nodes import KEY, Filter
from recount.declare.output import Fits, encode_key, encode_plain, encode_value, fits_of
from recount.declare.plain_values import PlainValue
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import stream
from recount.engine.commit.output_records import fitting
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.recompute.rules.result_rules import plain_size, size_of_object

KINDS = {
    "text": STRING,
    "number": LONG,
    "größe 😀": decimal(38, 8),
    "ratio": DOUBLE,
    "flag": BOOLEAN,
    "tags": list_of(STRING),
    "prices": list_of(decimal(9, 2)),
}
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_price = st.decimals(-(10**6), 10**6, places=2)
_cells: dict[str, st.SearchStrategy[Any]] = {
    "string": _text,
    "long": st.integers(-(2**63), 2**63 - 1),
    "decimal": st.decimals(-(10**29), 10**29, places=8),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    str(list_of(STRING)): st.lists(_text, max_size=3),
    str(list_of(decimal(9, 2))): st.lists(_price, max_size=3),
}


def cell(kind: FieldType) -> st.SearchStrategy[Any]:
    return st.none() | _cells[str(kind) if kind.element else kind.kind]


rows = st.fixed_dictionaries({KEY: st.none() | _text, **{name: cell(kind) for name, kind in KINDS.items()}})
TINY = {KEY: "k", **dict.fromkeys(KINDS), "größe 😀": Decimal("-0.00000004")}


def fits(value: PlainValue | None = None) -> Fits:
    source = Topic(name="in", key="id", value=value or RecordSchema(fields=KINDS))
    small = Topic(name="out", key="id", value=value, configs={"max.message.bytes": "4096"})
    node = stream(source).to(small, on_too_large="dead-letter").input
    assert isinstance(node, Filter)
    found = fits_of(node)
    assert found is not None
    return found


def fitted(limit: int, of: Fits, given_rows: list[dict[str, Any]], fields: dict[str, FieldType]) -> list[bool]:
    columns = {field_column(name): [row[name] for row in given_rows] for name in fields}
    schema = {field_column(name): polars_type(kind) for name, kind in fields.items()}
    limited = Fits(of.operator, of.arguments, topic=of.topic, limit=limit)
    return fitting(limited, pl.DataFrame(columns, schema), fields).to_list()


@settings(deadline=None, max_examples=30)
@given(st.lists(rows, min_size=1, max_size=5))
@example([TINY])
def test_a_result_fits_by_the_bytes_of_its_key_and_json(given_rows: list[dict[str, Any]]) -> None:
    fields = {KEY: STRING, **KINDS}
    for row in given_rows:
        value = encode_value({name: row[name] for name in KINDS})
        size = len(encode_key(row[KEY]) or b"") + len(value)
        assert evaluate(fits().measured, row, fields) == size
        assert size_of_object([row[name] for name in KINDS], KINDS) == len(value)
        number = given_rows.index(row)
        assert fitted(size, fits(), given_rows, fields)[number] is True
        assert fitted(size - 1, fits(), given_rows, fields)[number] is False


@pytest.mark.parametrize("kind", [STRING, LONG, DOUBLE, BOOLEAN, decimal(38, 8)], ids=str)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_a_plain_value_has_the_bytes_of_its_text(kind: FieldType, data: st.DataObject) -> None:
    value = PlainValue(name="one", kind=kind)
    row = {KEY: "k", "one": data.draw(cell(kind))}
    fields = {KEY: STRING, "one": kind}
    size = 1 + len(encode_plain(row["one"]) or b"")
    assert evaluate(fits(value).measured, row, fields) == size == 1 + plain_size(row["one"], kind)
    assert fitted(size, fits(value), [row], fields) == [True]
    assert fitted(size - 1, fits(value), [row], fields) == [False]


def test_no_result_of_an_empty_batch_is_measured() -> None:
    assert fitted(1, fits(), [], {KEY: STRING, **KINDS}) == []
