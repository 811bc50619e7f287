"""Fields that lie in the key of a record: the same to the reference, the stream, the recompute and the lens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.engine import NOW_MS, LogRecord, arrow_batch
from tests.unit.formats.served_registry import served
from tests.unit.formats.test_keys_of_bytes import archive_erasure
from tests.unit.formats.three_readers import OUT, by_all, by_stream_and_recompute
from tests.whole_topic import whole_topic

from recount.declare.aggregates import total
from recount.declare.changes import Additions
from recount.declare.expressions import col
from recount.declare.groups import Archive
from recount.declare.operators.nodes import KEY
from recount.declare.plain_values import PlainValue
from recount.declare.schema import BYTES, DOUBLE, LONG, STRING, TIMESTAMP, RecordSchema, in_key, list_of, nested
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.stage.intake import Intake
from recount.profile.daemon import free_ports
from recount.recompute.decoding import DecodePass
from recount.runtime.errors import VARIABLE, InvalidDeclaration, RegistryUnreachable
from recount.runtime.settings import Settings
from recount.tables.places import Tables
from recount.testing import TopologyDriver

SCHEMA = RecordSchema.of(
    customer=in_key("customer", kind=LONG), n=LONG, region=in_key("place", "region"), required=("customer",)
)
TOPIC = Topic(name="events", key="id", value=SCHEMA, key_form="json")
_PLACE = {"type": "record", "name": "Place", "fields": [{"name": "region", "type": ["null", "string"]}]}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Key",
        "fields": [{"name": "customer", "type": "int"}, {"name": "place", "type": ["null", _PLACE]}],
    }
)
FILE = """
syntax = "proto3";
message Key {
  message Place {
    string region = 1;
  }
  int64 customer = 1;
  Place place = 2;
}
"""
DEEP = '{"type":"array","items":' * 5_000 + '"long"' + "}" * 5_000
SCHEMAS = (AVRO, FILE, '"long"', '{"type":"string"}', '"boolean"', "{", DEEP)
"""Of the ids 1, 2, …"""


def keyed(*keys: bytes | None, value: bytes | None = b'{"n":1}') -> list[LogRecord]:
    return [LogRecord(key=key, value=value) for key in keys]


def test_a_json_key_has_fields_and_rows_have_all_of_them_as_their_key() -> None:
    keys = [
        b'{"customer":7,"place":{"region":"EU"},"more":1}',
        b' {"place": {"region": "EU"}, "customer": 7} ',
        b'{"customer":7}',
    ]
    row = {KEY: '{"customer":7,"region":"EU"}', "customer": 7, "n": 1, "region": "EU"}
    nameless = {KEY: '{"customer":7,"region":null}', "customer": 7, "n": 1, "region": None}
    assert by_all(TOPIC, keyed(*keys)) == [row, row, nameless]
    # a record that deletes has a key, too
    assert by_all(TOPIC, keyed(keys[0], value=None)) == [{**row, "n": None}]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, "schema"),
        (b"", "undecodable"),
        (b"{", "undecodable"),
        (b"\xff", "undecodable"),
        (b"7", "schema"),
        (b"{}", "schema"),
        (b'{"customer":null}', "schema"),
        (b'{"customer":"7"}', "schema"),
        (b'{"customer":7,"place":"EU"}', "schema"),
    ],
)
def test_a_key_that_is_not_what_is_declared_makes_the_record_bad(key: bytes | None, reason: str) -> None:
    assert by_all(TOPIC, keyed(key)) == [reason]
    assert by_all(TOPIC, keyed(key, value=b"{")) == ["undecodable"]  # what is wrong with a value counts first
    assert by_all(TOPIC, keyed(key, value=None)) == [reason]


def test_a_key_of_which_nothing_is_required_may_be_missing_unless_somebody_groups_by_it() -> None:
    free = replace(TOPIC, value=replace(SCHEMA, required=frozenset()))
    assert by_all(free, keyed(None, b"{}")) == ["null-key", "undecodable"]
    nothing = {KEY: None, "customer": None, "n": 1, "region": None}
    assert by_stream_and_recompute(free, keyed(None, b"{}"), needs_key=False) == [nothing, nothing]


_members = st.fixed_dictionaries(
    {},
    optional={
        "customer": st.none() | st.integers(-(2**64), 2**64) | st.text(max_size=2),
        "place": st.none() | st.text(max_size=2) | st.dictionaries(st.just("region"), st.none() | st.text(max_size=4)),
    },
)


@given(st.lists(st.none() | st.binary(max_size=3) | _members.map(lambda key: json.dumps(key).encode()), min_size=1))
def test_any_keys_are_the_same_to_all(keys: list[bytes | None]) -> None:
    by_all(TOPIC, keyed(*keys))


@pytest.fixture(name="registry")
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with served(SCHEMAS) as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        yield


def _of_schema(number: int, rest: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + rest


@pytest.mark.usefixtures("registry")
def test_a_key_in_avro_has_fields_whatever_bytes_say_them() -> None:
    topic = replace(TOPIC, key_form="avro")
    keys = [_of_schema(1, rest) for rest in (b"\x0e\x02\x02\x04EU", b"\x8e\x00\x02\x02\x04EU", b"\x0e\x00", b"\x0e")]
    others = [
        _of_schema(3, b"\x0e"),
        _of_schema(4711, b""),
        _of_schema(6, b""),
        _of_schema(7, b""),
        b"\1",
        b"\0\0",
        None,
    ]
    row = {KEY: '{"customer":7,"region":"EU"}', "customer": 7, "n": 1, "region": "EU"}
    nameless = {KEY: '{"customer":7,"region":null}', "customer": 7, "n": 1, "region": None}
    assert by_stream_and_recompute(topic, keyed(*keys, *others)) == [
        *(row, row, nameless, "undecodable"),
        *("schema", "schema", "schema", "schema", "undecodable", "undecodable", "schema"),
    ]


@pytest.mark.usefixtures("registry")
def test_a_key_in_avro_can_be_a_number_or_a_text_itself() -> None:
    numbers = replace(TOPIC, key_form="avro", value=RecordSchema.of(id=in_key(kind=LONG), n=LONG))
    texts = replace(TOPIC, key_form="avro", value=RecordSchema.of(id=in_key(), n=LONG))
    keys = [_of_schema(3, b"\x0e"), _of_schema(4, b"\x04EU"), _of_schema(5, b"\x01"), _of_schema(1, b"\x0e\x00")]
    assert by_stream_and_recompute(numbers, keyed(*keys)) == [{KEY: "7", "id": 7, "n": 1}, *["schema"] * 3]
    assert by_stream_and_recompute(texts, keyed(*keys)) == ["schema", {KEY: "EU", "id": "EU", "n": 1}, *["schema"] * 2]


@pytest.mark.usefixtures("registry")
def test_a_key_in_protobuf_has_fields_too() -> None:
    topic = replace(TOPIC, key_form="protobuf")
    keys = [_of_schema(2, rest) for rest in (b"\0\x08\x07\x12\x04\x0a\x02EU", b"\0", b"\2\4", b"\0\x08")]
    assert by_stream_and_recompute(topic, keyed(*keys)) == [
        {KEY: '{"customer":7,"region":"EU"}', "customer": 7, "n": 1, "region": "EU"},
        {KEY: '{"customer":0,"region":null}', "customer": 0, "n": 1, "region": None},
        "schema",
        "undecodable",
    ]


def test_a_registry_that_does_not_answer_makes_no_key_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{free_ports(1)[0]}")
    [source] = Topology(name="copy", sinks=[stream(replace(TOPIC, key_form="avro")).to(OUT)]).sources
    batch = arrow_batch("events", 0, 0, keyed(_of_schema(1, b"\x0e\x00")))
    with pytest.raises(RegistryUnreachable):
        Intake(source, ["n"], needs_key=True, latest_ms=NOW_MS).take(batch)
    with pytest.raises(RegistryUnreachable):
        next(DecodePass(flow=whole_topic(source=source, needs_record_key=True), limits={})(iter([batch])))


@pytest.mark.parametrize("form", ["json", "avro", "protobuf"])
def test_a_stream_groups_by_a_key_with_fields_and_by_one_of_them(form: Any) -> None:
    source = stream(replace(TOPIC, key_form=form))
    window = tumbling("1 s", grace="0 s")
    per_key = source.windowed_by(window).aggregate(n=total("n")).emit_final()
    per_region = source.select_key(region=col("region")).windowed_by(window).aggregate(n=total("n")).emit_final()
    regions = Topic(name="regions", key="region")
    driver = TopologyDriver(Topology(name="sums", sinks=[per_key.to(OUT), per_region.to(regions)]))
    for customer in (7, 7, 8):
        key = {"customer": customer, "place": {"region": "EU"}}
        assert driver.pipe("events", key=key, value={"n": customer}, timestamp_ms=0) == "counted"
    driver.advance_to(2_000)
    found = [(out.key, out.value and out.value["n"]) for out in driver.read("out")]
    assert sorted(found) == [('{"customer":7,"region":"EU"}', 14), ('{"customer":8,"region":"EU"}', 8)]
    assert [(out.key, out.value and out.value["n"]) for out in driver.read("regions")] == [("EU", 22)]


def test_a_driver_takes_a_key_as_it_is_declared() -> None:
    whole = replace(TOPIC, key_form="avro", value=RecordSchema.of(id=in_key(kind=LONG), n=LONG))
    driver = TopologyDriver(Topology(name="copy", sinks=[stream(whole).to(OUT)]))
    assert driver.pipe("events", key=7, value={"n": 1}, timestamp_ms=0) == "counted"
    assert [out.key for out in driver.read("out")] == ["7"]
    bad: list[tuple[Topic, Any]] = [
        (whole, {"id": 7}),
        (whole, b"7"),
        (TOPIC, "7"),
        (replace(TOPIC, key_form="avro"), b"{}"),
        (replace(TOPIC, key_form="text", value=RecordSchema.of(n=LONG)), {"customer": 7}),
    ]
    for topic, key in bad:
        driver = TopologyDriver(Topology(name="copy", sinks=[stream(topic).to(OUT)]))
        with pytest.raises(InvalidDeclaration):
            driver.pipe("events", key=key, value={"n": 1}, timestamp_ms=0)


def test_a_further_field_of_the_key_is_no_addition_for_rows_would_have_another_key() -> None:
    topology = Topology(name="copy", sinks=[stream(TOPIC).select("n").to(OUT)])
    with pytest.raises(InvalidDeclaration, match="rows have their key"):
        Additions(fields={"events": frozenset({"region"})}).taken_from(topology)
    assert Additions(fields={"events": frozenset({"n"})}) is not None


def test_what_no_key_can_be_is_refused_where_it_is_declared() -> None:
    for kind in (DOUBLE, list_of(STRING), nested("a", kind=STRING), in_key("a")):
        with pytest.raises(InvalidDeclaration):
            in_key("b", kind=kind)
    for kind in (TIMESTAMP, BYTES):
        assert str(in_key("b", kind=kind)).endswith("of the key")
    with pytest.raises(InvalidDeclaration):
        in_key("")
    with pytest.raises(InvalidDeclaration):
        nested("a", kind=in_key("b"))
    with pytest.raises(InvalidDeclaration, match="a field of the value"):
        RecordSchema.of(customer=in_key("customer"))
    with pytest.raises(InvalidDeclaration):
        PlainValue.of(text=in_key("a"))  # type: ignore[arg-type]
    for form in ("text", "bytes"):
        with pytest.raises(InvalidDeclaration, match="key_form"):
            replace(TOPIC, key_form=form)  # type: ignore[arg-type]
    for schema in (RecordSchema.of(n=LONG), PlainValue.of(n=LONG), None):
        with pytest.raises(InvalidDeclaration, match="key_form"):
            replace(TOPIC, value=schema)
    for more in ({"key_form": "json"}, {"key_form": "protobuf"}):
        with pytest.raises(InvalidDeclaration, match="key_form"):
            Topic(name="events", key="id", value=RecordSchema.of(n=LONG, id=in_key()), **more)  # type: ignore[arg-type]
    with pytest.raises(InvalidDeclaration, match="read only"):
        stream(TOPIC).to(TOPIC)


@pytest.mark.usefixtures("registry")
def test_an_archive_finds_all_records_whose_key_says_the_same(settings: Settings) -> None:
    topic = replace(TOPIC, key_form="avro")
    keys = [
        _of_schema(1, b"\x0e\x02\x02\x04EU"),
        _of_schema(1, b"\x8e\x00\x02\x02\x04EU"),
        _of_schema(1, b"\x10\x02\x02\x04EU"),
        b"no key",
        None,
    ]
    frame = pl.DataFrame(
        {"partition": [0] * 5, "offset": list(range(5)), "key": keys},
        schema={"partition": pl.Int32(), "offset": pl.Int64(), "key": pl.Binary()},
    )
    erasure = archive_erasure(settings, Archive(topic=topic), '{"customer":7,"region":"EU"}')
    write_deltalake(Tables(erasure.settings.data).archive("events"), frame.to_arrow())
    assert erasure.places() == [(0, 0), (0, 1)]
