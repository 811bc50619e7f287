"""The stream reads Protobuf by Google's library, the recompute by Buf's: the same values, and the same bad ones."""

from __future__ import annotations

import base64
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
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
    files_of,
    map_field,
    message_of,
    order_file,
    rows,
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
from recount.declare.values import Reading
from recount.formats.protobuf_resolution import ProtobufDecoder
from recount.formats.schema_registry import UnknownSchema
from recount.recompute.registry_parsing import ProtobufParser
from recount.recompute.rules.value_rules import Bad
from recount.runtime.errors import RegistryUnreachable
from recount.runtime.protobuf_files import FILE, Files, descriptors

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


@settings(max_examples=150)
@given(rows, st.sampled_from(["proto2", "proto3"]))
def test_what_a_producer_wrote_is_the_same_to_both(row: dict[str, Any], syntax: str) -> None:
    by_both([wire(7, _written(syntax, row))], DECLARED, FILES[syntax])


@settings(max_examples=300)
@given(rows, st.sampled_from(["proto2", "proto3"]), st.data())
@example(GOOD, "proto3", None)
def test_bytes_that_were_damaged_are_never_another_value_to_one_of_the_two(
    row: dict[str, Any], syntax: str, data: Any
) -> None:
    """Where one of them reads more, the audit names the record."""
    value = bytearray(wire(7, _written(syntax, row)))
    if data is not None:
        for _ in range(data.draw(st.integers(1, 3))):
            value[data.draw(st.integers(5, len(value) - 1))] = data.draw(
                st.sampled_from([0, 1, 2, 3, 5, 0x0A, 0x12, 0x7F, 0x80, 0xFF])
            )
        value = value[: data.draw(st.integers(5, len(value)))]
    schema_of = lambda _: files_of(FILES[syntax])  # noqa: E731 - of this example
    [found], [other] = (read([bytes(value)], DECLARED, schema_of) for read in (by_stream, by_recompute))
    if isinstance(found, dict) and isinstance(other, dict):
        of_maps = dict.fromkeys(("eur", "bern", "by_post"))  # see DIFFERENT
        assert repr({**found, **of_maps}) == repr({**other, **of_maps})


WIRE = RecordSchema.of(
    s=STRING,
    n=LONG,
    enum=STRING,
    enums=list_of(STRING),
    k=nested("map", "k", kind=LONG),
    of_enum=nested("kinds", "k", kind=STRING),
    one=LONG,
)


def _wire_file(syntax: str) -> FileDescriptorProto:
    file = file_of(syntax)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="A", number=0)
    kind.value.add(name="B", number=1)
    message = file.message_type.add(name="M")
    message.oneof_decl.add(name="either")
    field(message, "s", 1, "string")
    field(message, "n", 3, "int64")
    field(message, "undeclared", 4, "string")
    field(message, "enum", 6, "Kind")
    field(message, "enums", 8, "Kind", many=True)
    map_field(message, "map", 11, "string", "int32")
    map_field(message, "kinds", 12, "string", "Kind")
    field(message, "one", 13, "int32", one_of=0)
    field(message, "other", 14, "Kind", one_of=0)
    return file


DIFFERENT: list[tuple[str, bytes, Any, Any]] = [
    ("proto3", b"\x18" + b"\xff" * 9 + b"\x7f", {"n": -1}, "undecodable"),  # a number of more than 64 bits
    ("proto3", b"\x0a\x81\x80\x80\x80\x80\x00a", "undecodable", {"s": "a"}),  # a length of more than 32 bits
    ("proto3", b"\x5a\x07\x0a\x01k\x10\x05\x18\x01", {"k": None}, {"k": 5}),  # a pair of a map with more
    ("proto2", b"\x0a\x01\xff", "schema", "undecodable"),  # a text that is no UTF-8
    ("proto2", b"\x18\x01\x22\x01\xff", {"n": 1}, "undecodable"),  # the same where nobody reads it
]


