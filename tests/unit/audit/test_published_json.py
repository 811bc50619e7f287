"""A published value counts as the stream's only if a stream writes it so, to the last digit."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recount.audit.compare.claims import is_encoded, with_plain_decimals
from recount.declare.output import encode_value
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, decimal, list_of

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
