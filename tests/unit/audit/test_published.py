"""Records of the sink's topic are read for what they say, and count only as a stream writes them, to the last digit."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.audit.test_judgement import a_flow
from tests.unit.formats.served_registry import served

from recount.audit.compare.claims import is_encoded, with_plain_decimals
from recount.audit.compare.committed import CommittedRecord
from recount.audit.compare.published import copies_of
from recount.declare.columns import EVIDENCE, ORIGIN, PLACE, RESULT_TIME, REVISION
from recount.declare.output import encode_value
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, decimal, list_of
from recount.formats.registry_encoders import avro_encoder
from recount.runtime.errors import VARIABLE

ROW = {"region": "EU", "window_start": 0, "window_end": 10_000, "orders": 2, "revenue": Decimal("3.50")}
VALUE = b'{"region":"EU","window_start":0,"window_end":10000,"orders":2,"revenue":3.50}'


def copy(value: bytes | None = VALUE, key: bytes | None = b"EU", **headers: str) -> dict[str, Any]:
    told = {"recount-revision": "1", "recount-origin": "stream"}
    told |= {f"recount-{name}": text for name, text in headers.items()}
    return read(9, [(name, text.encode()) for name, text in told.items()], value, key)


def read(
    at_ms: int, headers: list[tuple[str, bytes]], value: bytes | None = VALUE, key: bytes | None = b"EU"
) -> dict[str, Any]:
    record = CommittedRecord(partition=3, offset=7, timestamp_ms=at_ms, key=key, value=value, headers=headers)
    [row] = copies_of([record], a_flow()).to_pylist()
    return row


def test_a_record_is_a_copy_with_its_offset_as_evidence() -> None:
    evidence = {RESULT_TIME: 9, PLACE: "kafka", ORIGIN: "stream", REVISION: 1, EVIDENCE: "revenue-3@7"}
    assert copy() == ROW | evidence
    assert copy(origin="backfill")[ORIGIN] == "backfill"


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"n":1e9999999999999999999}'])
def test_a_value_that_is_no_result_has_nulls(value: bytes | None) -> None:
    assert {copy(value)[name] for name in ("region", "window_start", "orders", "revenue")} == {None}
    assert copy(value)[REVISION] == -1


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (b'"orders":2.0', "orders"),
        (b'"orders":true', "orders"),
        (b'"orders":99999999999999999999', "orders"),
        (b'"revenue":3.505', "revenue"),
        (b'"revenue":"3.50"', "revenue"),
        (b'"revenue":1e-99999999', "revenue"),
        (b'"revenue":1e99999999', "revenue"),
        (b'"revenue":0.' + 60 * b"0" + b"1", "revenue"),
        (b'"revenue":NaN', "revenue"),
        (b'"region":1', "region"),
        (b'"region":"\\ud800"', "region"),
    ],
)
def test_a_field_of_another_type_or_with_more_digits_is_null(said: bytes, name: str) -> None:
    assert copy(VALUE[:-1] + b"," + said + b"}")[name] is None


@pytest.mark.parametrize("revenue", [b"3.5", b"35e-1", b"3.50" + 5_000 * b"0"])
def test_a_number_is_the_same_with_other_digits(revenue: bytes) -> None:
    """Arrow would read 0.00 for the last."""
    assert copy(VALUE.replace(b"3.50", revenue))["revenue"] == Decimal("3.50")


def test_a_record_under_another_key_or_without_our_headers_has_no_revision() -> None:
    others = copy(key=b"US"), copy(key=None), copy(revision="many"), copy(revision="-5")
    assert [other[REVISION] for other in others] == [-1] * 4


def test_a_result_at_the_epoch_is_read_from_its_header() -> None:
    """Item 1.6: Kafka's clients cannot write the time 0."""
    for at_ms, headers, told in ((1, {"timestamp": "0"}, 0), (1, {}, 1), (9, {"timestamp": "0"}, 9)):
        sent = [(f"recount-{name}", text.encode()) for name, text in headers.items()]
        assert read(at_ms, sent)[RESULT_TIME] == told


