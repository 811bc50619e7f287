"""What a sink writes in Protobuf: its file, of which a number never means another field, and the bytes of a row."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.unit.formats.protobuf_writers import sink_file
from tests.unit.formats.served_registry import ServedRegistry, emitted, served
from tests.unit.formats.test_avro_sinks import rows as avro_rows

from recount.audit.compare.published import fields_of
from recount.declare.columns import IS_NULL
from recount.declare.expressions import col
from recount.declare.operators.nodes import KEY
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, Written, stream
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.output_records import output_records
from recount.formats.protobuf_resolution import ProtobufDecoder
from recount.formats.registry_encoders import protobuf_encoder
from recount.recompute.registry_parsing import ProtobufParser
from recount.runtime.errors import VARIABLE, InvalidDeclaration, SchemaRefused

FIELDS: dict[str, FieldType] = {
    "text": STRING,
    "number": LONG,
    "amount": decimal(38, 4),
    "ratio": DOUBLE,
    "flag": BOOLEAN,
}
TARGET = Topic(name="the-target.1", key="id", encoding="protobuf")
FILE = """syntax = "proto3";

message the_target_1 {
  optional string text = 1;
  optional int64 number = 2;
  optional string amount = 3;
  optional double ratio = 4;
  optional bool flag = 5;
}
"""
rows = avro_rows.map(lambda row: {name: row[name] for name in FIELDS})


def _written(fields: dict[str, FieldType], topic: Topic = TARGET) -> Written:
    source = Topic(name="source", key="id", value=RecordSchema(fields=fields))
    return Topology(name="records", sinks=[stream(source).to(topic)]).written[0]


WRITTEN = _written(FIELDS)


def test_the_file_of_a_sink_has_its_fields_and_each_can_be_missing() -> None:
    assert sink_file("the-target.1", {KEY: STRING, **FIELDS}, None) == FILE
    assert "message _1_out {" in sink_file("1-out", {"n": LONG}, None)


def test_a_number_never_means_another_field() -> None:
    fewer = {"number": LONG, "flag": BOOLEAN}
    assert sink_file("t", fewer, FILE) == FILE
    more = sink_file("t", {"later": STRING, **fewer}, FILE)
    assert more == FILE.replace("}", "  optional string later = 6;\n}")
    again = sink_file("t", {**FIELDS, "last": LONG}, more)
    assert again == more.replace("}", "  optional int64 last = 7;\n}")
    assert sink_file("t", FIELDS, again) == again


def test_numbers_that_protobuf_keeps_for_itself_are_passed_over() -> None:
    newest = 'syntax = "proto3"; message M { optional int64 a = 18998; }'
    file = sink_file("t", {"a": LONG, "b": LONG, "c": LONG}, newest)
    assert [line.split("= ")[1] for line in file.splitlines() if "optional" in line] == ["18998;", "18999;", "20000;"]


def test_a_file_of_somebody_else_is_written_by_where_it_has_the_fields() -> None:
    theirs = """
    syntax = "proto3";
    package shop;
    import "google/protobuf/timestamp.proto";
    message Total {
      optional int64 number = 7;
      google.protobuf.Timestamp at = 8;
      optional string text = 2;
    }
    enum Kind { A = 0; }
    """
    assert sink_file("t", {"text": STRING, "number": LONG}, theirs) == theirs
    reserved = FILE.replace("}", "  reserved 6;\n}")
    assert sink_file("t", FIELDS, reserved) == reserved
    for newest in (theirs, reserved, 'syntax = "proto3";'):
        with pytest.raises(SchemaRefused, match="written by somebody else"):
            sink_file("t", {"text": STRING, "more": LONG}, newest)


@pytest.mark.parametrize(
    "newest",
    [
        'syntax = "proto3"; message M { optional string n = 1; }',
        'syntax = "proto3"; message M { int64 n = 1; }',
        'syntax = "proto3"; message M { repeated int64 n = 1; }',
        'syntax = "proto2"; message M { optional int64 n = 1; }',
        'syntax = "proto3"; message M { message N { } optional N n = 1; }',
        "no file",
    ],
    ids=["a text", "never null", "a list", "proto2", "a message", "no file"],
)
def test_a_file_that_has_a_field_otherwise_is_refused(newest: str) -> None:
    with pytest.raises(SchemaRefused):
        sink_file("t", {"n": LONG}, newest)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows)
def test_a_row_that_is_written_is_read_by_stream_and_audit(registry: ServedRegistry, row: dict[str, Any]) -> None:
    value = protobuf_encoder(WRITTEN)({KEY: "k", **row})
    assert fields_of(value, WRITTEN) == row
    decoded = ProtobufDecoder(RecordSchema(fields=FIELDS)).decode([value])
    assert decoded.faults == []
    assert {name: column[0].as_py() for name, column in decoded.columns.items()} == row


@pytest.mark.parametrize("ratio", [float("inf"), float("-inf")])
def test_a_sum_beyond_every_double_is_written_and_judged_though_no_source_may_have_it(
    registry: ServedRegistry, ratio: float
) -> None:
    value = protobuf_encoder(WRITTEN)({**dict.fromkeys(FIELDS), "ratio": ratio})
    assert fields_of(value, WRITTEN) == {**dict.fromkeys(FIELDS), "ratio": ratio}
    assert ProtobufParser(RecordSchema(fields=FIELDS), ["ratio"]).parsed([value]).bad[0][0] == "schema"


def test_records_that_are_encoded_together_are_those_encoded_one_by_one(registry: ServedRegistry) -> None:
    found = [
        {KEY: "a", "text": "", "number": 0, "amount": Decimal("1.5000"), "flag": False, "ratio": 0.5},
        {KEY: "b", "amount": Decimal("-0.0001")},
        {KEY: "c", IS_NULL: True},
    ]
    told, frame = emitted(WRITTEN, found)
    encode = protobuf_encoder(WRITTEN)
    assert [(one.key, one.value) for one in output_records(WRITTEN, frame)] == [
        (b"a", encode(told[0])),
        (b"b", encode(told[1])),
        (b"c", None),
    ]


def test_a_field_can_be_called_as_what_messages_of_the_library_have(registry: ServedRegistry) -> None:
    fields: dict[str, FieldType] = {"SerializeToString": LONG, "ParseFromString": STRING, "HasField": BOOLEAN}
    row = {"SerializeToString": 5, "ParseFromString": "a", "HasField": None}
    value = protobuf_encoder(_written(fields, replace(TARGET, name="named-oddly")))(row)
    declared = RecordSchema(fields=fields)
    decoded = ProtobufDecoder(declared).decode([value])
    assert ({name: column[0].as_py() for name, column in decoded.columns.items()}, decoded.faults) == (row, [])
    assert ProtobufParser(declared, list(fields)).fields_of(value) == row


def test_a_value_that_no_sink_writes_says_nothing(registry: ServedRegistry) -> None:
    value = protobuf_encoder(WRITTEN)({KEY: "k", **dict.fromkeys(FIELDS), "number": 5, "text": "x"})
    for one in (None, b"", b"{}", value[:-1], value + b"\x08", value[:5] + b"\2\2" + value[6:], b"\0\0\0\x10\0\0"):
        assert fields_of(one, WRITTEN) is None
    assert fields_of(value, _written({**FIELDS, "number": STRING})) is None


def test_a_stream_has_the_registry_know_its_file_and_adds_to_the_newest(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(fields: dict[str, FieldType]) -> None:
        TopologyWork(Topology(name="records", sinks=[_written(fields)]), str(tmp_path)).require_schemas()  # type: ignore[list-item]

    with served() as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        start({"a": LONG, "b": LONG})
        start({"a": LONG})
        start({"c": STRING, "a": LONG})
        files = registry.subjects["the-target.1-value"]
        assert [file.count("optional") for file in files] == [2, 3]
        assert "optional string c = 3;" in files[-1]
        with pytest.raises(SchemaRefused, match="has not a as optional string"):
            start({"a": STRING})
        registry.refuses["the-target.1-value"] = 409
        with pytest.raises(SchemaRefused, match="registering the-target"):
            start({"a": LONG, "d": LONG})


def test_a_subject_with_a_schema_of_avro_takes_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(['"string"']) as registry:
        registry.subjects["the-target.1-value"] = ['"string"']
        monkeypatch.setenv(VARIABLE, registry.address)
        with pytest.raises(SchemaRefused, match="AVRO"):
            protobuf_encoder(_written({"z": LONG}))


def test_what_protobuf_has_not_is_refused_where_the_sink_is_declared() -> None:
    with pytest.raises(InvalidDeclaration, match="names of Avro and Protobuf"):
        _written({"weight.kg": DOUBLE})
    with pytest.raises(InvalidDeclaration, match="null from one that is empty"):
        _written({"tags": list_of(STRING)})
    source = stream(Topic(name="source", key="id", value=RecordSchema.of(n=LONG, tags=list_of(STRING))))
    assert source.select(n=col("n")).to(TARGET) is not None
    assert _written({"n": LONG}, replace(TARGET, value=RecordSchema.of(n=DOUBLE))) is not None


def test_a_sink_can_have_a_field_and_one_that_is_named_like_it_behind_an_underscore(registry: ServedRegistry) -> None:
    """The stream registered the file, and then could not build it."""
    written = _written({"id": STRING, "_id": STRING})
    row = {"id": "a", "_id": "b"}
    assert fields_of(protobuf_encoder(written)({KEY: "k", **row}), written) == row


def test_fields_that_a_compiler_of_protobuf_takes_for_one_in_json_are_refused_where_the_sink_is_declared() -> None:
    for names in (("fooBar", "foo_bar"), ("id1", "id_1"), ("_ab", "Ab")):
        with pytest.raises(InvalidDeclaration, match="tells apart in JSON"):
            _written(dict.fromkeys(names, STRING))
        assert _written(dict.fromkeys(names, STRING), replace(TARGET, encoding="avro")) is not None
