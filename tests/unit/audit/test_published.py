"""Records of the sink's topic are read for what they say, and count only as a stream writes them, to the last digit."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.formats.served_registry import served

from recount.audit.compare.claims import is_encoded, with_plain_decimals
from recount.audit.compare.published import fields_of
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.output import encode_value
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import stream
from recount.declare.windows import tumbling
from recount.formats.registry_encoders import avro_encoder
from recount.runtime.errors import VARIABLE

ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(region=STRING, amount=decimal(9, 2)))
ROW = {"region": "EU", "window_start": 0, "window_end": 10_000, "orders": 2, "revenue": Decimal("3.50")}


def test_a_record_in_avro_is_read_and_one_that_is_none_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = stream(ORDERS).select_key(region=col("region")).windowed_by(tumbling("10 s", grace="3 s"))
    results = windows.aggregate(orders=count(), revenue=total("amount")).emit_final()
    sink = results.to(Topic(name="revenue", key="region", encoding="avro"))
    changed = {**ROW, "revenue": Decimal("3.51")}
    with served() as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        value, other = map(avro_encoder(sink), (ROW, changed))
        values = (value, other, value[:-1], encode_value(ROW))
        found = [fields_of(one, "avro", sink.fields) for one in values]
    assert found == [ROW, changed, None, None]


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
