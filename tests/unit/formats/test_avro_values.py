"""The stream reads Avro by fastavro, the recompute by Apache's library: the same values, and the same bad ones."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.formats.avro_writers import (
    DECLARED,
    WRITER,
    by_recompute,
    by_stream,
    for_recompute,
    for_stream,
    rows,
    wire,
)

from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, RecordSchema, decimal, list_of
from recount.formats.registry_decoders import AvroDecoder
from recount.recompute.registry_parsing import AvroParser
from recount.runtime.errors import RegistryUnreachable

GOOD = {
    "before": None,
    "id": "o1",
    "count": 5,
    "ratio": 0.5,
    "amount": Decimal("12345678901234567890123456789012.3456"),
    "vip": True,
    "state": "PAID",
    "tags": ["a", "b"],
    "prices": [Decimal("-1.25")],
    "last": {"at": 3},
}


def expected_of(row: dict[str, Any]) -> dict[str, Any] | None:
    """The declared fields of what was written; None where one of them cannot be held."""
    if row["id"] is None or not math.isfinite(row["ratio"]):
        return None
    return {name: row[name] for name in DECLARED.fields}


@settings(max_examples=300)
@given(st.lists(rows, max_size=5))
def test_what_a_producer_wrote_is_read_by_both(written: list[dict[str, Any]]) -> None:
    values = [wire(7, row) for row in written]
    found, bad = by_stream(values)
    assert (found, bad) == by_recompute(values)
    for index, row in enumerate(written):
        expected = expected_of(row)
        assert (index in bad) is (expected is None)
        assert expected is None or found[index] == expected


@settings(max_examples=500)
@given(rows, st.data())
@example(GOOD, None)
def test_bytes_that_were_damaged_are_never_another_value_to_one_of_the_two(row: dict[str, Any], data: Any) -> None:
    """What the recompute reads the stream reads, too; where it reads more, the audit names the record."""
    value = bytearray(wire(7, row))
    if data is not None:
        for _ in range(data.draw(st.integers(1, 3))):
            value[data.draw(st.integers(5, len(value) - 1))] = data.draw(
                st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF])
            )
        value = value[: data.draw(st.integers(5, len(value)))]
    values: list[bytes | None] = [bytes(value)]
    ((found,), bad), ((other,), also_bad) = by_stream(values), by_recompute(values)
    assert not bad or also_bad
    if not also_bad:  # of a boolean see LENIENT
        assert repr({**found, "vip": 0}) == repr({**other, "vip": 0})


@settings(max_examples=200)
@given(rows, st.data())
def test_a_value_that_is_cut_off_or_has_more_is_bad_to_both(row: dict[str, Any], data: Any) -> None:
    value = wire(7, row)
    values = [value[: data.draw(st.integers(0, len(value) - 1))], value + b"\0"]
    assert set(by_stream(values)[1]) == set(by_recompute(values)[1]) == {0, 1}


_ENUM = {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}
LENIENT: list[tuple[Any, FieldType, bytes, object, object]] = [
    ("boolean", BOOLEAN, b"\x02", True, False),
    (["null", "long"], LONG, b"\x01\x02", 1, "undecodable"),
    (_ENUM, STRING, b"\x01", "PAID", "undecodable"),
    ("long", LONG, b"\xff" * 9 + b"\x7f", -(2**63), "undecodable"),
    ("int", LONG, b"\xfe" * 7 + b"\x01", 560733615022015, 560733615022015),
]


@pytest.mark.parametrize(("avro", "declared", "body", "to_stream", "to_recompute"), LENIENT)
def test_bytes_that_no_writer_writes_may_be_a_value_to_the_stream_and_the_audit_names_them(
    avro: Any, declared: FieldType, body: bytes, to_stream: object, to_recompute: object
) -> None:
    """Own_streams.md lists them. Where a library changes its mind, so must the page."""
    values: list[bytes | None] = [b"\0\0\0\0\1" + body]
    for read, expected in ((by_stream, to_stream), (by_recompute, to_recompute)):
        [row], bad = read(values, RecordSchema.of(it=declared), _of(avro))
        assert bad.get(0, row["it"]) == expected


def test_what_is_bad_of_a_value_says_which_schema_and_what_is_declared() -> None:
    good = wire(7, GOOD)
    values = [good, None, b'{"id":"o1"}', b"", b"\0\0\0", good[:-1], good + b"\0", b"\0\0\0\0\x09" + good[5:]]
    found, bad = by_stream(values)
    assert (found, bad) == by_recompute(values)
    assert bad == {
        2: "undecodable",
        3: "undecodable",
        4: "undecodable",
        5: "undecodable",
        6: "undecodable",
        7: "schema",
    }
    assert found[0]["amount"] == GOOD["amount"]
    assert set(found[1].values()) == {None}
    details = [fault.detail for fault in AvroDecoder(DECLARED, None, for_stream).decode(values).faults]
    assert "schema 7" in details[3]
    assert "schema 9" in details[5]
    assert "amount: decimal(38, 4)" in details[5]
    said = AvroParser(DECLARED, ["id"], for_recompute).parsed(values).bad
    assert "9" in said[7][1]


def _of(avro: Any) -> Any:
    writer = {"type": "record", "name": "One", "fields": [{"name": "it", "type": avro}]}
    return lambda _: json.dumps(writer)


_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize(
    ("avro", "declared", "is_readable"),
    [
        *(("string", STRING, True), ({"type": "string", "logicalType": "uuid"}, STRING, True)),
        ({"type": "string", "logicalType": ""}, STRING, True),
        ({"type": "long", "logicalType": ""}, LONG, True),
        *(({"type": "enum", "name": "E", "symbols": ["A"]}, STRING, True), ("bytes", STRING, False)),
        *(("int", LONG, True), ("long", LONG, True)),
        ({"type": "long", "logicalType": "timestamp-millis"}, LONG, True),
        ({"type": "long", "logicalType": "timestamp-micros"}, LONG, False),
        *(({"type": "int", "logicalType": "date"}, LONG, False), ("double", LONG, False)),
        *(("int", DOUBLE, True), ("float", DOUBLE, True)),
        *(({"type": "long", "logicalType": "timestamp-millis"}, DOUBLE, False), (_DECIMAL, DOUBLE, False)),
        *(("boolean", BOOLEAN, True), ("int", BOOLEAN, False)),
        (_DECIMAL, decimal(9, 2), True),
        (_DECIMAL, decimal(10, 3), True),
        (_DECIMAL, decimal(9, 3), False),
        (_DECIMAL, decimal(9, 1), False),
        *(({**_DECIMAL, "precision": 1}, decimal(9, 2), False), ("long", decimal(9, 2), True)),
        ("double", decimal(9, 2), False),
        *((["null", "long"], LONG, True), (["null"], LONG, False), (["int", "string"], LONG, False)),
        ({"type": "array", "items": ["null", "string"]}, list_of(STRING), True),
        ({"type": "array", "items": "int"}, list_of(STRING), False),
        ({"type": "map", "values": "string"}, list_of(STRING), False),
        ("nothing", STRING, False),
    ],
)
def test_a_field_is_read_as_what_is_declared_where_nothing_is_lost(
    avro: Any, declared: FieldType, is_readable: bool
) -> None:
    values: list[bytes | None] = [b"\0\0\0\0\x2a"]  # too short for any value
    asked = RecordSchema.of(it=declared)
    expected = {0: "undecodable" if is_readable else "schema"}
    assert by_stream(values, asked, _of(avro))[1] == expected
    assert by_recompute(values, asked, _of(avro))[1] == expected
    if not is_readable:
        [fault] = AvroDecoder(asked, None, _of(avro)).decode(values).faults
        _, said = AvroParser(asked, ["it"], _of(avro)).parsed(values).bad[0]
        assert "42" in fault.detail and str(declared) in fault.detail
        assert "42" in said and str(declared) in said


def test_a_field_that_the_writer_has_not_is_null_unless_it_is_required() -> None:
    older = {**WRITER, "fields": [one for one in WRITER["fields"] if one["name"] not in ("tags", "id")]}
    row = {name: cell for name, cell in GOOD.items() if name not in ("tags", "id")}
    values: list[bytes | None] = [wire(7, row, fastavro.parse_schema(older))]
    optional = RecordSchema(fields=DECLARED.fields)
    for read in (by_stream, by_recompute):
        [found], bad = read(values, optional, lambda _: json.dumps(older))
        assert (found["tags"], found["id"], found["vip"], bad) == (None, None, True, {})
        assert read(values, DECLARED, lambda _: json.dumps(older))[1] == {0: "schema"}


def test_a_registry_that_does_not_answer_makes_no_record_bad() -> None:
    def unreachable(_: int) -> str:
        raise RegistryUnreachable("a test")

    for read in (by_stream, by_recompute):
        with pytest.raises(RegistryUnreachable):
            read([wire(7, GOOD)], DECLARED, unreachable)


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ("null", "schema"),
        ({"type": "fixed", "name": "F", "size": 0}, "schema"),
        ({"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}, "schema"),
        ("boolean", "undecodable"),
        (["null"], "undecodable"),
        ({"type": "array", "items": "int"}, "undecodable"),
    ],
)
def test_an_array_ends_though_it_claims_billions(items: Any, reason: str) -> None:
    """Of items that take no bytes a few bytes could claim any number: no schema may have them."""
    avro = {"type": "array", "items": items}
    writer = {"type": "record", "name": "R", "fields": [{"name": "a", "type": avro}, {"name": "it", "type": "long"}]}
    values: list[bytes | None] = [b"\0\0\0\0\7" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\0\0"]
    for read in (by_stream, by_recompute):
        assert read(values, RecordSchema.of(it=LONG), lambda _: json.dumps(writer))[1] == {0: reason}


_TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "it", "type": "long"},
        {"name": "next", "type": ["null", "Tree"]},
        {"name": "many", "type": {"type": "array", "items": "Tree"}},
        {"name": "named", "type": {"type": "map", "values": "Tree"}},
    ],
}
_HEAD, _LEAF = b"\0\0\0\0\7", b"\x02\0\0\0"


def _nested(levels: int, before: bytes, behind: bytes) -> bytes:
    """A tree in ``levels`` others; what is ``before`` and ``behind`` the inner one is that of each."""
    return _HEAD + before * levels + _LEAF + behind * levels


@pytest.mark.parametrize(
    ("before", "behind", "deepest"),
    [
        (b"\x02\x02", b"\0\0", 98),  # an empty array lies in the innermost one
        (b"\x02\0\x02", b"\0\0", 49),
        (b"\x02\0\0\x02\x02a", b"\0", 49),
    ],
    ids=["record", "array", "map"],
)
def test_records_arrays_and_maps_lie_in_one_another_up_to_a_hundred_deep(
    before: bytes, behind: bytes, deepest: int
) -> None:
    levels = (deepest, deepest + 1, 250, 320, 5_000)
    values: list[bytes | None] = [_nested(number, before, behind) for number in levels]
    for read in (by_stream, by_recompute):
        found, bad = read(values, RecordSchema.of(it=LONG), lambda _: json.dumps(_TREE))
        assert (found[0], bad) == ({"it": 1}, dict.fromkeys(range(1, 5), "undecodable"))


@pytest.mark.parametrize(("levels", "reason"), [(40, None), (300, "schema"), (5_000, "schema")])
def test_a_schema_that_nests_too_deep_is_none(levels: int, reason: str | None) -> None:
    text = '{"type":"array","items":' * levels + '"long"' + "}" * levels
    writer = json.dumps({"type": "record", "name": "R", "fields": [{"name": "it", "type": "long"}, 1]}).replace(
        "1]", f'{{"name":"deep","type":{text}}}]'
    )
    for read in (by_stream, by_recompute):
        [found], bad = read([_HEAD + b"\x02\0"], RecordSchema.of(it=LONG), lambda _: writer)
        assert (found["it"], bad) == ((1, {}) if reason is None else (None, {0: reason}))


def test_a_decimal_of_a_hundred_thousand_bytes_is_bad_at_once() -> None:
    lengths = (17, 64, 65, 1_000, 450_000)  # the last one has more digits than a Decimal of Python
    digits = [b"\x7f" + b"\xff" * (length - 1) for length in lengths]
    digits += [b"\x80" + b"\0" * (length - 1) for length in lengths]
    good = [b"\0" * 1_000 + b"\x01\x2c", b"\xff" * 1_000 + b"\x01", b"\xff" * 450_000, b""]
    values: list[bytes | None] = [_HEAD + _length(one) + one for one in (*digits, *good)]
    for read in (by_stream, by_recompute):
        found, bad = read(values, RecordSchema.of(it=decimal(9, 2)), _of(_DECIMAL))
        assert bad == dict.fromkeys(range(10), "schema")
        assert [row["it"] for row in found[10:]] == list(map(Decimal, ("3.00", "-2.55", "-0.01", "0.00")))


def _length(data: bytes) -> bytes:
    written = BytesIO()
    fastavro.schemaless_writer(written, "long", len(data))
    return written.getvalue()