def test_a_record_in_avro_is_a_copy_too_and_one_that_cannot_be_read_has_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = a_flow()
    sink = replace(flow.sink, topic=replace(flow.sink.topic, encoding="avro"))
    flow = replace(flow, sink=sink)
    changed = {**ROW, "revenue": Decimal("3.51")}
    headers = [("recount-revision", b"1"), ("recount-origin", b"stream")]
    with served() as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        value, other = map(avro_encoder(sink), (ROW, changed))
        records = [
            CommittedRecord(partition=3, offset=at, timestamp_ms=9, key=b"EU", value=one, headers=headers)
            for at, one in enumerate((value, other, value[:-1], VALUE))
        ]
        found = copies_of(records, flow).to_pylist()
    assert [{name: one[name] for name in ROW} for one in found] == [ROW, changed, *[dict.fromkeys(ROW)] * 2]
    assert [one[REVISION] for one in found] == [1, 1, -1, -1]


FIELDS = {
    "name": STRING,
    "n": LONG,
    "x": DOUBLE,
    "ok": BOOLEAN,
    "amount": decimal(15, 2),
    "whole": decimal(38, 0),
    "tags": list_of(STRING),
    "prices": list_of(decimal(9, 1)),
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
longs = st.integers(-(2**63), 2**63 - 1)
rows = st.fixed_dictionaries(
    {
        "name": st.none() | texts,
        "n": st.none() | longs,
        "x": st.none() | st.floats(allow_nan=False),
        "ok": st.none() | st.booleans(),
        "amount": st.none() | st.decimals(-(10**12), 10**12, places=2),
        "whole": st.none() | longs.map(Decimal),
        "tags": st.none() | st.lists(texts, max_size=3),
        "prices": st.none() | st.lists(st.decimals(-99, 99, places=1), max_size=3),
    }
)


@given(rows, st.sets(st.sampled_from(sorted(FIELDS))))
def test_whatever_a_stream_writes_is_taken_also_without_fields_that_were_added_later(
    row: dict[str, Any], missing: set[str]
) -> None:
    assert is_encoded(encode_value({name: row[name] for name in FIELDS if name not in missing}), FIELDS)


@pytest.mark.parametrize(
    "value",
    [
        b'{"amount":10.504}',
        b'{"amount":10.5}',
        b'{"amount":10}',
        b'{"amount":"10.50"}',
        b'{"amount":1.050e1}',
        b'{"amount":10.50} and more',
        b'{"amount":10.50}{"amount":99.99}',
        b'{"amount":99.99,"amount":10.50}',
        b'{"amount":10.50,"other":1}',
        b'{"n":1, "x":1.0}',
        b'{"x":1.0,"n":1}',
        b'{"x":1}',
        b'{"x":1.00}',
        b'{"n":1.0}',
        b'{"n":"1"}',
        b'{"n":true}',
        b'{"ok":1}',
        b'{"name":1}',
        b'{"name":"\\u0041"}',
        b'{"tags":"ab"}',
        b'{"prices":[1.05]}',
        b"[]",
        b"1",
        b"",
        b"{",
        b"\xff",
    ],
)
def test_what_no_stream_writes_is_not_taken(value: bytes) -> None:
    assert not is_encoded(value, FIELDS)


@given(st.decimals(-(10**30), 10**30, places=12), st.floats(allow_nan=False, allow_infinity=False), texts)
def test_what_spark_writes_of_decimals_is_read_as_the_same_number_without_an_exponent(
    number: Decimal, other: float, text: str
) -> None:
    written = f'[{{"e":{number},"x":{other!r},"t":{json.dumps(text)},"es":[{number},{number}],"n":1}}]'
    plain = with_plain_decimals(written, {"e", "es"})
    assert json.loads(plain, parse_float=Decimal) == json.loads(written, parse_float=Decimal)
    assert f'"e":{number:f},' in plain and f'"es":[{number:f},{number:f}]' in plain
    assert f'"x":{other!r},' in plain and f'"t":{json.dumps(text)},' in plain
