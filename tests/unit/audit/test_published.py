"""Records of the sink's topic are read for what they say, and count only as a stream writes them, to the last digit."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.formats.served_registry import served

from recount.audit.compare.committed import CommittedRecord
from recount.audit.compare.published import NO_REVISION, PublishedRows, fields_of, json_of, plain_of
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.output import encode_plain, encode_value
from recount.declare.plain_values import PlainValue
from recount.declare.schema import (
    BOOLEAN,
    DOUBLE,
    LONG,
    LONG_MAX,
    LONG_MIN,
    STRING,
    FieldType,
    RecordSchema,
    decimal,
    list_of,
)
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
    written = {name: row[name] for name in FIELDS if name not in missing}
    assert json_of(encode_value(written), FIELDS) == written


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
    assert json_of(value, FIELDS) is None


MONEY, WHOLE = decimal(15, 2), decimal(38, 0)


def read(kind: FieldType, values: list[bytes]) -> list[Any]:
    return [plain_of(value, PlainValue(name="v", kind=kind)) for value in values]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (STRING, ["", " a ", '"', "größer\n", "\x00", "null"]),
        (LONG, [0, -5, LONG_MIN, LONG_MAX]),
        (DOUBLE, [0.0, -2.5, 1e16, 5e-324, 1.7976931348623157e308]),
        (BOOLEAN, [True, False]),
        (MONEY, [Decimal("0.00"), Decimal("-9999999999999.99"), Decimal("10.50")]),
        (WHOLE, [Decimal("9" * 38), Decimal(0)]),
    ],
)
def test_a_plain_value_that_the_stream_writes_is_read_back(kind: FieldType, values: list[Any]) -> None:
    assert read(kind, [encode_plain(value) or b"" for value in values]) == values


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (STRING, [b"\xff", b"a\xc3"]),
        (LONG, [b"", b" 1", b"1\n", b"+1", b"01", b"1.0", b"1e2", b"%d" % (LONG_MAX + 1), b"\xff", b"one"]),
        (DOUBLE, [b"", b"Infinity", b"NaN", b"1.", b".5", b"1d", b"1 "]),
        (BOOLEAN, [b"", b"True", b"1", b"t", b"true "]),
        (MONEY, [b"10.5", b"10.505", b"10", b"1e1", b"10000000000000.00", b"10.50\n"]),
        (WHOLE, [b"1.0", b"1" + b"0" * 38]),
    ],
)
def test_any_other_plain_text_is_none(kind: FieldType, values: list[bytes]) -> None:
    assert read(kind, values) == [None] * len(values)


def record(key: bytes | None, *headers: tuple[str, bytes]) -> CommittedRecord:
    return CommittedRecord(partition=0, offset=3, timestamp_ms=7, key=key, value=b'{"n":1}', headers=headers)


def test_a_record_has_a_revision_where_its_headers_and_its_key_are_those_of_a_result() -> None:
    """Bytes that are no text are none: in a file they are no Parquet that others read."""
    sink = stream(Topic(name="clicks", key="who", value=RecordSchema.of(n=LONG))).to(Topic(name="out", key="who"))
    rows = PublishedRows.of(sink, {"__key": STRING, "n": LONG})
    one = ("recount-revision", b"2")
    told = [
        record(b"ann", one),
        record(b"ann", one, ("recount-revision", b"\xff")),
        record(b"ann"),
        record(b"a\xff", one),
        record(None, one),
    ]
    found = [rows(record) for record in told]
    assert [row[0] for row in found] == ["ann", "ann", "ann", None, None]
    assert [row[5] for row in found] == [2, NO_REVISION, NO_REVISION, NO_REVISION, 2]
