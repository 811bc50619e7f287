"""What a sink writes in Avro: its schema, which the registry has before the first record, and the bytes of a row."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
from recount.engine.commit.output_records import output_records
from recount.formats.registry_decoders import AvroDecoder
from recount.formats.registry_encoders import avro_encoder, sink_schema
from recount.formats.schema_registry import schema_id
from recount.profile.daemon import free_ports
from recount.recompute.registry_parsing import AvroParser
from recount.runtime.errors import VARIABLE, InvalidDeclaration, RegistryRefused, RegistryUnreachable, SchemaRefused

FIELDS: dict[str, FieldType] = {
    "text": STRING,
    "number": LONG,
    "amount": decimal(38, 4),
    "ratio": DOUBLE,
    "flag": BOOLEAN,
    "tags": list_of(STRING),
    "prices": list_of(decimal(9, 2)),
}
SOURCE = Topic(name="source", key="id", value=RecordSchema(fields=FIELDS))
TARGET = Topic(name="the-target.1", key="id", encoding="avro")
WRITTEN = Topology(name="records", sinks=[stream(SOURCE).to(TARGET)]).written[0]
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


def test_the_schema_of_a_sink_has_its_fields_and_each_can_be_null() -> None:
    assert json.loads(sink_schema("1-out.put", {KEY: STRING, **FIELDS})) == {
        "type": "record",
        "name": "_1_out_put",
        "fields": [
            {"name": name, "type": ["null", kind], "default": None}
            for name, kind in {
                "text": "string",
                "number": "long",
                "amount": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4},
                "ratio": "double",
                "flag": "boolean",
                "tags": {"type": "array", "items": ["null", "string"]},
                "prices": {
                    "type": "array",
                    "items": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
                },
            }.items()
        ],
    }


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows)
def test_a_row_that_is_written_is_read_by_stream_and_audit(registry: ServedRegistry, row: dict[str, Any]) -> None:
    value = avro_encoder(WRITTEN)({KEY: "k", **row})
    assert fields_of(value, WRITTEN) == row
    decoded = AvroDecoder(RecordSchema(fields=FIELDS)).decode([value])
    assert decoded.faults == []
    assert {name: column[0].as_py() for name, column in decoded.columns.items()} == row


@pytest.mark.parametrize(
    "given",
    [{"ratio": float("inf")}, {"ratio": float("-inf")}, {"tags": ["a", None]}, {"prices": [None]}],
    ids=["a sum beyond every double", "one below", "a null among texts", "a null among decimals"],
)
def test_what_no_source_may_have_is_written_and_judged_where_a_stream_can_make_it(
    registry: ServedRegistry, given: dict[str, Any]
) -> None:
    value = avro_encoder(WRITTEN)({**dict.fromkeys(FIELDS), **given})
    assert fields_of(value, WRITTEN) == {**dict.fromkeys(FIELDS), **given}
    [fault] = AvroDecoder(RecordSchema(fields=FIELDS)).decode([value]).faults
    assert fault.reason == "schema"
    assert AvroParser(RecordSchema(fields=FIELDS), [*given]).parsed([value]).bad[0][0] == "schema"


def test_records_that_are_encoded_together_are_those_encoded_one_by_one(registry: ServedRegistry) -> None:
    found = [
        {KEY: "a", "text": "x", "number": 1, "amount": Decimal("1.5000"), "tags": ["a"], "flag": True, "ratio": 0.5},
        {KEY: "b", "prices": [Decimal("2.50")]},
        {KEY: "c", IS_NULL: True},
    ]
    told, frame = emitted(WRITTEN, found)
    encode = avro_encoder(WRITTEN)
    assert [(one.key, one.value) for one in output_records(WRITTEN, frame)] == [
        (b"a", encode(told[0])),
        (b"b", encode(told[1])),
        (b"c", None),
    ]


def test_a_value_that_no_sink_writes_says_nothing(registry: ServedRegistry) -> None:
    value = avro_encoder(WRITTEN)({KEY: "k", **dict.fromkeys(FIELDS), "number": 5})
    assert fields_of(value, WRITTEN) == {**dict.fromkeys(FIELDS), "number": 5}
    for one in (None, b"", b"{}", value[:-1], value + b"\0", b"\0\0\0\x10\0" + value[5:]):
        assert fields_of(one, WRITTEN) is None
    assert fields_of(value, _written({**FIELDS, "number": STRING})) is None


def test_a_value_of_before_a_field_was_added_has_null_there(registry: ServedRegistry) -> None:
    before = _written({"number": LONG, "gone": STRING})
    value = avro_encoder(before)({"number": 5, "gone": "x"})
    assert fields_of(value, WRITTEN) == {**dict.fromkeys(FIELDS), "number": 5}


def _written(fields: dict[str, FieldType]) -> Written:
    source = replace(SOURCE, value=RecordSchema(fields=fields))
    return Topology(name="records", sinks=[stream(source).to(TARGET)]).written[0]


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


def test_the_work_of_a_stream_has_the_registry_know_the_schemas_of_its_sinks(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = (
        stream(SOURCE).select_key(number=col("number")).windowed_by(tumbling("5 s", grace="0 s")).aggregate(n=count())
    )
    topology = Topology(
        name="two",
        sinks=[
            counts.emit_final().to(Topic(name="counts", key="number", encoding="avro")),
            stream(SOURCE).to(Topic(name="copies", key="id")),
        ],
    )
    with served() as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        TopologyWork(topology, str(tmp_path)).require_schemas()
    [(subject, [schema])] = registry.subjects.items()
    assert subject == "counts-value"
    assert [one["name"] for one in json.loads(schema)["fields"]] == ["number", "window_start", "window_end", "n"]


def test_a_name_that_avro_has_not_is_refused_where_the_sink_is_declared() -> None:
    source = replace(SOURCE, value=RecordSchema(fields={"weight.kg": DOUBLE}))
    with pytest.raises(InvalidDeclaration, match="names of Avro"):
        stream(source).to(TARGET)
    assert stream(source).to(replace(TARGET, encoding="json")) is not None
    assert stream(source).select(weight_kg=col("weight.kg")).to(TARGET) is not None