@pytest.mark.parametrize(("syntax", "body", "to_stream", "to_recompute"), DIFFERENT)
def test_bytes_that_the_two_read_otherwise_are_few_and_the_audit_names_them(
    syntax: str, body: bytes, to_stream: Any, to_recompute: Any
) -> None:
    """Own_streams.md lists them. Where a library changes its mind, so must the page."""
    declared = RecordSchema.of(s=STRING, n=LONG, k=nested("map", "k", kind=LONG))
    for read, expected in ((by_stream, to_stream), (by_recompute, to_recompute)):
        [told] = read([wire(7, body)], declared, lambda _: files_of(_wire_file(syntax)))
        assert (
            told == expected
            if isinstance(expected, str)
            else isinstance(told, dict) and told.items() >= expected.items()
        )  # type: ignore[attr-defined]


def test_a_text_of_proto3_that_is_no_utf_8_makes_the_value_bad() -> None:
    told = by_both([wire(7, b"\x0a\x01\xff"), wire(7, b"\x22\x01\xff")], WIRE, _wire_file("proto3"))
    assert told == ["undecodable"] * 2


def test_numbers_that_an_enum_has_not_are_no_value_in_proto2_and_bad_in_proto3() -> None:
    bodies = [b"\x30\x05", b"\x30\x01\x30\x05", b"\x42\x02\x01\x05", b"\x62\x05\x0a\x01k\x10\x05", b"\x68\x01\x70\x05"]
    values = [wire(7, body) for body in bodies]
    told = by_both(values, WIRE, _wire_file("proto2"))
    expected: list[tuple[str, Any]] = [("enum", None), ("enum", "B"), ("enums", ["B"]), ("of_enum", None), ("one", 1)]
    assert [isinstance(row, dict) and row[name] for row, (name, _) in zip(told, expected, strict=True)] == [
        value for _, value in expected
    ]
    assert by_both(values[:4], WIRE, _wire_file("proto3")) == ["schema"] * 4


def test_what_is_bad_of_a_value_says_which_schema_and_what_is_declared() -> None:
    good = _written("proto3", GOOD)
    unlike = RecordSchema(fields={"name": LONG})

    def schema_of(schema_id: int) -> Files:
        if schema_id != 7:
            raise UnknownSchema(f"the registry has no schema {schema_id}")
        return files_of(FILES["proto3"])

    def for_recompute(schema_id: int) -> Files:
        if schema_id != 7:
            raise Bad("schema", f"no schema {schema_id} in the registry")
        return files_of(FILES["proto3"])

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
        *(("string", STRING, True), ("Kind", STRING, True), ("bytes", STRING, False), ("int32", STRING, False)),
        *(("fixed64", LONG, True), ("sint32", LONG, True), ("uint64", LONG, True), ("Kind", LONG, False)),
        *(("bool", LONG, False), ("double", LONG, False), ("string", LONG, False)),
        ("google.protobuf.Timestamp", LONG, False),
        *(("int64", DOUBLE, True), ("float", DOUBLE, True), ("Kind", DOUBLE, False)),
        *(("bool", BOOLEAN, True), ("int32", BOOLEAN, False)),
        *(("string", decimal(9, 2), True), ("sfixed32", decimal(9, 2), True), ("double", decimal(9, 2), False)),
        *(("confluent.type.Decimal", decimal(9, 2), True), ("google.type.Date", decimal(9, 2), False)),
        *(("google.protobuf.Timestamp", TIMESTAMP, True), ("string", TIMESTAMP, True), ("int64", TIMESTAMP, False)),
        ("google.type.Date", TIMESTAMP, False),
        *(("google.type.Date", DATE, True), ("string", DATE, True), ("google.protobuf.Timestamp", DATE, False)),
        *(("bytes", BYTES, True), ("string", BYTES, False), ("google.protobuf.BytesValue", BYTES, True)),
        ("google.protobuf.StringValue", STRING, True),
        ("google.protobuf.StringValue", TIMESTAMP, True),
        ("google.protobuf.UInt32Value", LONG, True),
        ("google.protobuf.BoolValue", BOOLEAN, True),
        ("google.protobuf.FloatValue", DOUBLE, True),
        ("google.protobuf.StringValue", LONG, False),
        ("google.protobuf.StringValue", nested("it", "value", kind=STRING), True),
        ("M", STRING, False),
        ("string", nested("it", "x", kind=STRING), False),
        ("string", list_of(STRING), False),
        (".shop.M.It", nested("it", "n", kind=LONG), True),
        (".shop.M.It", nested("it", "none", kind=LONG), True),
    ],
)
def test_a_field_is_read_as_what_is_declared_where_nothing_is_lost(kind: str, declared: Any, is_readable: bool) -> None:
    _require_readable(kind, declared, is_readable, many=False)


