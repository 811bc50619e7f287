"""What a sink writes in Avro and Protobuf: its schema, which the registry has before the first record, and a row."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.formats.protobuf_writers import sink_file
from tests.unit.formats.served_registry import ServedRegistry, emitted, served

from recount.audit.compare.published import fields_of
from recount.declare.aggregates import count
from recount.declare.columns import IS_NULL
from recount.declare.expressions import col
from recount.declare.operators.nodes import KEY
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, Written, stream
from recount.declare.windows import tumbling
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.output_records import output_records, record_columns
from recount.formats.protobuf_resolution import ProtobufDecoder
from recount.formats.registry_decoders import AvroDecoder
from recount.formats.registry_encoders import Encode, encoder_of, sink_schema
from recount.formats.schema_registry import schema_id
from recount.profile.daemon import free_ports
from recount.recompute.registry_parsing import AvroParser, ProtobufParser
from recount.runtime.errors import VARIABLE, InvalidDeclaration, RegistryRefused, RegistryUnreachable, SchemaRefused

Format = Literal["avro", "protobuf"]
FORMATS: tuple[Format, ...] = ("avro", "protobuf")
SCALARS: dict[str, FieldType] = {
    "text": STRING,
    "number": LONG,
    "amount": decimal(38, 4),
    "ratio": DOUBLE,
    "flag": BOOLEAN,
}
FIELDS = {"avro": {**SCALARS, "tags": list_of(STRING), "prices": list_of(decimal(9, 2))}, "protobuf": SCALARS}
DECODERS: dict[str, Any] = {"avro": AvroDecoder, "protobuf": ProtobufDecoder}
PARSERS: dict[str, Any] = {"avro": AvroParser, "protobuf": ProtobufParser}
TARGETS = {form: Topic(name=f"the-target.{form}", key="id", encoding=form) for form in FORMATS}
FILE = """syntax = "proto3";

