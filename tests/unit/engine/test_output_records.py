"""Records encoded together are the records encoded one by one, byte for byte."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recount.declare.aggregates import count
from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.expressions import col
from recount.declare.operators.nodes import KEY, Sink
from recount.declare.output import VERSION_HEADER, output_record
from recount.declare.plain_values import PlainValue
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.commit.output_records import output_records
from recount.engine.exchange.graph_computation import GraphComputation
from recount.kafka.transaction import KafkaRecord

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
        RESULT_TIME: st.integers(0, 10**13),
        REVISION: st.integers(0, 9),
        IS_NULL: st.booleans(),
        ORIGIN: st.none() | _text,
    }
)
_result = st.fixed_dictionaries(
    {
        "number": _long,
        "window_start": st.integers(0, 10**13),
        "window_end": st.integers(0, 10**13),
        "n": st.none() | _long,
        RESULT_TIME: st.integers(0, 10**13),
        REVISION: st.integers(0, 9),
        IS_NULL: st.booleans(),
        ORIGIN: st.none(),
    }
)


@pytest.mark.parametrize("name", ["text", "number"])
@given(st.lists(_record, max_size=4))
def test_a_key_is_the_text_that_a_single_record_has(name: str, rows: list[dict[str, Any]]) -> None:
    keyed = stream(_SOURCE).select_key(key=col(name)).to(_TARGET)
    keyed_rows = [{**row, "key": row[name]} for row in rows]
    assert _together(keyed, keyed_rows) == _row_by_row(keyed, keyed_rows)


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
    return list(output_records(sink, pl.DataFrame(rows, schema), version=version))


@given(st.lists(_record, max_size=4))
def test_records_made_together_are_those_made_one_by_one(rows: list[dict[str, Any]]) -> None:
    assert _together(_RECORDS, rows) == _row_by_row(_RECORDS, rows)


@given(st.lists(_result, max_size=4))
def test_results_of_windows_made_together_are_those_made_one_by_one(rows: list[dict[str, Any]]) -> None:
    assert _together(_WINDOWS, rows) == _row_by_row(_WINDOWS, rows)


@pytest.mark.parametrize("name", [name for name, kind in _SCHEMA.fields.items() if kind.element is None])
@given(st.lists(_record, max_size=4))
def test_plain_values_made_together_are_those_made_one_by_one(name: str, rows: list[dict[str, Any]]) -> None:
    plain = Topic(name="target", key="id", value=PlainValue(name=name, kind=_SCHEMA.fields[name]))
    sink = stream(_SOURCE).select(name).to(plain)
    written = [{column: row[column] for column in (KEY, name, RESULT_TIME, REVISION, IS_NULL, ORIGIN)} for row in rows]
    assert _together(sink, written) == _row_by_row(sink, written)


@pytest.mark.parametrize(
    ("name", "cell", "value"),
    [
        ("text", 'a "b"\n', b'a "b"\n'),
        ("text", "", b""),
        ("number", -5, b"-5"),
        ("amount", Decimal("-0.50"), b"-0.50"),
        ("ratio", 1e16, b"1e+16"),
        ("flag", False, b"false"),
        ("text", None, None),
        ("number", None, None),
    ],
)
def test_a_plain_value_is_its_text_alone_and_a_null_one_is_a_null_value(
    name: str, cell: Any, value: bytes | None
) -> None:
    plain = Topic(name="target", key="id", value=PlainValue(name=name, kind=_SCHEMA.fields[name]))
    row = {KEY: "a", name: cell, RESULT_TIME: 1, REVISION: 0, IS_NULL: False, ORIGIN: None}
    [record] = _together(stream(_SOURCE).select(name).to(plain), [row])
    assert record.value == value


def test_decimals_have_their_full_scale_and_texts_are_escaped() -> None:
    row = dict.fromkeys((KEY, "number", "ratio", "flag", "tags", ORIGIN)) | {
        "text": 'a "b"\n',
        "amount": Decimal("-0.50"),
        RESULT_TIME: 1,
        REVISION: 0,
        IS_NULL: False,
    }

    [record] = _together(_RECORDS, [row])

    assert record.value == b'{"text":"a \\"b\\"\\n","number":null,"amount":-0.50,"ratio":null,"flag":null,"tags":null}'


def test_a_record_of_a_later_version_of_the_stream_says_which_and_one_of_the_first_says_nothing() -> None:
    row = {"number": 1, "window_start": 0, "window_end": 5_000, "n": 1, RESULT_TIME: 1, REVISION: 0}
    row |= {IS_NULL: False, ORIGIN: None}

    assert _together(_WINDOWS, [row], version=2) == _row_by_row(_WINDOWS, [row], version=2)
    headers = [dict(_together(_WINDOWS, [row], version=version)[0].headers) for version in (1, 2)]
    assert [found.get(VERSION_HEADER) for found in headers] == [None, b"2"]
