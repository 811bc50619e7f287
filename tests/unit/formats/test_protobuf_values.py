"""The stream reads Protobuf by Google's library, the recompute by code of its own: both say the same of any bytes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.formats.protobuf_writers import (
    DECLARED,
    amount_of,
    by_both,
    by_recompute,
    by_stream,
    field,
    file_of,
    map_field,
    message_of,
    order_file,
    rows,
    text_of,
    wire,
)

from recount.declare.schema import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    LONG,
    LONG_MAX,
    STRING,
    TIMESTAMP,
    RecordSchema,
    decimal,
    list_of,
    nested,
)
from recount.formats.protobuf_resolution import ProtobufDecoder
from recount.formats.schema_registry import UnknownSchema
from recount.recompute.registry_parsing import ProtobufParser
from recount.recompute.rules.value_rules import Bad
from recount.runtime.errors import RegistryUnreachable

FILES = {syntax: order_file(syntax) for syntax in ("proto2", "proto3")}
GOOD: dict[str, Any] = {
    "a_int32": -5,
    "a_uint64": LONG_MAX,
    "a_double": 0.5,
    "vip": True,
    "name": "ann",
    "raw": b"\x01\x02",
    "state": -1,
    "at": {"seconds": -1, "nanos": 999_999_999},
    "day": {"year": 2024, "month": 2, "day": 29},
    "amount": amount_of(Decimal("-12345678901234567890123456789012.3456")),
    "perhaps": {"value": 7},
    "tags": ["a", ""],
    "states": [1, -1],
    "numbers": [-1, 2],
    "prices": {"eur": 3},
    "to": {"city": "Bonn", "inner": {"inner": {"city": "Bern"}}},
    "places_by": {"bern": {"city": "Bern"}},
    "sent": {"post": 1},
}


def _written(syntax: str, row: dict[str, Any]) -> bytes:
    return message_of(FILES[syntax], row).SerializeToString()


def test_a_message_is_read_as_what_is_declared() -> None:
    [row] = by_both([wire(7, _written("proto3", GOOD))], DECLARED, FILES["proto3"])
    assert isinstance(row, dict)
    assert {name: row[name] for name in ("a_int32", "a_uint64", "a_double", "vip", "name", "raw", "state")} == {
        "a_int32": -5,
        "a_uint64": LONG_MAX,
        "a_double": 0.5,
        "vip": True,
        "name": "ann",
        "raw": "AQI=",
        "state": "LOST",
    }
    assert (row["at"], row["day"], row["as_decimal"]) == (-1, "2024-02-29", Decimal("-5.00"))
    assert row["amount"] == Decimal("-12345678901234567890123456789012.3456")
    assert (row["perhaps"], row["tags"], row["states"], row["numbers"]) == (7, ["a", ""], ["PAID", "LOST"], [-1, 2])
    assert (row["city"], row["deep"], row["bern"]) == ("Bonn", "Bern", "Bern")
    assert (row["eur"], row["by_post"]) == (3, "PAID")
    assert (row["card"], row["cash"], row["none"]) == (None, None, None)


def test_what_was_not_written_is_null_only_where_protobuf_tells_it_from_the_default() -> None:
    plain = {"a_int32": 0, "a_double": 0.0, "vip": False, "name": "", "raw": "", "state": "OPEN"}
    [new] = by_both([wire(7, b"")], DECLARED, FILES["proto3"])
    [old] = by_both([wire(7, b"")], DECLARED, FILES["proto2"])
    assert isinstance(new, dict) and isinstance(old, dict)
    assert {name: new[name] for name in plain} == plain
    assert {name: old[name] for name in plain} == dict.fromkeys(plain)
    for name in ("note", "at", "day", "amount", "perhaps", "city", "card", "eur", "bern"):
        assert (new[name], old[name]) == (None, None)
    assert (new["tags"], old["tags"]) == ([], [])
    empty = {"note": "", "perhaps": {}, "card": "", "to": None, "places_by": {"bern": {}}}
    [told] = by_both([wire(7, _written("proto3", empty))], DECLARED, FILES["proto3"])
    assert isinstance(told, dict)
    assert [told[name] for name in ("note", "perhaps", "card", "bern")] == ["", 0, "", ""]


@settings(max_examples=200)
@given(rows, st.sampled_from(["proto2", "proto3"]))
def test_what_a_producer_wrote_is_the_same_to_both(row: dict[str, Any], syntax: str) -> None:
    by_both([wire(7, _written(syntax, row))], DECLARED, FILES[syntax])


@settings(max_examples=400)
@given(rows, st.sampled_from(["proto2", "proto3"]), st.data())
@example(GOOD, "proto3", None)
def test_bytes_that_were_damaged_are_good_to_both_or_to_neither(row: dict[str, Any], syntax: str, data: Any) -> None:
    value = bytearray(wire(7, _written(syntax, row)))
    if data is not None:
        for _ in range(data.draw(st.integers(1, 3))):
            value[data.draw(st.integers(5, len(value) - 1))] = data.draw(
                st.sampled_from([0, 1, 2, 3, 5, 0x0A, 0x12, 0x7F, 0x80, 0xFF])
            )
        value = value[: data.draw(st.integers(5, len(value)))]
    by_both([bytes(value)], DECLARED, FILES[syntax])


@settings(max_examples=300)
@given(st.binary(max_size=60), st.sampled_from(["proto2", "proto3"]))
def test_any_bytes_are_good_to_both_or_to_neither(rest: bytes, syntax: str) -> None:
    by_both([rest, b"\0\0\0\0\7" + rest, wire(7, rest)], DECLARED, FILES[syntax])


@settings(max_examples=200)
@given(rows, rows, st.sampled_from(["proto2", "proto3"]))
def test_two_messages_one_behind_the_other_are_one(one: dict[str, Any], other: dict[str, Any], syntax: str) -> None:
    by_both([wire(7, _written(syntax, one) + _written(syntax, other))], DECLARED, FILES[syntax])


WIRE = RecordSchema.of(
    s=STRING,
    i=LONG,
    n=LONG,
    z=LONG,
    yes=BOOLEAN,
    enum=STRING,
    many=list_of(LONG),
    enums=list_of(STRING),
    fixed=list_of(LONG),
    inner=nested("m", "i", kind=LONG),
    k=nested("map", "k", kind=LONG),
    of_enum=nested("kinds", "k", kind=STRING),
    one=LONG,
    other=STRING,
    y=nested("g", "y", kind=LONG),
)


def _wire_file(syntax: str) -> Any:
    file = file_of(syntax)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="A", number=0)
    kind.value.add(name="B", number=1)
    message = file.message_type.add(name="M")
    message.oneof_decl.add(name="either")
    for number, (name, of) in enumerate(
        {"s": "string", "i": "int32", "n": "int64", "z": "sint32", "yes": "bool"}.items(), 1
    ):
        field(message, name, number, of)
    field(message, "enum", 6, "Kind")
    field(message, "many", 7, "int32", many=True)
    field(message, "enums", 8, "Kind", many=True)
    field(message, "fixed", 9, "fixed32", many=True)
    field(message, "m", 10, "M")
    map_field(message, "map", 11, "string", "int32")
    map_field(message, "kinds", 12, "string", "Kind")
    field(message, "one", 13, "int32", one_of=0)
    field(message, "other", 14, "Kind", one_of=0)
    if syntax == "proto2":
        field(message.nested_type.add(name="G"), "y", 1, "int32")
        group = field(message, "g", 15, "G")
        group.type = group.TYPE_GROUP
    return file


_LONG_PART = b"\xff" * 9
CASES: dict[bytes, dict[str, Any] | str] = {
    b"\x0a\x01\xff": "bad text",  # proto3 has UTF-8 only
    b"\x0a\x03\xed\xa0\x80": "bad text",
    b"\x10" + b"\xff" * 4 + b"\x7f": {"i": -1},  # more than 32 bits: the lower ones count
    b"\x10" + _LONG_PART + b"\x01": {"i": -1},
    b"\x18" + _LONG_PART + b"\x7f": {"n": -1},  # more than 64 bits
    b"\x18" + _LONG_PART + b"\xff\x01": "undecodable",
    b"\x20\xff\xff\xff\xff\x1f": {"z": -(2**31)},
    b"\x28\x02": {"yes": True},
    b"\x28" + b"\x80" * 4 + b"\x10": {"yes": True},
    b"\x28" + b"\x80" * 9 + b"\x02": {"yes": False},
    b"\x00\x01": "undecodable",  # the number 0
    b"\x0e": "undecodable",  # no such wire types
    b"\x0f": "undecodable",
    b"\x0c": "undecodable",  # a group ends that has not begun
    b"\xfb\x01\x08\x01\xfc\x01": {},  # a group that is not known
    b"\xfb\x01\x08\x01\xf4\x01": "undecodable",
    b"\xfb\x01\x08\x01": "undecodable",
    b"\x08\x01": {},  # another wire type than the field's
    b"\x50\x01": {},
    b"\x3a\x02\x01\x02": {"many": [1, 2]},
    b"\x38\x01\x38\x02": {"many": [1, 2]},
    b"\x3a\x02\x01\x82": "undecodable",
    b"\x3a\x00": {},
    b"\x12\x01\x05": {},  # only a list may be packed
    b"\x4a\x04\x01\0\0\0": {"fixed": [1]},
    b"\x4d\x01\0\0\0": {"fixed": [1]},
    b"\x4a\x05\x01\0\0\0\x02": "undecodable",
    b"\x90\x80\x80\x80\x00\x01": {"i": 1},  # a tag in five bytes
    b"\x90\x80\x80\x80\x80\x00\x01": "undecodable",
    b"\x90\x80\x80\x80\x10\x01": "undecodable",
    b"\xf8\xff\xff\xff\x0f\x01": {},  # the largest number of a field
    b"\x0a\x81\x80\x80\x80\x00a": {"s": "a"},  # a length in five bytes
    b"\x0a\x81\x80\x80\x80\x80\x00a": "undecodable",
    b"\x0a\xff\xff\xff\xff\x07": "undecodable",
    b"\x0a\x80\x80\x80\x80\x08": "undecodable",
    b"\x0a\x02a": "undecodable",
    b"\xf9\x01\0": "undecodable",
    b"\x52\x02\x10\x01\x52\x02\x18\x02": {"inner": 1},  # a message that is there twice is one
    b"\x5a\x05\x0a\x01k\x10\x05": {"k": 5},
    b"\x5a\x03\x0a\x01k": {"k": 0},
    b"\x5a\x05\x0a\x01k\x10\x05\x5a\x05\x0a\x01k\x10\x07": {"k": 7},
    b"\x5a\x07\x0a\x01k\x10\x05\x18\x01": {},  # a pair with something more
    b"\x5a\x06\x0a\x01k\x12\x01a": {},
    b"\x5a\x05\x0a\x01\xff\x10\x05": "bad text",
    b"\x68\x01\x70\x01": {"other": "B"},  # of one another's fields the last one
    b"\x70\x01\x68\x01": {"one": 1},
    b"\x68\x01\x72\x01a": {"one": 1},
}


@pytest.mark.parametrize("body", CASES, ids=bytes.hex)
def test_bytes_mean_what_the_specification_says(body: bytes) -> None:
    files = {syntax: _wire_file(syntax) for syntax in ("proto2", "proto3")}
    declared = RecordSchema(fields=WIRE.fields, readings=WIRE.readings)
    [empty] = by_both([wire(7, b"")], declared, files["proto2"])
    [old] = by_both([wire(7, body)], declared, files["proto2"])
    [new] = by_both([wire(7, body)], declared, files["proto3"])
    expected = CASES[body]
    if isinstance(expected, dict):
        assert isinstance(empty, dict) and isinstance(old, dict) and isinstance(new, dict)
        assert old == {**empty, **expected}
        assert {name: new[name] for name in expected} == expected
    elif expected == "bad text":
        assert new == "undecodable"  # proto2 has any bytes there, which only no declared field can hold
        assert old == ("schema" if body.startswith(b"\x0a") else empty)
    else:
        assert (old, new) == ("undecodable", "undecodable")


def test_numbers_that_an_enum_has_not_are_no_value_in_proto2_and_bad_in_proto3() -> None:
    bodies = [b"\x30\x05", b"\x30\x01\x30\x05", b"\x42\x02\x01\x05", b"\x62\x05\x0a\x01k\x10\x05", b"\x68\x01\x70\x05"]
    values = [wire(7, body) for body in bodies]
    told = by_both(values, WIRE, _wire_file("proto2"))
    expected: list[tuple[str, Any]] = [("enum", None), ("enum", "B"), ("enums", ["B"]), ("of_enum", None), ("one", 1)]
    assert [isinstance(row, dict) and row[name] for row, (name, _) in zip(told, expected, strict=True)] == [
        value for _, value in expected
    ]
    assert by_both(values, WIRE, _wire_file("proto3")) == ["schema"] * 5
    assert by_both(
        [wire(7, b"\x30" + b"\x81" + b"\x80" * 3 + b"\x10")], RecordSchema.of(enum=STRING), _wire_file("proto3")
    ) == [
        {"enum": "B"}  # the lower 32 bits count
    ]


def test_a_group_of_proto2_is_a_message() -> None:
    file = _wire_file("proto2")
    bodies = [b"\x7b\x08\x05\x7c", b"\x7b\x08\x05\x7c\x7b\x7c", b"\x7a\x02\x08\x05", b"\x7b\x08\x05\x74"]
    told = by_both([wire(7, body) for body in bodies], RecordSchema.of(y=nested("g", "y", kind=LONG)), file)
    assert told == [{"y": 5}, {"y": 5}, {"y": None}, "undecodable"]


@pytest.mark.parametrize(("around", "deepest"), [(b"\x52", 100), (b"\x5b", 100), (b"\xfb\x01", 100)])
def test_messages_lie_in_each_other_up_to_a_hundred_deep(around: bytes, deepest: int) -> None:
    file, declared = _wire_file("proto3"), RecordSchema.of(i=LONG)

    def nest(depth: int) -> bytes:
        made = b""
        for _ in range(depth):
            if around == b"\x52":
                made = around + _length(made) + made
            else:
                end = bytes([around[0] + 1]) + around[1:]
                made = around + made + end
        return wire(7, made)

    told = by_both([nest(deepest - 1), nest(deepest), nest(deepest + 1), nest(deepest + 100)], declared, file)
    assert told == [{"i": 0}, {"i": 0}, "undecodable", "undecodable"]


def test_a_pair_of_a_map_counts_as_a_message_around_its_value() -> None:
    file = file_of()
    message = file.message_type.add(name="M")
    map_field(message, "by", 1, "string", "M")
    field(message, "n", 2, "int32")

    def nest(depth: int) -> bytes:
        made = b""
        for _ in range(depth):
            pair = b"\x12" + _length(made) + made
            made = b"\x0a" + _length(pair) + pair
        return wire(7, made)

    assert by_both([nest(50), nest(51)], RecordSchema.of(n=LONG), file) == [{"n": 0}, "undecodable"]


def _length(made: bytes) -> bytes:
    return bytes([len(made)]) if len(made) < 128 else bytes([len(made) % 128 + 128, len(made) // 128])


def test_what_is_bad_of_a_value_says_which_schema_and_what_is_declared() -> None:
    good = _written("proto3", GOOD)
    unlike = RecordSchema(fields={"name": LONG})

    def schema_of(schema_id: int) -> str:
        if schema_id != 7:
            raise UnknownSchema(f"the registry has no schema {schema_id}")
        return text_of(FILES["proto3"])

    def for_recompute(schema_id: int) -> str:
        if schema_id != 7:
            raise Bad("schema", f"no schema {schema_id} in the registry")
        return text_of(FILES["proto3"])

    bad = [None, b'{"id":"o1"}', b"", b"\0\0\0", wire(7, good)[:-1], wire(9, good), wire(7, good, b"\2\x0a")]
    values = [wire(7, good), *bad]
    found = by_stream(values, DECLARED, schema_of)
    assert found == by_recompute(values, DECLARED, for_recompute)
    assert isinstance(found[0], dict)
    assert found[1] == dict.fromkeys(DECLARED.fields)
    assert found[2:] == [*["undecodable"] * 4, "schema", "schema"]
    details = [fault.detail for fault in ProtobufDecoder(DECLARED, None, schema_of).decode(values).faults]
    assert "schema 7" in details[3] and "schema 9" in details[4]
    assert "amount: decimal(38, 4)" in details[4]
    [fault] = ProtobufDecoder(unlike, None, schema_of).decode(values[:1]).faults
    [(_, said)] = ProtobufParser(unlike, ["name"], for_recompute).parsed(values[:1]).bad.values()
    assert all("7" in one and "long" in one and "string" in one for one in (fault.detail, said))


@pytest.mark.parametrize(
    ("kind", "declared", "is_readable"),
    [
        ("string", STRING, True),
        ("Kind", STRING, True),
        ("bytes", STRING, False),
        ("int32", STRING, False),
        ("fixed64", LONG, True),
        ("sint32", LONG, True),
        ("uint64", LONG, True),
        ("Kind", LONG, False),
        ("bool", LONG, False),
        ("double", LONG, False),
        ("string", LONG, False),
        ("google.protobuf.Timestamp", LONG, False),
        ("int64", DOUBLE, True),
        ("float", DOUBLE, True),
        ("Kind", DOUBLE, False),
        ("bool", BOOLEAN, True),
        ("int32", BOOLEAN, False),
        ("string", decimal(9, 2), True),
        ("sfixed32", decimal(9, 2), True),
        ("double", decimal(9, 2), False),
        ("confluent.type.Decimal", decimal(9, 2), True),
        ("google.type.Date", decimal(9, 2), False),
        ("google.protobuf.Timestamp", TIMESTAMP, True),
        ("string", TIMESTAMP, True),
        ("int64", TIMESTAMP, False),
        ("google.type.Date", TIMESTAMP, False),
        ("google.type.Date", DATE, True),
        ("string", DATE, True),
        ("google.protobuf.Timestamp", DATE, False),
        ("bytes", BYTES, True),
        ("string", BYTES, False),
        ("google.protobuf.BytesValue", BYTES, True),
        ("google.protobuf.StringValue", STRING, True),
        ("google.protobuf.StringValue", TIMESTAMP, True),
        ("google.protobuf.UInt32Value", LONG, True),
        ("google.protobuf.BoolValue", BOOLEAN, True),
        ("google.protobuf.FloatValue", DOUBLE, True),
        ("google.protobuf.StringValue", LONG, False),
        ("google.protobuf.StringValue", nested("it", "value", kind=STRING), True),
        ("M", STRING, False),
        ("M", nested("it", "it", "it", kind=STRING), False),
        ("string", nested("it", "x", kind=STRING), False),
        ("string", list_of(STRING), False),
        ("shared.Money", STRING, False),
        ("shared.Money", BYTES, False),
        (".shop.M.It", nested("it", "n", kind=LONG), True),
        ("M.It", nested("it", "n", kind=LONG), True),
        ("It", nested("it", "n", kind=LONG), True),
        ("shop.M.It", nested("it", "none", kind=LONG), True),
    ],
)
def test_a_field_is_read_as_what_is_declared_where_nothing_is_lost(kind: str, declared: Any, is_readable: bool) -> None:
    file = file_of()
    file.enum_type.add(name="Kind").value.add(name="A", number=0)
    message = file.message_type.add(name="M")
    field(message.nested_type.add(name="It"), "n", 1, "int64")
    field(message, "it", 1, kind)
    told = by_both([wire(42, b"\x80")], RecordSchema.of(it=declared), file)  # too short for any value
    assert told == ["undecodable" if is_readable else "schema"]


@pytest.mark.parametrize(
    ("kind", "declared", "is_readable"),
    [
        ("string", list_of(STRING), True),
        ("string", STRING, False),
        ("sint64", list_of(DOUBLE), True),
        ("bytes", list_of(STRING), False),
        ("confluent.type.Decimal", list_of(decimal(9, 2)), True),
        ("google.protobuf.StringValue", list_of(STRING), False),
        ("google.protobuf.StringValue", STRING, False),
        ("google.protobuf.Timestamp", TIMESTAMP, False),
        ("M", nested("it", "n", kind=LONG), False),
    ],
)
def test_a_repeated_field_is_a_list_and_nothing_else(kind: str, declared: Any, is_readable: bool) -> None:
    file = file_of()
    message = file.message_type.add(name="M")
    field(message, "it", 1, kind, many=True)
    field(message, "n", 2, "int64")
    told = by_both([wire(42, b"\x80")], RecordSchema.of(it=declared), file)
    assert told == ["undecodable" if is_readable else "schema"]


def test_a_path_leads_through_maps_of_texts_only() -> None:
    file = file_of()
    message = file.message_type.add(name="M")
    map_field(message, "texts", 1, "string", "M")
    map_field(message, "numbers", 2, "int32", "string")
    field(message, "n", 3, "int64")
    cut = wire(7, b"\x80")
    paths: dict[tuple[str, ...], Any] = {
        ("texts", "a", "n"): LONG,
        ("texts", "a", "texts", "b", "n"): LONG,
        ("texts", "a", "none"): LONG,
        ("texts", "a"): LONG,
        ("texts",): LONG,
        ("texts", "a", "texts"): LONG,
        ("numbers", "1"): STRING,
    }
    told = [by_both([cut], RecordSchema.of(it=nested(*path, kind=kind)), file)[0] for path, kind in paths.items()]
    assert told == [*["undecodable"] * 3, *["schema"] * 4]


def test_a_decimal_has_as_many_digits_as_are_declared_and_zeros_behind_do_not_count() -> None:
    file, declared = order_file(), RecordSchema.of(amount=decimal(4, 2))
    cases: dict[tuple[int, int], Decimal | None] = {
        (9999, 2): Decimal("99.99"),
        (-9999, 2): Decimal("-99.99"),
        (10000, 2): None,
        (99, 0): Decimal(99),
        (100, 0): None,
        (9, -1): Decimal(90),
        (1, -2): None,
        (1, 3): None,
        (10, 3): Decimal("0.01"),
        (0, 9): Decimal(0),
        (0, -(2**31)): Decimal(0),
        (1, 2**31 - 1): None,
        (1, -(2**31)): None,
        (5 * 10**140, 140): Decimal(5),
        (5 * 10**160, 160): None,  # in more than 64 bytes
    }
    written = [
        {"amount": {"value": unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True), "scale": scale}}
        for unscaled, scale in cases
    ]
    values = [wire(7, message_of(file, row)) for row in written]
    told = by_both(values, declared, file)
    assert [one["amount"] if isinstance(one, dict) else None for one in told] == list(cases.values())
    assert by_both([wire(7, message_of(file, {"amount": {}}))], declared, file) == [{"amount": Decimal(0)}]


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        ("1.50", Decimal("1.50")),
        ("1e1", Decimal(10)),
        ("", None),
        ("1.234", None),
        ("1,5", None),
        ("NaN", None),
        ("\u0661", None),
    ],
)
def test_a_decimal_in_a_text_is_a_number_as_json_writes_it(price: str, expected: Decimal | None) -> None:
    file = order_file()
    told = by_both([wire(7, message_of(file, {"price": price}))], RecordSchema.of(price=decimal(9, 2)), file)
    assert told == ["schema" if expected is None else {"price": expected}]


@pytest.mark.parametrize(
    ("row", "is_good"),
    [
        ({"at": {"seconds": -62_135_596_800}}, True),
        ({"at": {"seconds": -62_135_596_801}}, False),
        ({"at": {"seconds": 253_402_300_799, "nanos": 999_999_999}}, True),
        ({"at": {"seconds": 253_402_300_800}}, False),
        ({"at": {"nanos": 10**9}}, False),
        ({"at": {"nanos": -1}}, False),
        ({"day": {"year": 1, "month": 1, "day": 1}}, True),
        ({"day": {"year": 9999, "month": 12, "day": 31}}, True),
        ({"day": {"year": 10_000, "month": 1, "day": 1}}, False),
        ({"day": {"year": 0, "month": 1, "day": 1}}, False),
        ({"day": {"year": 2023, "month": 2, "day": 29}}, False),
        ({"day": {"year": 2024, "month": 13, "day": 1}}, False),
        ({"day": {"year": 2024, "month": 1}}, False),
        ({"day": {}}, False),
        ({"a_float": float("inf")}, False),
        ({"a_double": float("nan")}, False),
        ({"a_uint64": 2**63 - 1}, True),
        ({"a_uint64": 2**63}, False),
        ({"state": 5}, False),
        ({"states": [1, 5]}, False),
    ],
)
def test_a_value_that_a_declared_field_cannot_hold_is_bad(row: dict[str, Any], is_good: bool) -> None:
    [told] = by_both([wire(7, message_of(FILES["proto3"], row))], DECLARED, FILES["proto3"])
    assert isinstance(told, dict) is is_good
    assert is_good or told == "schema"


def test_a_required_field_must_be_there_and_no_default_stands_for_it_where_it_can_be_missing() -> None:
    schema = RecordSchema.of(name=STRING, note=STRING, required=("name", "note"))
    written = [{}, {"name": "a"}, {"note": ""}, {"name": "a", "note": "b"}]
    values = {syntax: [wire(7, _written(syntax, row)) for row in written] for syntax in FILES}
    good = {
        syntax: [isinstance(one, dict) for one in by_both(values[syntax], schema, FILES[syntax])] for syntax in FILES
    }
    assert good == {"proto2": [False, False, False, True], "proto3": [False, False, True, True]}
    none = RecordSchema.of(none=STRING, required=("none",))
    assert by_both(values["proto3"], none, FILES["proto3"]) == ["schema"] * 4


def test_the_indexes_say_which_message_of_the_file_a_value_is() -> None:
    file = file_of()
    for name in ("First", "Second", "Third"):
        outer = file.message_type.add(name=name)
        field(outer, "n", 1, "int64")
        if name == "Third":
            map_field(outer, "before", 3, "string", "int64")
        for inner in ("A", "B"):
            field(outer.nested_type.add(name=inner), "n", 2, "int64")
        map_field(outer, "by", 2, "string", "int64")
    one, two = b"\x08\x05", b"\x10\x06"
    indexes: dict[bytes, tuple[bytes, Any]] = {
        b"\0": (one, {"n": 5}),
        b"\2\0": (one, {"n": 5}),
        b"\2\2": (one, {"n": 5}),
        b"\4\2\0": (two, {"n": 6}),
        b"\4\2\2": (two, {"n": 6}),
        b"\4\2\4": (one, "schema"),  # a pair of a map
        b"\4\4\0": (two, "schema"),  # of a message with a map before: some clients count that, others do not
        b"\4\4\2": (two, "schema"),
        b"\4\4\4": (two, "schema"),
        b"\2\6": (one, "schema"),
        b"\2\1": (one, "schema"),
        b"\6\0\2\0": (one, "schema"),
        b"\1": (one, "undecodable"),
        b"\x7e": (one, "undecodable"),
        b"\xff\xff\xff\xff\x0f": (one, "undecodable"),
        b"\x80\x80\x80\x80\x00": (one, {"n": 5}),
        b"\x80\x80\x80\x80\x80\x00": (one, "undecodable"),
    }
    values = [wire(7, body, said) for said, (body, _) in indexes.items()]
    assert by_both(values, RecordSchema.of(n=LONG), file) == [expected for _, expected in indexes.values()]
    assert by_both([b"\0\0\0\0\7", b"\0\0\0\0\7\2"], RecordSchema.of(n=LONG), file) == ["undecodable"] * 2


def _in_base64(descriptor: bytes) -> str:
    return base64.b64encode(descriptor).decode()


EDITION, TWICE, KNOWN = order_file(), order_file(), file_of()
EDITION.syntax, KNOWN.package = "editions", "google.protobuf"
TWICE.message_type.add(name="Order")
field(KNOWN.message_type.add(name="Timestamp"), "n", 1, "int32")
NO_SCHEMAS = [
    *("", "%", "AAAA", "CgE=", "syntax = 'proto3';", "message M {", "message M { int32 n = ; }", "message M { int32 }"),
    # messages, enums, names and options are no numbers, and a package, a syntax and a name are UTF-8
    *map(_in_base64, [b"\x20\x01", b"\x28\x01", b"\x22\x02\x08\x01"]),
    *map(_in_base64, [b"\x12\x01\xff", b"\x62\x01\xff", b"\x22\x03\x0a\x01\xff"]),
    *map(text_of, [EDITION, TWICE, KNOWN]),
]


@pytest.mark.parametrize("text", NO_SCHEMAS)
def test_a_schema_that_is_no_file_or_one_that_is_not_read_makes_its_records_bad(text: str) -> None:
    assert by_both([wire(7, b"")], RecordSchema.of(n=LONG), lambda _: text) == ["schema"]


def test_what_is_wrong_with_a_schema_counts_before_what_is_wrong_with_a_value() -> None:
    without_indexes = b"\0\0\0\0\7"
    assert by_both([without_indexes], RecordSchema.of(n=LONG), lambda _: "%") == ["schema"]


def _damaged(change: Callable[[FileDescriptorProto, DescriptorProto], Any]) -> FileDescriptorProto:
    file = file_of()
    message = file.message_type.add(name="M")
    field(message, "n", 1, "int64")
    change(file, message)
    return file


def _pair(message: DescriptorProto, *names: str, number: int = 1) -> DescriptorProto:
    pair = message.nested_type.add(name="Pair")
    pair.options.map_entry = True
    for place, name in enumerate(names, number):
        field(pair, name, place, "string")
    return pair


@pytest.mark.parametrize(
    "change",
    [
        lambda _file, message: message.field.add(name="x", number=2, label=1),
        lambda _file, message: field(message, "x", 2, "message"),
        lambda _file, message: field(message, "x", 2, "enum"),
        lambda _file, message: field(message, "x", 2, "group"),
        lambda _file, message: field(message, "x", 2, "string", one_of=0),
        lambda _file, message: field(message, "x", 2, "string").MergeFrom(FieldDescriptorProto(proto3_optional=True)),
        lambda _file, message: (message.oneof_decl.add(name="o"), field(message, "x", 2, "int32", one_of=0, many=True)),
        lambda _file, message: message.oneof_decl.add(name="o"),
        lambda _file, message: field(message, "\u00e4", 2, "string"),
        lambda _file, message: field(message, "", 2, "string"),
        lambda file, _message: file.message_type.add(name="M$"),
        lambda file, _message: file.MergeFrom(FileDescriptorProto(package="a.")),
        lambda _file, message: (_pair(message, "key"), field(message, "x", 2, "Pair", many=True)),
        lambda _file, message: (_pair(message, "key", "value", "more"), field(message, "x", 2, "Pair", many=True)),
        lambda _file, message: (_pair(message, "key", "v"), field(message, "x", 2, "Pair", many=True)),
        lambda _file, message: (_pair(message, "key", "value", number=2), field(message, "x", 2, "Pair", many=True)),
        lambda _file, message: (_pair(message, "key", "value"), field(message, "x", 2, "Pair")),
    ],
)
def test_a_descriptor_that_the_language_forbids_makes_its_records_bad(change: Any) -> None:
    file = _damaged(change)
    assert by_both([wire(7, b"\x08\x05"), wire(7, b"\x12\0")], RecordSchema.of(n=LONG), file) == ["schema"] * 2
    told = by_both([wire(7, b"\x12\0")], RecordSchema.of(n=nested("x", "k", kind=STRING)), file)
    assert told == ["schema"]


def test_a_descriptor_without_a_syntax_is_of_proto2() -> None:
    file = _damaged(lambda file, _: file.ClearField("syntax"))
    assert by_both([wire(7, b""), wire(7, b"\x08\x05")], RecordSchema.of(n=LONG), file) == [{"n": None}, {"n": 5}]


def test_a_place_in_a_file_has_up_to_a_hundred_indexes() -> None:
    file = _damaged(lambda _file, _message: None)
    told = by_both(
        [wire(7, b"", index + b"\0" * many) for index, many in ((b"\xc8\x01", 100), (b"\xca\x01", 101))],
        RecordSchema.of(n=LONG),
        file,
    )
    assert told == ["schema", "undecodable"]


def test_types_of_other_files_and_options_are_no_hindrance_to_who_does_not_read_them() -> None:
    file = file_of("proto2")
    file.dependency.extend(["shared/money.proto", "buf/validate/validate.proto"])
    file.extension.add(name="more", number=100, extendee="shop.M", type=9, label=1)
    file.service.add(name="Shop").method.add(name="buy", input_type="shared.Money", output_type="shared.Money")
    message = file.message_type.add(name="M")
    message.extension_range.add(start=100, end=200)
    message.oneof_decl.add(name="paid")
    made = field(message, "n", 1, "int32")
    made.label, made.default_value = made.LABEL_REQUIRED, "5"
    field(message, "price", 2, "shared.Money", one_of=0)
    field(message, "tip", 3, "int32", one_of=0)
    field(message, "others", 4, "shared.Money", many=True)
    map_field(message, "by", 5, "string", "shared.Money")
    declared = RecordSchema.of(n=LONG, tip=LONG)
    bodies = [b"\x18\x02\x12\x01\xff\x2a\x05\x0a\x01k\x12\x00\x22\x01\xff", b"\x18\x02", b"\x08\x07\xa2\x06\x01\xff"]
    told = by_both([wire(7, body) for body in bodies], declared, file)
    assert told == [{"n": None, "tip": None}, {"n": None, "tip": 2}, {"n": 7, "tip": None}]
    assert by_both([wire(7, b"")], RecordSchema.of(it=nested("by", "k", kind=BYTES)), file) == ["schema"]


def test_a_registry_that_does_not_answer_makes_no_record_bad() -> None:
    def unreachable(_: int) -> str:
        raise RegistryUnreachable("a test")

    for read in (by_stream, by_recompute):
        with pytest.raises(RegistryUnreachable):
            read([wire(7, b"")], DECLARED, unreachable)
