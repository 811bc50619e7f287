"""A Protobuf file as text says what its descriptor says, to the stream and to the recompute, each by its own parser."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.formats import protobuf_writers
from tests.unit.formats.protobuf_writers import DECLARED, by_both, message_of, order_file, rows, wire

from recount.declare.schema import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    FieldType,
    RecordSchema,
    decimal,
    list_of,
    nested,
)
from recount.formats.protobuf_texts import described
from recount.recompute.rules.protobuf_grammar import parts_of_text

_GOOD = "message M { optional int32 n = 1; }"
_LABELS = {1: "optional ", 2: "required ", 3: "repeated "}


def text_of(file: FileDescriptorProto) -> str:
    """``file`` as somebody would write it."""
    lines = [f'syntax = "{file.syntax}";', f"package {file.package};", 'import "google/protobuf/timestamp.proto";']
    lines += map(_enum, file.enum_type)
    lines += [_message(one, file.syntax) for one in file.message_type]
    return "\n".join(lines)


def _enum(enum: EnumDescriptorProto) -> str:
    values = "".join(f"  {one.name} = {one.number};\n" for one in enum.value)
    return f"enum {enum.name} {{\n{values}}}"


def _message(message: DescriptorProto, syntax: str) -> str:
    entries = {one.name: one for one in message.nested_type if one.options.map_entry}
    parts = [_message(one, syntax) for one in message.nested_type if one.name not in entries]
    parts += map(_enum, message.enum_type)
    for index, one_of in enumerate(message.oneof_decl):
        members = [one for one in message.field if one.HasField("oneof_index") and one.oneof_index == index]
        if not any(one.proto3_optional for one in members):
            parts.append(f"oneof {one_of.name} {{ {' '.join(_field(one) for one in members)} }}")
    for field in message.field:
        if field.type_name in entries:
            key, value = entries[field.type_name].field
            parts.append(f"map<{_kind(key)}, {_kind(value)}> {field.name} = {field.number};")
        elif field.proto3_optional or not field.HasField("oneof_index"):
            is_told = syntax == "proto2" or field.label == field.LABEL_REPEATED or field.proto3_optional
            parts.append((_LABELS[field.label] if is_told else "") + _field(field))
    return f"message {message.name} {{ " + "\n".join(parts) + " }"


def _field(field: FieldDescriptorProto) -> str:
    return f"{_kind(field)} {field.name} = {field.number};"


def _kind(field: FieldDescriptorProto) -> str:
    return field.type_name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


@settings(max_examples=60)
@given(rows, st.sampled_from(["proto2", "proto3"]))
def test_a_value_is_read_by_a_text_as_by_the_descriptor(row: dict[str, Any], syntax: str) -> None:
    file = order_file(syntax)
    values = [wire(7, message_of(file, row))]
    assert repr(by_both(values, DECLARED, lambda _: text_of(file))) == repr(by_both(values, DECLARED, file))


TEXT = (
    r"""// a comment; message X {
/* and one of
   two lines } */
syntax = 'proto2';
package shop . orders_of_2 ;
""".replace("shop . orders_of_2 ", "shop.orders_of_2")
    + r"""
