"""Timestamps, dates, bytes and nested values are the same to the reference, the stream and the recompute."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.formats.avro_writers import by_recompute, by_stream, wire

from recount.declare.schema import (
    BYTES,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    BadRecord,
    RecordSchema,
    decimal,
    list_of,
    nested,
)
from recount.declare.values import milliseconds
from recount.formats.json_values import ValueDecoder
from recount.recompute.parsing import Parser
from recount.recompute.rules.value_rules import Bad, told_as

FORMS = RecordSchema.of(at=TIMESTAMP, day=DATE, raw=BYTES, n=LONG, required=("at",))
PATHS = RecordSchema.of(
    at=nested("meta", "at", kind=TIMESTAMP),
    city=nested("address", "city", kind=STRING),
    amount=nested("paid", "in", "eur", kind=decimal(20, 2)),
    tags=nested("meta", "tags", kind=list_of(STRING)),
    price=nested("paid", "price", kind=decimal(9, 2)),
    prices=nested("paid", "prices", kind=list_of(decimal(9, 2))),
    rate=nested("paid", "rate", kind=DOUBLE),
    n=LONG,
)
MOMENTS = [
    ("1970-01-01T00:00:00Z", 0),
    ("1970-01-01T00:00:00.0009Z", 0),
    ("1970-01-01T00:00:00.001Z", 1),
    ("1970-01-01T00:00:01.5Z", 1_500),
    ("1969-12-31T23:59:59.9999Z", -1),
    ("1970-01-01T01:00:00+01:00", 0),
    ("1969-12-31T18:30:00-05:30", 0),
    ("2000-02-29T12:00:00.123456789Z", 951_825_600_123),
    ("0001-01-01T00:00:00Z", -62_135_596_800_000),
    ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ("1970-01-02T00:00:00+23:59", 60_000),
]
NO_MOMENTS = [
    *("", "now", "1970-01-01", "1970-01-01T00:00Z", "1970-01-01T00:00:00", "1970-01-01 00:00:00Z"),
    *("1970-01-01T00:00:00z", "1970-01-01t00:00:00Z"),
    *("1970-01-01T24:00:00Z", "1970-01-01T00:60:00Z", "1970-01-01T00:00:60Z", "1970-02-29T00:00:00Z"),
    *("1900-02-29T00:00:00Z",),
    *("0000-01-01T00:00:00Z", "1970-13-01T00:00:00Z", "1970-00-01T00:00:00Z"),
    *("1970-01-00T00:00:00Z", "1970-01-32T00:00:00Z"),
    *("1970-01-01T00:00:00+24:00", "1970-01-01T00:00:00+00:60", "1970-01-01T00:00:00+0100", "1970-01-01T00:00:00.Z"),
    *("1970-01-01T00:00:00.0123456789Z", "1970-01-01T00:00:00Z\n", "٢٠٢٦-01-01T00:00:00Z", "1970-01-01T00:00:00Z "),
]


@pytest.mark.parametrize(("text", "expected"), [*MOMENTS, *((text, None) for text in NO_MOMENTS)])
def test_a_moment_is_the_same_number_to_stream_and_recompute(text: str, expected: int | None) -> None:
    assert (milliseconds(text), told_as("timestamp", text)) == (expected, expected)


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-1439, 1439), st.integers(0, 9))
def test_every_moment_of_the_calendar_is_read_by_both(moment: datetime, east: int, digits: int) -> None:
    sign, (hours, minutes) = "-" if east < 0 else "+", divmod(abs(east), 60)
    fraction = f".{moment.microsecond:06}000"[: digits + 1] if digits else ""
    text = f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f"{fraction}{sign}{hours:02}:{minutes:02}"
    shown = moment.replace(microsecond=int(fraction[1:].ljust(6, "0")[:6]) if digits else 0)
    expected = (shown - datetime(1970, 1, 1, tzinfo=UTC) - timedelta(minutes=east)) // timedelta(milliseconds=1)
    assert (milliseconds(text), told_as("timestamp", text)) == (expected, expected)


def by_all(values: list[bytes | None], declared: RecordSchema) -> list[dict[str, Any] | str | None]:
    """Rows, None for a null value and the reason of a bad one; asserts that all three say the same."""
    told: list[dict[str, Any] | str | None] = []
    for value in values:
        try:
            told.append(None if value is None else declared.decode(value))
        except BadRecord as bad:
            told.append(bad.reason)
    decoded, parsed = ValueDecoder(declared).decode(values), Parser(declared, list(declared.fields)).parsed(values)
    bad_of_stream = {fault.index: fault.reason for fault in decoded.faults}
    bad_of_recompute = {index: reason for index, (reason, _) in parsed.bad.items()}
    for columns, bad in ((decoded.columns, bad_of_stream), (parsed.columns, bad_of_recompute)):
        rows = [{name: columns[name][index].as_py() for name in declared.fields} for index in range(len(values))]
        seen = [bad.get(index, None if values[index] is None else row) for index, row in enumerate(rows)]
        assert seen == told
    return told


def test_forms_in_json_are_texts() -> None:
    good = {"at": "1970-01-01T00:00:01Z", "day": "2024-02-29", "raw": "AQI=", "n": 1}
    changes: list[dict[str, Any]] = [
        *({}, {"day": None, "raw": None}, {"raw": ""}, {"at": None}, {"at": 5}, {"at": 0}, {"at": ""}, {"at": ["x"]}),
        *({"day": "2023-02-29"}, {"day": "2024-2-29"}, {"day": 0}, {"day": ""}, {"day": "20240229"}),
        *({"raw": "AQI"}, {"raw": "AQJ="}, {"raw": "AQI=\n"}, {"raw": "-_8="}, {"raw": "é"}, {"raw": False}),
        {"n": "1"},
    ]
    values: list[bytes | None] = [json.dumps({**good, **change}).encode() for change in changes]
    told = by_all([*values, None, b"{"], FORMS)
    assert told[:3] == [
        {"at": 1_000, "day": "2024-02-29", "raw": "AQI=", "n": 1},
        {"at": 1_000, "day": None, "raw": None, "n": 1},
        {"at": 1_000, "day": "2024-02-29", "raw": "", "n": 1},
    ]
    assert told[3:-2] == ["schema"] * (len(changes) - 3)
    assert told[-2:] == [None, "undecodable"]
    # alone, so that msgspec is not left for the sake of the others
    assert [by_all([value], FORMS)[0] for value in values] == told[:-2]


def test_half_a_character_is_bad_wherever_it_is_and_can_be_told() -> None:
    declared = RecordSchema.of(day=DATE, city=nested("to", "city", kind=STRING), n=LONG)
    half = r'"\ud800"'
    written = [f'{{"to":{half}}}', f'{{"to":{{"city":{half}}}}}', f'{{"day":{half}}}', f'{{"n":{half}}}']
    values: list[bytes | None] = [text.encode() for text in written]
    assert by_all(values, declared) == ["schema"] * 4
    details = [fault.detail for fault in ValueDecoder(declared).decode(values).faults]
    details += [detail for _, detail in Parser(declared, ["n"]).parsed(values).bad.values()]
    # both go into columns, which take no half characters
    assert [len(pa.array([detail], pa.string())) for detail in details] == [1] * 8
    for fault in (BadRecord("schema", "\ud800"), Bad("schema", "\ud800")):
        assert fault.detail == r"\ud800"


@given(st.binary(max_size=40))
def test_any_bytes_are_text_in_base64(raw: bytes) -> None:
    text = base64.b64encode(raw).decode()
    [row] = by_all([json.dumps({"at": "1970-01-01T00:00:00Z", "raw": text}).encode()], FORMS)
    assert isinstance(row, dict) and row["raw"] == text


def test_a_path_in_json_is_null_where_it_ends_and_bad_where_it_leads_into_no_object() -> None:
    documents: list[dict[str, Any]] = [
        {
            "meta": {"at": "1970-01-01T00:00:01Z", "tags": ["a"]},
            "address": {"city": "Bonn"},
            "paid": {"in": {"eur": "1.5"}, "price": 1.1, "prices": [1, "2.20"], "rate": 2},
        },
        {"meta": None, "address": {"city": None}, "n": 7},
        {},
        {"paid": {"in": {}}},
        {"paid": {"in": 5.5}},
        {"paid": {"price": 1.234}},
        {"paid": {"prices": [1.234]}},
        {"paid": {"rate": "2"}},
        {"n": 2**63},
        {"paid": {"in": []}},
        {"address": "Bonn"},
        {"address": {"city": 5}},
        {"meta": {"at": 0}},
        {"meta": {"tags": [None]}},
        {"paid": {"in": {"eur": 1.234}}},
    ]
    told = by_all([json.dumps(one).encode() for one in documents], PATHS)
    nothing = dict.fromkeys(PATHS.fields)
    first = {"at": 1_000, "city": "Bonn", "amount": Decimal("1.50"), "tags": ["a"], "n": None}
    assert told[0] == {**first, "price": Decimal("1.10"), "prices": [Decimal("1.00"), Decimal("2.20")], "rate": 2.0}
    assert told[1:4] == [{**nothing, "n": 7}, nothing, nothing]
    assert told[4:] == ["schema"] * 11
    assert [by_all([json.dumps(one).encode()], PATHS)[0] for one in documents] == told


OVERLAPPING = [
    RecordSchema.of(x=nested("a", kind=LONG), y=nested("a", kind=LONG)),
    RecordSchema.of(a=STRING, x=nested("a", "b", kind=LONG)),
    RecordSchema.of(x=nested("a", "b", kind=LONG), a=STRING),
    RecordSchema.of(x=nested("a", "b", "c", kind=LONG), y=nested("a", "b", kind=LONG)),
    RecordSchema.of(x=nested("a", 'b"', kind=LONG), y=nested("", "b", kind=LONG)),
    RecordSchema.of(x=nested("a", "b", kind=LONG), y=nested("a", "c", kind=decimal(20, 2)), required=("y",)),
    RecordSchema.of(x=nested("a", "b", kind=LONG), b=nested("", "b", kind=DATE), required=("b",)),
]
VALUES = [1, "2024-02-29", None, 2**63, "1.5", [], {}]


@given(
    st.sampled_from(OVERLAPPING),
    st.lists(
        st.recursive(
            st.sampled_from(VALUES),
            lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c", "x", 'b"', ""]), inner),
            max_leaves=6,
        ),
        max_size=4,
    ),
)
def test_paths_that_meet_are_read_by_all_alike(declared: RecordSchema, documents: list[Any]) -> None:
    by_all([json.dumps(one).encode() for one in documents], declared)


def test_of_a_name_that_is_written_twice_the_last_one_counts() -> None:
    schema = RecordSchema.of(x=nested("a", "b", kind=LONG), y=nested("a", "c", kind=LONG))
    [row, other] = by_all([b'{"a":{"b":1},"a":{"c":2}}', b'{"a":{"b":1},"a":null}'], schema)
    assert (row, other) == ({"x": None, "y": 2}, {"x": None, "y": None})


@pytest.mark.parametrize("kind", [STRING, DATE, nested("x", kind=LONG)])
def test_a_value_of_any_depth_is_bad_and_no_error(kind: Any) -> None:
    schema = RecordSchema.of(x=kind)
    values = [b'{"x":' + b"[" * depth + b"]" * depth + b"}" for depth in range(700, 1100)]
    for value in values:
        with pytest.raises(BadRecord):
            schema.decode(value)
    assert len(ValueDecoder(schema).decode(values).faults) == len(values)
    assert len(Parser(schema, ["x"]).parsed(values).bad) == len(values)


def _record(name: str, **fields: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": of} for field, of in fields.items()]}


WRITER = _record(
    "Event",
    meta=[
        "null",
        _record(
            "Meta",
            at=["null", {"type": "long", "logicalType": "timestamp-micros"}],
            tags={"type": "array", "items": "string"},
        ),
    ],
    address={"type": "map", "values": "string"},
    day={"type": "int", "logicalType": "date"},
    raw={"type": "fixed", "name": "Two", "size": 2},
    text="string",
)
EVENT = RecordSchema.of(
    at=nested("meta", "at", kind=TIMESTAMP),
    tags=nested("meta", "tags", kind=list_of(STRING)),
    city=nested("address", "city", kind=STRING),
    day=DATE,
    raw=BYTES,
    said=nested("text", kind=TIMESTAMP),
    other=nested("meta", "none", kind=LONG),
)


def by_both(values: list[bytes | None], declared: RecordSchema, writer: Any) -> list[dict[str, Any] | str]:
    rows, bad = by_stream(values, declared, lambda _: json.dumps(writer))
    assert (rows, bad) == by_recompute(values, declared, lambda _: json.dumps(writer))
    return [bad.get(index, row) for index, row in enumerate(rows)]


def test_avro_has_the_forms_as_logical_types_and_paths_through_records_and_maps() -> None:
    row = {
        "meta": {"at": -1, "tags": ["a"]},
        "address": {"city": "Bonn", "zip": "53111"},
        "day": 19_782,
        "raw": b"\x01\x02",
        "text": "1970-01-01T00:00:01Z",
    }
    changes: list[dict[str, Any]] = [
        *({}, {"meta": None, "address": {}}, {"text": "soon"}, {"day": -719_162}, {"day": 2_932_896}),
        *({"day": -719_163}, {"day": 2_932_897}, {"meta": {"at": None, "tags": []}}),
    ]
    told = by_both([wire(1, {**row, **one}, fastavro.parse_schema(WRITER)) for one in changes], EVENT, WRITER)
    first = {"at": -1, "tags": ["a"], "city": "Bonn", "day": "2024-02-29", "raw": "AQI=", "said": 1_000, "other": None}
    assert told[:2] == [first, {**first, "at": None, "tags": None, "city": None}]
    assert [one if isinstance(one, str) else one["day"] for one in told[2:7]] == [
        *("schema", "0001-01-01", "9999-12-31", "schema", "schema")
    ]
    assert told[7] == {**first, "at": None, "tags": []}


@pytest.mark.parametrize(
    ("avro", "declared", "is_readable"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, TIMESTAMP, True),
        ({"type": "long", "logicalType": "timestamp-nanos"}, TIMESTAMP, True),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, TIMESTAMP, False),
        ({"type": "int", "logicalType": "timestamp-millis"}, TIMESTAMP, False),
        ("long", TIMESTAMP, False),
        ("string", TIMESTAMP, True),
        ("string", DATE, True),
        ({"type": "string", "logicalType": "uuid"}, DATE, False),
        ({"type": "string", "logicalType": "decimal"}, DATE, True),
        ("int", DATE, False),
        ("bytes", BYTES, True),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, BYTES, False),
        ({"type": "bytes", "logicalType": "decimal"}, BYTES, True),
        ("string", BYTES, False),
        ("string", nested("it", "x", kind=STRING), False),
        (["null", {"type": "map", "values": "int"}], nested("it", "x", kind=LONG), True),
        (["int", {"type": "map", "values": "int"}], nested("it", "x", kind=LONG), False),
    ],
)
def test_a_form_is_read_of_the_types_of_avro_that_mean_it(avro: Any, declared: Any, is_readable: bool) -> None:
    cut = b"\0\0\0\0\1" + b"\x80"
    assert by_both([cut], RecordSchema.of(it=declared), _record("One", it=avro)) == [
        "undecodable" if is_readable else "schema"
    ]
