"""Records of the sink's topic are read for what they say, to the last digit."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from tests.unit.audit.test_judgement import a_flow
from tests.unit.formats.served_registry import served

from recount.audit.compare.committed import CommittedRecord
from recount.audit.compare.published import copies_of
from recount.declare.columns import EVIDENCE, ORIGIN, PLACE, RESULT_TIME, REVISION
from recount.formats.registry_encoders import avro_encoder
from recount.runtime.errors import VARIABLE

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
    assert copy() == {
        "region": "EU",
        "window_start": 0,
        "window_end": 10_000,
        "orders": 2,
        "revenue": Decimal("3.50"),
        RESULT_TIME: 9,
        PLACE: "kafka",
        ORIGIN: "stream",
        REVISION: 1,
        EVIDENCE: "revenue-3@7",
    }
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
    assert copy(key=b"US")[REVISION] == -1
    assert copy(key=None)[REVISION] == -1
    assert copy(revision="many")[REVISION] == -1
    assert copy(revision="-5")[REVISION] == -1


def test_a_result_at_the_epoch_is_read_from_its_header() -> None:
    """Item 1.6: Kafka's clients cannot write the time 0."""
    for at_ms, headers, told in ((1, {"timestamp": "0"}, 0), (1, {}, 1), (9, {"timestamp": "0"}, 9)):
        sent = [(f"recount-{name}", text.encode()) for name, text in headers.items()]
        assert read(at_ms, sent)[RESULT_TIME] == told


def test_a_record_in_avro_is_a_copy_too_and_one_that_cannot_be_read_has_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = a_flow()
    sink = replace(flow.sink, topic=replace(flow.sink.topic, encoding="avro"))
    flow = replace(flow, sink=sink)
    row = {"region": "EU", "window_start": 0, "window_end": 10_000, "orders": 2, "revenue": Decimal("3.50")}
    headers = [("recount-revision", b"1"), ("recount-origin", b"stream")]
    with served() as registry:
        monkeypatch.setenv(VARIABLE, registry.address)
        value = avro_encoder(sink)(row)
        other = avro_encoder(sink)({**row, "revenue": Decimal("3.51")})
        records = [
            CommittedRecord(partition=3, offset=at, timestamp_ms=9, key=b"EU", value=one, headers=headers)
            for at, one in enumerate((value, other, value[:-1], VALUE))
        ]
        found = copies_of(records, flow).to_pylist()
    assert [{name: one[name] for name in row} for one in found] == [
        row,
        {**row, "revenue": Decimal("3.51")},
        *[dict.fromkeys(row)] * 2,
    ]
    assert [one[REVISION] for one in found] == [1, 1, -1, -1]