def _require_readable(kind: str, declared: Any, is_readable: bool, *, many: bool) -> None:
    reading = declared if isinstance(declared, Reading) else Reading(kind=declared)
    file, names = _of_all_kinds(many=many)
    asked = replace(reading, path=(names[kind], *reading.path[1:]))
    told = by_both([wire(42, b"\x80")], RecordSchema.of(it=asked), file)  # too short for any value
    assert told == ["undecodable" if is_readable else "schema"]


def _of_all_kinds(*, many: bool) -> tuple[FileDescriptorProto, dict[str, str]]:
    """A file whose message has a field of each kind, and their names; one file, for to compile it takes a while."""
    known = [f"google.protobuf.{name}" for name in ("Timestamp", "StringValue", "BytesValue", "UInt32Value")]
    known += ["google.protobuf.BoolValue", "google.protobuf.FloatValue", "google.type.Date", "confluent.type.Decimal"]
    whole = [f"{sign}int{bits}" for sign in ("", "s", "u") for bits in (32, 64)]
    kinds = [
        *whole,
        "fixed64",
        "sfixed32",
        "float",
        "double",
        "bool",
        "string",
        "bytes",
        "Kind",
        "M",
        ".shop.M.It",
        *known,
    ]
    names = {kind: f"k{number}" for number, kind in enumerate(kinds)}
    file = file_of()
    file.enum_type.add(name="Kind").value.add(name="A", number=0)
    message = file.message_type.add(name="M")
    field(message.nested_type.add(name="It"), "n", 1, "int64")
    for number, (kind, name) in enumerate(names.items(), 1):
        field(message, name, number, kind, many=many)
    return file, names


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
        (".shop.M.It", nested("it", "n", kind=LONG), False),
    ],
)
def test_a_repeated_field_is_a_list_and_nothing_else(kind: str, declared: Any, is_readable: bool) -> None:
    _require_readable(kind, declared, is_readable, many=True)


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
        *(({"at": {"seconds": -62_135_596_800}}, True), ({"at": {"seconds": -62_135_596_801}}, False)),
        ({"at": {"seconds": 253_402_300_799, "nanos": 999_999_999}}, True),
        *(({"at": {"seconds": 253_402_300_800}}, False), ({"at": {"nanos": 10**9}}, False)),
        *(({"at": {"nanos": -1}}, False), ({"day": {"year": 1, "month": 1, "day": 1}}, True)),
        ({"day": {"year": 9999, "month": 12, "day": 31}}, True),
        ({"day": {"year": 10_000, "month": 1, "day": 1}}, False),
        ({"day": {"year": 0, "month": 1, "day": 1}}, False),
        ({"day": {"year": 2023, "month": 2, "day": 29}}, False),
        *(({"day": {"year": 2024, "month": 13, "day": 1}}, False), ({"day": {"year": 2024, "month": 1}}, False)),
        *(({"day": {}}, False), ({"a_float": float("inf")}, False), ({"a_double": float("nan")}, False)),
        *(({"a_uint64": 2**63 - 1}, True), ({"a_uint64": 2**63}, False), ({"state": 5}, False)),
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


TWICE, MISSING = order_file(), order_file()
TWICE.message_type.add(name="Order")
MISSING.dependency.append("shop/missing.proto")
_DEEP = "message N { " * 5_000 + "}" * 5_000


@pytest.mark.parametrize(
    "file",
    [
        *(
            "",
            "%",
            "AAAA",
            "message M {",
            'package "\ud800";',
            f"message M {{ optional int32 n = 1; }} {_DEEP}",
            TWICE,
            MISSING,
        ),
        "message M { optional int32 n = 1; optional int32 m = 1; }",
        'import "shop/missing.proto"; message M { optional int32 n = 1; }',
    ],
)
def test_what_is_no_file_or_imports_what_the_registry_has_not_makes_its_records_bad(file: Any) -> None:
    assert by_both([wire(7, b"")], RecordSchema.of(n=LONG), file) == ["schema"]


