"""Files and messages of writers of Protobuf, and values in the wire format of a schema registry."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message
from hypothesis import strategies as st

from recount.declare.schema import (
    BOOLEAN,
    BYTES,
    DATE,
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
from recount.formats.protobuf_resolution import ProtobufDecoder
from recount.formats.protobuf_schemas import writer_message
from recount.formats.registry_encoders import sink_files
from recount.recompute.registry_parsing import ProtobufParser
from recount.runtime.protobuf_files import FILE, Files

SchemaOf = Callable[[int], Files]
Told = list[dict[str, Any] | str]


def field(
    message: DescriptorProto,
    name: str,
    number: int,
    kind: str,
    *,
    many: bool = False,
    optional: bool = False,
    one_of: int | None = None,
) -> FieldDescriptorProto:
    """Add a field: ``kind`` is a name like ``int32``, or that of a message or enum, resolved as in a file's text."""
    made = message.field.add(name=name, number=number)
    made.label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
    if f"TYPE_{kind.upper()}" in FieldDescriptorProto.Type.keys():  # noqa: SIM118 - no dictionary
        made.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    else:
        made.type_name = kind
    if one_of is not None:
        made.oneof_index = one_of
    if optional:
        made.oneof_index, made.proto3_optional = len(message.oneof_decl), True
        message.oneof_decl.add(name=f"_{name}")
    return made


def map_field(message: DescriptorProto, name: str, number: int, key: str, kind: str) -> None:
    """Add a map."""
    entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    field(entry, "key", 1, key)
    field(entry, "value", 2, kind)
    field(message, name, number, entry.name, many=True)


def file_of(syntax: str = "proto3") -> FileDescriptorProto:
    """A file without messages, of the package ``shop``."""
    file = FileDescriptorProto(name="shop/order.proto", package="shop", syntax=syntax)
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "wrappers"))
    file.dependency.extend(["google/type/date.proto", "confluent/type/decimal.proto"])
    return file


def order_file(syntax: str = "proto3") -> FileDescriptorProto:
    """A file with an Order that has a field of each kind."""
    file = file_of(syntax)
    state = file.enum_type.add(name="State")
    for number, name in ((0, "OPEN"), (1, "PAID"), (-1, "LOST")):
        state.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    place = order.nested_type.add(name="Place")
    field(place, "city", 1, "string")
    field(place, "inner", 2, "Place")
    order.oneof_decl.add(name="by")
    field(order, "card", 20, "string", one_of=0)
    field(order, "cash", 21, "int32", one_of=0)
    field(order, "to", 22, "Place", one_of=0)
    for number, kind in enumerate(("int32", "int64", "uint32", "uint64", "sint32", "sint64"), 1):
        field(order, f"a_{kind}", number, kind)
    for number, kind in enumerate(("fixed32", "fixed64", "sfixed32", "sfixed64", "float", "double"), 7):
        field(order, f"a_{kind}", number, kind)
    field(order, "vip", 13, "bool")
    field(order, "name", 14, "string")
    field(order, "raw", 15, "bytes")
    field(order, "state", 16, "State")
    field(order, "note", 17, "string", optional=syntax == "proto3")
    field(order, "at", 18, ".google.protobuf.Timestamp")
    field(order, "day", 19, "google.type.Date")
    field(order, "amount", 23, "confluent.type.Decimal")
    field(order, "perhaps", 24, "google.protobuf.Int64Value")
    field(order, "tags", 25, "string", many=True)
    field(order, "numbers", 26, "sint32", many=True)
    field(order, "states", 27, "State", many=True)
    field(order, "places", 28, "Order.Place", many=True)
    field(order, "rates", 33, "double", many=True)
    map_field(order, "prices", 29, "string", "int64")
    map_field(order, "places_by", 30, "string", "Place")
    map_field(order, "sent", 31, "string", "State")
    map_field(order, "codes", 32, "int32", "string")
    field(order, "price", 34, "string")
    return file


DECLARED = RecordSchema.of(
    **{f"a_{kind}": LONG for kind in ("int32", "int64", "uint32", "uint64", "sint32", "sint64")},
    **{f"a_{kind}": LONG for kind in ("fixed32", "fixed64", "sfixed32", "sfixed64")},
    a_float=DOUBLE,
    a_double=DOUBLE,
    as_double=nested("a_int64", kind=DOUBLE),
    as_decimal=nested("a_int32", kind=decimal(9, 2)),
    vip=BOOLEAN,
    name=STRING,
    raw=BYTES,
    state=STRING,
    note=STRING,
    at=TIMESTAMP,
    day=DATE,
    amount=decimal(38, 4),
    perhaps=LONG,
    tags=list_of(STRING),
    numbers=list_of(LONG),
    states=list_of(STRING),
    rates=list_of(DOUBLE),
    card=STRING,
    cash=LONG,
    city=nested("to", "city", kind=STRING),
    deep=nested("to", "inner", "inner", "city", kind=STRING),
    eur=nested("prices", "eur", kind=LONG),
    bern=nested("places_by", "bern", "city", kind=STRING),
    by_post=nested("sent", "post", kind=STRING),
    none=STRING,
)
"""Of an Order everything that can be read, but for the text of a price."""


def files_of(file: FileDescriptorProto | str) -> Files:
    """``file`` as a registry has it: its text, or its descriptor."""
    return ((FILE, file if isinstance(file, str) else base64.b64encode(file.SerializeToString()).decode()),)


def sink_file(topic: str, fields: Mapping[str, FieldType], newest: str | None) -> str:
    """The file by which values of a sink are written; ``newest`` refers to no other."""
    [(_, file)] = sink_files(topic, fields, None if newest is None else files_of(newest))
    return file