message the_target_1 {
  optional string text = 1;
  optional int64 number = 2;
  optional string amount = 3;
  optional double ratio = 4;
  optional bool flag = 5;
}
"""
_AMOUNTS = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -4)))
rows = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=5),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "amount": st.none() | _AMOUNTS,
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.text(max_size=3), max_size=3),
        "prices": st.none() | st.lists(st.decimals(-(10**6), 10**6, places=2), max_size=3),
    }
)
of_both = pytest.mark.parametrize("form", FORMATS)


def _written(fields: dict[str, FieldType], topic: Topic) -> Written:
    source = Topic(name="source", key="id", value=RecordSchema(fields=fields))
    return Topology(name="records", sinks=[stream(source).to(topic)]).written[0]


WRITTEN = {form: _written(FIELDS[form], TARGETS[form]) for form in FORMATS}


def _encoder(written: Written) -> Encode:
    encode = encoder_of(written)
    assert encode is not None
    return encode


@of_both
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows)
def test_a_row_that_is_written_is_read_by_stream_and_audit(
    registry: ServedRegistry, form: Format, row: dict[str, Any]
) -> None:
    row = {name: row[name] for name in FIELDS[form]}
    value = _encoder(WRITTEN[form])({KEY: "k", **row})
    assert fields_of(value, form, WRITTEN[form].fields) == row
    decoded = DECODERS[form](RecordSchema(fields=FIELDS[form])).decode([value])
    assert decoded.faults == []
    assert {name: column[0].as_py() for name, column in decoded.columns.items()} == row


@pytest.mark.parametrize(
    ("form", "given_fields"),
    [
        *((form, {"ratio": sign * float("inf")}) for form in FORMATS for sign in (1, -1)),
        ("avro", {"tags": ["a", None]}),
        ("avro", {"prices": [None]}),
    ],
)
def test_what_no_source_may_have_is_written_and_judged_where_a_stream_can_make_it(
    registry: ServedRegistry, form: Format, given_fields: dict[str, Any]
) -> None:
    row = {**dict.fromkeys(FIELDS[form]), **given_fields}
    value = _encoder(WRITTEN[form])(row)
    assert fields_of(value, form, WRITTEN[form].fields) == row
    asked = RecordSchema(fields=FIELDS[form])
    assert [fault.reason for fault in DECODERS[form](asked).decode([value]).faults] == ["schema"]
    assert PARSERS[form](asked, [*given_fields]).parsed([value]).bad[0][0] == "schema"


@of_both
def test_records_that_are_encoded_together_are_those_encoded_one_by_one(registry: ServedRegistry, form: Format) -> None:
    found: list[dict[str, Any]] = [
        {KEY: "a", "text": "", "number": 0, "amount": Decimal("1.5000"), "flag": False, "ratio": 0.5},
        {KEY: "b", "amount": Decimal("-0.0001")},
        {KEY: "c", IS_NULL: True},
    ]
    told, frame = emitted(WRITTEN[form], found)
    encode = _encoder(WRITTEN[form])
    assert [(one.key, one.value) for one in output_records(WRITTEN[form], record_columns(WRITTEN[form], frame))] == [
        (b"a", encode(told[0])),
        (b"b", encode(told[1])),
        (b"c", None),
    ]


@of_both
def test_a_value_that_no_sink_writes_says_nothing(registry: ServedRegistry, form: Format) -> None:
    row = {**dict.fromkeys(FIELDS[form]), "number": 5, "text": "x"}
    value = _encoder(WRITTEN[form])({KEY: "k", **row})
    assert fields_of(value, form, WRITTEN[form].fields) == row
    for one in (b"", b"{}", value[:-1], value + b"\x08", b"\0\0\0\x10\0" + value[5:]):
        assert fields_of(one, form, WRITTEN[form].fields) is None
    assert fields_of(value, form, {**FIELDS[form], "number": STRING}) is None


@of_both
def test_a_value_of_before_a_field_was_added_has_null_there(registry: ServedRegistry, form: Format) -> None:
    value = _encoder(_written({"number": LONG, "gone": STRING}, TARGETS[form]))({"number": 5, "gone": "x"})
    assert fields_of(value, form, WRITTEN[form].fields) == {**dict.fromkeys(FIELDS[form]), "number": 5}


def test_the_schema_of_a_sink_in_avro_has_its_fields_and_each_can_be_null() -> None:
    def of_decimal(precision: int, scale: int) -> dict[str, Any]:
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    kinds: dict[str, Any] = {"text": "string", "number": "long", "amount": of_decimal(38, 4), "ratio": "double"}
    kinds |= {"flag": "boolean", "tags": {"type": "array", "items": ["null", "string"]}}
    kinds |= {"prices": {"type": "array", "items": ["null", of_decimal(9, 2)]}}
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in kinds.items()]
    found = json.loads(sink_schema("1-out.put", {KEY: STRING, **FIELDS["avro"]}))
    assert found == {"type": "record", "name": "_1_out_put", "fields": fields}


def test_the_file_of_a_sink_in_protobuf_has_its_fields_and_a_number_never_means_another() -> None:
    assert sink_file("the-target.1", {KEY: STRING, **SCALARS}, None) == FILE
    assert "message _1_out {" in sink_file("1-out", {"n": LONG}, None)
    fewer = {"number": LONG, "flag": BOOLEAN}
    assert sink_file("t", fewer, FILE) == FILE
    more = sink_file("t", {"later": STRING, **fewer}, FILE)
    assert more == FILE.replace("}", "  optional string later = 6;\n}")
    again = sink_file("t", {**SCALARS, "last": LONG}, more)
    assert again == more.replace("}", "  optional int64 last = 7;\n}")
    assert sink_file("t", SCALARS, again) == again
    # Protobuf keeps some numbers for itself
    newest = 'syntax = "proto3"; message M { optional int64 a = 18998; }'
    lines = sink_file("t", {"a": LONG, "b": LONG, "c": LONG}, newest).splitlines()
    assert [line.split("= ")[1] for line in lines if "optional" in line] == ["18998;", "18999;", "20000;"]


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
    assert sink_file("t", SCALARS, reserved) == reserved
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
        "no file",
    ],
    ids=["a text", "never null", "a list", "proto2", "no file"],
)
def test_a_file_that_has_a_field_otherwise_is_refused(newest: str) -> None:
    with pytest.raises(SchemaRefused):
        sink_file("t", {"n": LONG}, newest)


def test_a_stream_has_the_registry_know_its_schemas_and_adds_to_the_newest_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(fields: dict[str, FieldType]) -> None:
        written = _written(fields, TARGETS["protobuf"])
        TopologyWork(Topology(name="records", sinks=[written]), str(tmp_path)).require_schemas()  # type: ignore[list-item]

    source = stream(Topic(name="source", key="id", value=RecordSchema(fields=SCALARS)))
    counts = source.select_key(number=col("number")).windowed_by(tumbling("5 s", grace="0 s")).aggregate(n=count())
    sinks = [counts.emit_final().to(Topic(name="counts", key="number", encoding="avro"))]
    topology = Topology(name="two", sinks=[*sinks, source.to(Topic(name="copies", key="id"))])
    with served() as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        TopologyWork(topology, str(tmp_path)).require_schemas()
        [(subject, [schema])] = registry.subjects.items()
        assert subject == "counts-value"
        assert [one["name"] for one in json.loads(schema)["fields"]] == ["number", "window_start", "window_end", "n"]

        start({"a": LONG, "b": LONG})
        start({"a": LONG})
        start({"c": STRING, "a": LONG})
        files = registry.subjects["the-target.protobuf-value"]
        assert [file.count("optional") for file in files] == [2, 3]
        assert "optional string c = 3;" in files[-1]
        with pytest.raises(SchemaRefused, match="has not a as optional string"):
            start({"a": STRING})
        registry.refuses["the-target.protobuf-value"] = 409
        with pytest.raises(SchemaRefused, match="registering the-target"):
            start({"a": LONG, "d": LONG})


def test_a_subject_with_a_schema_of_avro_takes_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(['"string"']) as registry:
        registry.subjects["the-target.protobuf-value"] = ['"string"']
        monkeypatch.setenv(VARIABLE, registry.address)
        with pytest.raises(SchemaRefused, match="AVRO"):
            encoder_of(_written({"z": LONG}, TARGETS["protobuf"]))


def test_a_schema_is_looked_up_and_registered_only_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        schema = sink_schema("t", {"n": LONG})
        assert schema_id("t", schema, "AVRO") == 1
        assert registry.asked == ["POST /subjects/t-value", "POST /subjects/t-value/versions"]
        registry.asked.clear()
        registry.subjects["u-value"] = [schema]
        assert schema_id("u", schema, "AVRO") == 1
        assert registry.asked == ["POST /subjects/u-value"]


def test_a_schema_that_the_registry_refuses_wants_a_human_and_an_error_of_its_own_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = sink_schema("t", {"n": LONG})
    with served() as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        registry.refuses = {"t-value": 409, "u-value": 422, "v-value": 401, "w-value": 503}
        expected = {"t": SchemaRefused, "u": SchemaRefused, "v": RegistryRefused, "w": RegistryUnreachable}
        for topic, error in expected.items():
            with pytest.raises(error, match=f"{topic}-value"):
                schema_id(topic, schema, "AVRO")
        registry.refuses = {}
        assert schema_id("t", schema, "AVRO") == 1  # a refusal is not kept
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(RegistryUnreachable):
        schema_id("t", schema, "AVRO")
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(RegistryRefused):
        schema_id("t", schema, "AVRO")


def test_what_a_format_has_not_is_refused_where_the_sink_is_declared() -> None:
    def refused(fields: dict[str, FieldType], form: Format, why: str) -> None:
        with pytest.raises(InvalidDeclaration, match=why):
            _written(fields, TARGETS[form])

    for form in FORMATS:
        refused({"weight.kg": DOUBLE}, form, "names of Avro and Protobuf")
    refused({"tags": list_of(STRING)}, "protobuf", "null from one that is empty")
    for names in (("fooBar", "foo_bar"), ("id1", "id_1"), ("_ab", "Ab")):
        refused(dict.fromkeys(names, STRING), "protobuf", "tells apart in JSON")
        assert _written(dict.fromkeys(names, STRING), TARGETS["avro"]) is not None
    assert _written({"n": LONG}, replace(TARGETS["protobuf"], value=RecordSchema.of(n=DOUBLE))) is not None