@pytest.mark.parametrize(
    ("first", "unset"),
    [
        ("", {"n": None, "m": None, "tags": []}),  # of proto2
        ("syntax = 'proto3';", {"n": 0, "m": None, "tags": []}),
        ('edition = "2023";', {"n": None, "m": None, "tags": []}),
    ],
)
def test_a_file_as_text_is_read_like_its_descriptor(first: str, unset: dict[str, Any]) -> None:
    label = "" if first.startswith("e") else "optional "
    text = f"""{first} package shop; // a comment
    message M {{
      {label if not first else ""}int32 n = 1; {label}int32 m = 2; repeated string tags = 3; reserved 4, 9 to max;
      enum Kind {{ option allow_alias = true; NONE = 0; LOW = -0x10; OCT = 010; ALSO = 010; }}
      map<string, Kind> kinds = 5;
    }}"""
    declared = RecordSchema.of(n=LONG, m=LONG, tags=list_of(STRING), k=nested("kinds", "k", kind=STRING))
    values = [wire(7, body) for body in (b"", b"\x08\x05\x10\x00\x1a\x01a", b"\x2a\x05\x0a\x01k\x10\x08")]
    told = [{**unset, "k": None}, {"n": 5, "m": 0, "tags": ["a"], "k": None}, {**unset, "k": "OCT"}]
    assert by_both(values, declared, text) == told
    [described] = (FileDescriptorProto.FromString(one) for one in descriptors(files_of(text)))
    assert by_both(values, declared, described) == told


@pytest.mark.parametrize(
    "name", ["HasField", "ParseFromString", "DESCRIPTOR", "get", "__class__", "from_binary", "class"]
)
def test_a_field_can_be_called_as_what_messages_of_a_library_have(name: str) -> None:
    fields = f"optional int32 n = 1; optional int32 {name} = 2; map<string, M> m = 3; oneof x {{ int32 _{name} = 4; }}"
    declared = RecordSchema.of(
        it=nested(name, kind=LONG), inner=nested("m", "k", name, kind=LONG), n=nested("m", "j", "n", kind=LONG)
    )
    told = by_both([wire(7, b"\x10\x06\x1a\x07\x0a\x01k\x12\x02\x10\x07")], declared, f"message M {{ {fields} }}")
    assert told == [{"it": 6, "inner": 7, "n": None}]


def test_a_file_that_refers_to_others_is_read_with_them_whatever_options_and_services_it_has() -> None:
    money = """syntax = "proto3"; package shared; import "shared/options.proto";
    message Money { option (of_money) = true; string currency = 1; }"""
    options = """syntax = "proto3"; package shared; import "google/protobuf/descriptor.proto";
    extend google.protobuf.MessageOptions { bool of_money = 50000; }"""
    text = """package shop; import "shared/money.proto"; import public "confluent/meta.proto";
    message M {
      extensions 100 to 199; required int32 n = 1 [default = 5];
      oneof paid { shared.Money price = 2; int32 tip = 3; }
      map<string, shared.Money> by = 5;
    }
    extend M { optional string more = 100; }
    service Shop { rpc buy (M) returns (shared.Money); }"""
    [*_, described] = descriptors((("shared/options.proto", options), (FILE, money)))
    in_base64 = base64.b64encode(described).decode()
    declared = RecordSchema.of(n=LONG, tip=LONG, currency=nested("price", "currency", kind=STRING))
    bodies = [b"\x18\x02\x12\x05\x0a\x03EUR", b"\x18\x02", b"\x08\x07\xa2\x06\x01a"]
    for content in (money, in_base64):
        files = (("shared/options.proto", options), ("shared/money.proto", content), (FILE, text))
        told = by_both([wire(7, body) for body in bodies], declared, lambda _, files=files: files)
        nothing = dict.fromkeys(declared.fields)
        assert told == [{**nothing, "currency": "EUR"}, {**nothing, "tip": 2}, {**nothing, "n": 7}]


def test_a_registry_that_does_not_answer_makes_no_record_bad() -> None:
    def unreachable(_: int) -> Files:
        raise RegistryUnreachable("a test")

    for read in (by_stream, by_recompute):
        with pytest.raises(RegistryUnreachable):
            read([wire(7, b"")], DECLARED, unreachable)