import public "other.proto"; import weak "else.proto";
option java_package = "a;b{";
option (shop.deep) = { name: "x}" list: [1, 2] inner { n: 1 } };
;
extend google.protobuf.FieldOptions { optional string hint = 50000 [default = "}"]; }
service Shop {
  option deprecated = true;
  rpc Buy (stream Order) returns (Order) { option (google.api.http) = { get: "/v1/{name}" }; }
}
message Empty {}
message Order {
  option (shop.note) = "a \"text\" with } and ;";
  reserved 2, 15, 9 to 11; reserved "foo", "bar";
  extensions 100 to 199 [declaration = { number: 100 }];
  extend Order { optional int32 more = 100; }
  enum Kind {
    option allow_alias = true;
    NONE = 0; reserved = -1; LOW = -0x10 [deprecated = true]; OCT = 010;
    reserved 3 to 4;
  }
  required int64 n = 1 [(shop.rule) = { gt: 0, in: [1, 2] }, deprecated = false, json_name = 'N'];
  optional Kind kind=3[default=LOW];;
  repeated sint32 many = 0x4 [packed = true];
  oneof by {
    option (x) = 1;
    string card = 5; .shop.orders_of_2.Order other = 010; group Cash = 7 { optional int32 cents = 1; }
  }
  map < string , Kind > kinds = 12;
  optional group Part = 13 { repeated string option = 1; optional Part part = 2; }
  optional string message = 14; optional string optional = 16; optional string map = 17; optional Empty enum = 18;
  optional unknown.Type foreign = 19;
}
"""
)
ORDER = RecordSchema.of(
    n=LONG,
    kind=STRING,
    many=list_of(LONG),
    card=STRING,
    cents=nested("cash", "cents", kind=LONG),
    of_other=nested("other", "n", kind=LONG),
    k=nested("kinds", "k", kind=STRING),
    option=nested("part", "option", kind=list_of(STRING)),
    deep=nested("part", "part", "option", kind=list_of(STRING)),
    message=STRING,
    optional=STRING,
    map=STRING,
)


def test_all_that_a_text_can_have_is_read_or_passed_over() -> None:
    nothing = {**dict.fromkeys(ORDER.fields), "many": []}
    bodies: dict[bytes, dict[str, Any]] = {
        b"\x08\x05\x18\x08\x22\x02\x01\x02": {"n": 5, "kind": "OCT", "many": [-1, 1]},
        b"\x18" + b"\xf0" + b"\xff" * 8 + b"\x01": {"kind": "LOW"},
        b"\x18" + b"\xff" * 9 + b"\x01": {"kind": "reserved"},
        b"\x2a\x01c": {"card": "c"},
        b"\x2a\x01c\x42\x02\x08\x07": {"of_other": 7},
        b"\x2a\x01c\x3b\x08\x09\x3c": {"cents": 9},
        b"\x62\x05\x0a\x01k\x10\x08": {"k": "OCT"},
        b"\x6b\x0a\x01a\x0a\x01b\x6c": {"option": ["a", "b"]},
        b"\x6b\x12\x03\x0a\x01c\x6c": {"option": [], "deep": ["c"]},  # the part within it is no group
        b"\x72\x01m\x82\x01\x01o\x8a\x01\x01p": {"message": "m", "optional": "o", "map": "p"},
    }
    told = by_both([wire(7, body, b"\2\2") for body in bodies], ORDER, lambda _: TEXT)
    assert told == [{**nothing, **said} for said in bodies.values()]


@pytest.mark.parametrize("first", ['syntax = "proto3";', "syntax = 'proto3';", "syntax='proto3' ;"])
def test_proto3_tells_a_field_that_was_not_written_from_the_default_only_where_it_is_optional(first: str) -> None:
    text = f"{first} message M {{ int32 a = 1; optional int32 b = 2; oneof c {{ int32 d = 3; }} M e = 4; }}"
    schema = RecordSchema.of(a=LONG, b=LONG, d=LONG, inner=nested("e", "a", kind=LONG))
    assert by_both([wire(7, b"")], schema, lambda _: text) == [{"a": 0, "b": None, "d": None, "inner": None}]


@pytest.mark.parametrize(
    "text",
    [
        'edition = "2023"; message M { int32 n = 1; }',
        'syntax = "proto4"; message M { int32 n = 1; }',
        "message M { optional int32 n = 1; } message M { optional int32 n = 1; }",
        "message M { optional int32 n = 1;",
        "message M { optional int32 n = 1; } }",
        "message M { optional int32 n 1; }",
        "message M { optional int32 n = x; }",
        "message M { optional int32 n = 1 }",
        "message { optional int32 n = 1; }",
        "message M { enum E { A 0; } }",
        "message M { map<string, int32 n = 1; }",
        "messages M { optional int32 n = 1; }",
        'message M { optional int32 n = 1 [default = "open]; }',
        "/* message M { optional int32 n = 1; }",
        "nothing",
        "message",
        f"{_GOOD} enum A {{ B = 4294967295; }}",
        f"{_GOOD} enum A {{ B = 2147483648; }}",
        f"{_GOOD} enum A {{ B = -2147483649; }}",
        f"{_GOOD} enum A {{ }}",
        f"{_GOOD} enum A {{ B = 0; }} enum C {{ B = 0; }}",
        f"{_GOOD} enum A {{ M = 0; }}",
        f"{_GOOD} enum A {{ B = 5; }} message N {{ map<string, A> m = 1; }}",
        f'syntax = "proto3"; {_GOOD} enum A {{ B = 1; }}',
        f"{_GOOD} message N {{ optional int32 a = 0; }}",
        f"{_GOOD} message N {{ optional int32 a = 536870912; }}",
        f"{_GOOD} message N {{ optional int32 a = 4294967297; }}",
        f"{_GOOD} message N {{ optional int32 a = 99999999999; }}",
        f"{_GOOD} message N {{ optional int32 a = 08; }}",
        f"{_GOOD} message N {{ optional int32 a = 1_0; }}",
        f"{_GOOD} message N {{ optional int32 a = \u0662; }}",
        f"{_GOOD} message N {{ optional int32 \u00e4 = 1; }}",
        f"{_GOOD} message\u00a0N {{ }}",
        f"{_GOOD} message N {{ optional int32 1a = 1; }}",
        f"{_GOOD} message N {{ optional int32 a = 1; optional int32 b = 1; }}",
        f"{_GOOD} message N {{ optional int32 a = 1; optional int32 a = 2; }}",
        f"{_GOOD} message N {{ oneof a {{ int32 a = 1; }} }}",
        f"{_GOOD} message N {{ oneof a {{ int32 b = 1; }} oneof a {{ int32 c = 2; }} }}",
        f"{_GOOD} message N {{ oneof a {{ }} }}",
        f"{_GOOD} message N {{ map<float, int32> m = 1; }}",
        f"{_GOOD} message N {{ map<bytes, int32> m = 1; }}",
        f"{_GOOD} message N {{ map<M, int32> m = 1; }}",
        f"{_GOOD} message N {{ map<other.File, int32> m = 1; }}",
        f"{_GOOD} message N {{ map<string, int32> a_b = 1; map<string, int32> aB = 2; }}",
        f"{_GOOD} message N {{ map<string, int32> a = 1; message AEntry {{ }} }}",
        f"{_GOOD} message N.O {{ }}",
        f"{_GOOD} package a..b;",
        f'{_GOOD} package "a";',
        f'{_GOOD} package "\ud800";',
        f'syntax = "\ud800"; {_GOOD}',
        f"{_GOOD} option a = {{ ] }};",
        f"{_GOOD} option a = {{ # }};",
        f"{_GOOD} {'message N { ' * 51}{'}' * 51}",
        f"{_GOOD} {'message N { ' * 5_000}{'}' * 5_000}",
    ],
)
def test_what_is_no_file_or_one_that_is_not_read_makes_its_records_bad(text: str) -> None:
    assert by_both([wire(7, b"")], RecordSchema.of(n=LONG), lambda _: text) == ["schema"]


@pytest.mark.parametrize(
    "text",
    [
        _GOOD,
        f"{_GOOD} enum A {{ B = -2147483648; C = 2147483647; D = 2147483647; }}",
        f"{_GOOD} message N {{ optional int32 a = 536870911; optional int32 b = 19000; }}",
        f"{_GOOD} message N {{ optional int32 a_b = 1; optional int32 aB = 2; message a_b {{ }} }}",
        f'syntax = "proto3"; {_GOOD} message N {{ optional int32 a = 1; optional int32 _a = 2; }}',
        f'syntax = "proto3"; {_GOOD} message N {{ oneof _b {{ int32 c = 3; }} optional int32 b = 4; }}',
        f"{_GOOD} enum A {{ B = 5; C = 0; }} message N {{ map<string, A> m = 1; }}",
        f"{_GOOD} {'message N { ' * 50}{'}' * 50}",
    ],
    ids=[
        "no syntax",
        "numbers of an enum",
        "numbers",
        "names in JSON",
        "names of optional",
        "names of oneofs",
        "0 in a map",
        "depth",
    ],
)
def test_what_the_language_allows_is_read(text: str) -> None:
    assert by_both([wire(7, b"\x08\x05")], RecordSchema.of(n=LONG), lambda _: text) == [{"n": 5}]


def test_a_value_of_a_map_that_was_not_written_is_the_enums_0() -> None:
    text = "enum A { B = 5; C = 0; } message M { map<string, A> m = 1; }"
    declared = RecordSchema.of(k=nested("m", "k", kind=STRING))
    assert by_both([wire(7, b"\x0a\x03\x0a\x01k")], declared, lambda _: text) == [{"k": "C"}]


@pytest.mark.parametrize("name", ["HasField", "ParseFromString", "DESCRIPTOR", "get", "__class__", "__init__"])
def test_a_field_can_be_called_as_what_messages_of_the_library_have(name: str) -> None:
    fields = f"optional int32 n = 1; optional int32 {name} = 2; map<string, M> m = 3; map<string, M> get_{name} = 4;"
    declared = RecordSchema.of(
        n=LONG,
        it=nested(name, kind=LONG),
        inner=nested("m", "k", name, kind=LONG),
        none=nested("m", "j", "n", kind=LONG),
    )
    body = b"\x08\x05\x10\x06\x1a\x07\x0a\x01k\x12\x02\x10\x07"
    told = by_both([wire(7, body)], declared, lambda _: f"message M {{ {fields} }}")
    assert told == [{"n": 5, "it": 6, "inner": 7, "none": None}]


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("bool", BOOLEAN),
        ("int64", LONG),
        ("string", STRING),
        ("enum", STRING),
        ("double", DOUBLE),
        ("int32", decimal(9, 2)),
        ("bytes", BYTES),
        ("string", TIMESTAMP),
    ],
)
def test_a_message_that_is_named_as_a_type_is_none_of_it(name: str, declared: Any) -> None:
    text = f"message M {{ optional .{name} it = 1; repeated .{name} all = 2; }} message {name} {{ }}"
    lists = {"all": list_of(declared)} if isinstance(declared, FieldType) else {}
    for field, kind in {"it": declared, **lists}.items():
        schema = RecordSchema(fields={field: kind})
        assert by_both([wire(7, b"\x0a\0\x12\0")], schema, lambda _: text) == ["schema"]


def test_the_two_parsers_find_the_same_fields() -> None:
    found = described(TEXT)
    parts = parts_of_text(TEXT)
    [_, order] = found.message_type
    [_, other] = parts[4]
    names = [field.name for field in order.field]
    assert names == [field[1][0].decode() for field in other[2]]
    assert [field.number for field in order.field] == [field[3][0] for field in other[2]]
    assert "foreign" in names and "more" not in names


@pytest.mark.parametrize(
    "fields",
    [
        "optional string a = 1; optional string _a = 2;",
        "optional string a = 1; string _a = 2; optional string X_a = 3;",
        "oneof _b { string _a = 2; } optional string a = 1; optional string b = 3;",
        "string a = 1; string _a = 2; string fooBar = 3; string foo_bar = 4 [json_name = 'other'];",
    ],
)
def test_names_that_the_compiler_makes_of_those_of_fields_are_not_in_the_way_of_others(fields: str) -> None:
    """All records of such a file were dead letters, and the audit missed them."""
    text = f'syntax = "proto3"; message M {{ {fields} }}'
    found = by_both([wire(7, b"\x0a\x01x\x12\x01y")], RecordSchema.of(a=STRING, _a=STRING), lambda _: text)
    assert found == [{"a": "x", "_a": "y"}]


def test_a_file_of_proto2_can_have_names_that_are_the_same_in_json() -> None:
    text = "message M { optional string fooBar = 1; optional string foo_bar = 2; }"
    schema = RecordSchema.of(fooBar=STRING, foo_bar=STRING)
    assert by_both([wire(7, b"\x0a\x01x\x12\x01y")], schema, lambda _: text) == [{"fooBar": "x", "foo_bar": "y"}]


def test_a_file_that_does_not_say_its_syntax_is_one_of_proto2() -> None:
    """All its records were dead letters: a descriptor says proto3 only."""
    text = "message M { optional string a = 1; optional string b = 2; }"
    descriptor = FileDescriptorProto(name="m.proto")
    message = descriptor.message_type.add(name="M")
    for number, name in enumerate("ab", 1):
        protobuf_writers.field(message, name, number, "string")
    for file in (descriptor, lambda _: text):
        found = by_both([wire(7, b"\x0a\x01x")], RecordSchema.of(a=STRING, b=STRING), file)
        assert found == [{"a": "x", "b": None}]