def message_of(file: FileDescriptorProto, row: dict[str, Any], indexes: Sequence[int] = (0,)) -> Message:
    """A message with the fields of ``row``; decimals, moments and days are pairs and triples of numbers."""
    made = writer_message(files_of(file), indexes)()
    fill(made, row)
    return made


def fill(message: Any, row: dict[str, Any]) -> None:
    """Write ``row`` into ``message``."""
    for name, value in row.items():
        target = getattr(message, name)
        if value is None:
            continue
        if isinstance(value, dict) and hasattr(target, "DESCRIPTOR"):
            target.SetInParent()
            fill(target, value)
        elif isinstance(value, dict):
            for key, one in value.items():
                if isinstance(one, dict):
                    fill(target[key], one)
                else:
                    target[key] = one
        elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
            for one in value:
                fill(target.add(), one)
        elif isinstance(value, list):
            target.extend(value)
        else:
            setattr(message, name, value)


def wire(schema_id: int, body: Message | bytes, indexes: bytes = b"\0") -> bytes:
    """The value that a producer sends of the first message of a file."""
    written = body if isinstance(body, bytes) else body.SerializeToString()
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + written


def by_stream(values: Sequence[bytes | None], declared: RecordSchema, schema_of: SchemaOf) -> Told:
    """Rows, and the reason where one is bad."""
    decoded = ProtobufDecoder(declared, None, schema_of).decode(values)
    bad = {fault.index: fault.reason for fault in decoded.faults}
    return _told(decoded.columns, bad, len(values))


def by_recompute(values: Sequence[bytes | None], declared: RecordSchema, schema_of: SchemaOf) -> Told:
    """As ``by_stream``."""
    parsed = ProtobufParser(declared, list(declared.fields), schema_of).parsed(values)
    return _told(parsed.columns, {index: reason for index, (reason, _) in parsed.bad.items()}, len(values))


def by_both(values: Sequence[bytes | None], declared: RecordSchema, file: FileDescriptorProto | str | SchemaOf) -> Told:
    """What both say; fails where they differ."""
    schema_of = (lambda _: files_of(file)) if isinstance(file, FileDescriptorProto | str) else file
    found = by_stream(values, declared, schema_of)
    assert repr(found) == repr(by_recompute(values, declared, schema_of))
    return found


def _told(columns: Any, bad: dict[int, str], length: int) -> Told:
    cells = {name: column.to_pylist() for name, column in columns.items()}
    return [bad.get(index, {name: cells[name][index] for name in cells}) for index in range(length)]


def _whole(bits: int, *, is_signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else st.integers(0, 2**bits - 1)


_kinds = {
    **{f"a_{kind}": _whole(int(kind[-2:]), is_signed=True) for kind in ("int32", "int64", "sint32", "sint64")},
    **{f"a_{kind}": _whole(int(kind[-2:]), is_signed=True) for kind in ("sfixed32", "sfixed64")},
    **{f"a_{kind}": _whole(int(kind[-2:]), is_signed=False) for kind in ("uint32", "uint64", "fixed32", "fixed64")},
    "a_float": st.floats(width=32),
    "a_double": st.floats(),
}
_text = st.text(max_size=4)
_states = st.sampled_from([0, 1, -1])
_places = st.recursive(
    st.fixed_dictionaries({}, optional={"city": _text}),
    lambda inner: st.fixed_dictionaries({"inner": inner}, optional={"city": _text}),
    max_leaves=3,
)
_decimals = st.fixed_dictionaries(
    {
        "value": st.integers(-(10**38), 10**38).map(lambda n: n.to_bytes(20, "big", signed=True))
        | st.binary(max_size=3),
        "scale": st.integers(-3, 8),
    }
)
rows = st.fixed_dictionaries(
    {},
    optional={
        **_kinds,
        "vip": st.booleans(),
        "name": _text,
        "raw": st.binary(max_size=4),
        "state": _states,
        "note": _text,
        "at": st.fixed_dictionaries(
            {},
            optional={
                "seconds": st.integers(-62_135_596_801, 253_402_300_800),
                "nanos": st.sampled_from([-1, 0, 999_999, 1_000_000, 999_999_999, 10**9]),
            },
        ),
        "day": st.fixed_dictionaries(
            {"year": st.sampled_from([0, 1, 1900, 2000, 2024, 9999, 10_000])},
            optional={"month": st.integers(-1, 13), "day": st.sampled_from([0, 1, 28, 29, 30, 31, 32])},
        ),
        "amount": _decimals,
        "perhaps": st.fixed_dictionaries({}, optional={"value": _whole(64, is_signed=True)}),
        "tags": st.lists(_text, max_size=3),
        "numbers": st.lists(_whole(32, is_signed=True), max_size=3),
        "states": st.lists(_states, max_size=3),
        "rates": st.lists(st.floats(), max_size=2),
        "places": st.lists(_places, max_size=2),
        "prices": st.dictionaries(st.sampled_from(["eur", "chf", ""]), _whole(64, is_signed=True), max_size=3),
        "places_by": st.dictionaries(st.sampled_from(["bern", "bonn"]), _places, max_size=2),
        "sent": st.dictionaries(st.sampled_from(["post", "bike"]), _states, max_size=2),
        "codes": st.dictionaries(_whole(32, is_signed=True), _text, max_size=2),
        "price": _text,
    },
).flatmap(
    lambda row: (
        st.sampled_from([{}, {"card": "x"}, {"card": ""}, {"cash": 0}]).map(lambda one: {**row, **one})
        | _places.map(lambda place: {**row, "to": place})
    )
)
"""Rows of an Order."""


def amount_of(number: Decimal) -> dict[str, Any]:
    """``number`` as the fields of ``confluent.type.Decimal``."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return {"value": unscaled.to_bytes(17, "big", signed=True), "scale": -exponent}
