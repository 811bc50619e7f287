"""Records encoded together are those encoded one by one, byte for byte, and fit by as many bytes as are published."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recount.declare.aggregates import count
from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.evaluation import evaluate
from recount.declare.expressions import col
from recount.declare.operators.nodes import KEY, Filter, Sink
from recount.declare.output import VERSION_HEADER, Fits, encode_key, encode_plain, encode_value, fits_of, output_record
from recount.declare.plain_values import PlainValue
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.commit.output_records import fitting, output_records, record_columns
from recount.engine.exchange.graph_computation import GraphComputation
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.kafka.transaction import KafkaRecord
from recount.recompute.rules.result_rules import plain_size, size_of_object

_SCHEMA = RecordSchema.of(
    text=STRING, number=LONG, amount=decimal(15, 2), ratio=DOUBLE, flag=BOOLEAN, tags=list_of(STRING)
)
_SOURCE = Topic(name="source", key="id", value=_SCHEMA)
_TARGET = Topic(name="target", key="id")
_RECORDS = stream(_SOURCE).to(_TARGET)
_WINDOWS = (
    stream(_SOURCE)
    .select_key(number=col("number"))
    .windowed_by(tumbling("5 s", grace="0 s"))
    .aggregate(n=count())
    .emit_final()
    .to(_TARGET)
)


def _plain(name: str) -> Sink:
    plain = Topic(name="target", key="id", value=PlainValue(name=name, kind=_SCHEMA.fields[name]))
    return stream(_SOURCE).select(name).to(plain)


_SINKS = {
    "records": _RECORDS,
    "windows": _WINDOWS,
    **{f"key {name}": stream(_SOURCE).select_key(key=col(name)).to(_TARGET) for name in ("text", "number")},
    **{f"plain {name}": _plain(name) for name, kind in _SCHEMA.fields.items() if kind.element is None},
}
_text = st.text(max_size=5)
_long = st.integers(-(2**63), 2**63 - 1)
_record = st.fixed_dictionaries(
    {
        KEY: st.none() | _text,
        "text": st.none() | _text,
        "number": st.none() | _long,
        "amount": st.none() | st.decimals(-(10**13) + 1, 10**13 - 1, places=2),
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.none() | st.booleans(),
        "tags": st.none() | st.lists(_text, max_size=3),
        "window_start": st.integers(0, 10**13),
        "window_end": st.integers(0, 10**13),
        "n": st.none() | _long,
        RESULT_TIME: st.integers(0, 10**13),
        REVISION: st.integers(0, 9),
        IS_NULL: st.booleans(),
        ORIGIN: st.none() | _text,
    }
)


def _row_by_row(sink: Sink, rows: list[dict[str, Any]], version: int = 1) -> list[KafkaRecord]:
    records = [
        output_record(
            row,
            key=sink.key,
            fields=sink.fields,
            timestamp_ms=row[RESULT_TIME],
            revision=row[REVISION],
            origin="stream",
            is_null=row[IS_NULL],
            source=row[ORIGIN],
            version=version,
            plain=sink.topic.plain_field,
        )
        for row in rows
    ]
    return [
        KafkaRecord(
            topic=sink.topic.name,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
            timestamp_ms=record.timestamp_ms,
        )
        for record in records
    ]


def _together(sink: Sink, rows: list[dict[str, Any]], version: int = 1) -> list[KafkaRecord]:
    schema = GraphComputation(Topology(name="flow", sinks=[sink])).output_schema(sink)
    return list(output_records(sink, record_columns(sink, pl.DataFrame(rows, schema)), version=version))


@pytest.mark.parametrize("name", _SINKS)
@settings(deadline=None, max_examples=40)
@given(st.lists(_record, max_size=4))
def test_records_made_together_are_those_made_one_by_one(name: str, records: list[dict[str, Any]]) -> None:
    sink = _SINKS[name]
    schema = GraphComputation(Topology(name="flow", sinks=[sink])).output_schema(sink)
    of = "key" if name.startswith("key") else None
    rows = [{column: row[name.split()[1] if column == of else column] for column in schema} for row in records]
    assert _together(sink, rows) == _row_by_row(sink, rows)


def test_a_record_of_a_later_version_of_the_stream_says_which_and_one_of_the_first_says_nothing() -> None:
    row = {"number": 1, "window_start": 0, "window_end": 5_000, "n": 1, RESULT_TIME: 1, REVISION: 0}
    row |= {IS_NULL: False, ORIGIN: None}
    assert _together(_WINDOWS, [row], version=2) == _row_by_row(_WINDOWS, [row], version=2)
    headers = [dict(_together(_WINDOWS, [row], version=version)[0].headers) for version in (1, 2)]
    assert [found.get(VERSION_HEADER) for found in headers] == [None, b"2"]


KINDS = {
    "text": STRING,
    "number": LONG,
    "größe 😀": decimal(38, 8),
    "ratio": DOUBLE,
    "flag": BOOLEAN,
    "tags": list_of(STRING),
    "prices": list_of(decimal(9, 2)),
}
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
