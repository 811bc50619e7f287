"""Plain values: the reference, the stream's decoder and the recompute's parser take the same bytes for the same."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.formats.test_decoder import numbers

from recount.declare.output import encode_plain
from recount.declare.plain_values import PlainValue
from recount.declare.schema import (
    BOOLEAN,
    DOUBLE,
    LONG,
    LONG_MAX,
    LONG_MIN,
    STRING,
    BadRecord,
    FieldType,
    decimal,
    list_of,
)
from recount.formats.json_values import Fault
from recount.formats.record_decoder import PlainDecoder
from recount.recompute.decoding import PlainParser
from recount.runtime.errors import InvalidDeclaration

SHORT, WIDE = decimal(4, 2), decimal(38, 18)
KINDS = (STRING, LONG, DOUBLE, BOOLEAN, SHORT, decimal(15, 2), decimal(18, 2), WIDE)
_PIECES = (b"12", b"-", b"1.5", b"true", b"false", b" ", b"\n", b'"', b"null", b"\xc3\xa9", b"\xff", b"\x00", b',"v":1')
values = st.lists(
    st.one_of(
        st.none(),
        numbers.map(str.encode),
        st.lists(st.sampled_from(_PIECES), max_size=3).map(b"".join),
        st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.binary(max_size=8),
    ),
    max_size=6,
)


def by_reference(kind: FieldType, given_values: list[bytes | None]) -> tuple[list[Any], list[Fault]]:
    """The cells, null where a value is bad or null, and what is said of bad ones."""
    declared, cells, faults = PlainValue(name="v", kind=kind), [], []
    for index, value in enumerate(given_values):
        try:
            cells.append(None if value is None else declared.decode(value)["v"])
        except BadRecord as bad:
            cells.append(None)
            faults.append(Fault(index, bad.reason, bad.detail))
    return cells, faults


@settings(deadline=None, max_examples=600)
@given(st.sampled_from(KINDS), values)
@example(LONG, [b"%d" % n for n in (LONG_MIN, LONG_MIN - 1, LONG_MAX, LONG_MAX + 1)])
@example(SHORT, [b"99.99", b"100", b"-99.99", b"-100", b"0.001", b"1e1", b'"1.5"', b"0.29999999999999999"])
@example(DOUBLE, [b"1e308", b"1e309", b"-0", b"-0.0", b"9" * 5_000])
@example(LONG, [b'1,"v":2', b"1}", b'{"v":1}'])
@example(STRING, [b"", b"good", b"\xed\xa0\x80", None])
def test_stream_and_recompute_take_what_the_reference_takes(kind: FieldType, given_values: list[bytes | None]) -> None:
    cells, faults = by_reference(kind, given_values)
    declared = PlainValue(name="v", kind=kind)
    decoded, parsed = PlainDecoder(declared).decode(given_values), PlainParser(declared).parsed(given_values)
    assert (repr(decoded.columns["v"].to_pylist()), decoded.faults) == (repr(cells), faults)
    assert parsed.columns["v"].to_pylist() == cells
    assert {index: reason for index, (reason, _) in parsed.bad.items()} == {one.index: one.reason for one in faults}


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        *((STRING, b"", ""), (STRING, b' "quoted" ', ' "quoted" '), (STRING, b"null", "null")),
        *((STRING, "Grüße\n".encode(), "Grüße\n"), (LONG, b"-12", -12), (LONG, b"%d" % LONG_MAX, LONG_MAX)),
        *((DOUBLE, b"2", 2.0), (DOUBLE, b"2.5E-1", 0.25), (BOOLEAN, b"true", True), (BOOLEAN, b"false", False)),
        *((SHORT, b"1.5", Decimal("1.50")), (WIDE, b"0.300000000000000004", Decimal("0.300000000000000004"))),
    ],
)
def test_a_plain_value_is_the_text_or_the_number_as_it_is_written(kind: FieldType, value: bytes, read: Any) -> None:
    assert by_reference(kind, [value]) == ([read], [])


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        *((STRING, b"\xff", "undecodable"), (LONG, b"", "schema"), (LONG, b"\xff", "schema")),
        *((LONG, b" 1", "schema"), (LONG, b"1\n", "schema"), (LONG, b"1.0", "schema"), (LONG, b'"1"', "schema")),
        *((LONG, b"true", "schema"), (LONG, b"null", "schema"), (LONG, b"%d" % (LONG_MAX + 1), "schema")),
        *((LONG, (5).to_bytes(8), "schema"), (DOUBLE, b"1e309", "schema"), (DOUBLE, b"NaN", "schema")),
        *((DOUBLE, b".5", "schema"), (BOOLEAN, b"True", "schema"), (BOOLEAN, b"1", "schema")),
        *((SHORT, b"0.001", "schema"), (SHORT, b'"1.5"', "schema")),
    ],
)
def test_anything_else_is_a_bad_record(kind: FieldType, value: bytes, reason: str) -> None:
    cells, faults = by_reference(kind, [value])
    assert (cells, [fault.reason for fault in faults]) == ([None], [reason])


written = st.one_of(
    st.tuples(st.just(STRING), st.text(st.characters(codec="utf-8"), max_size=5)),
    st.tuples(st.just(LONG), st.integers(LONG_MIN, LONG_MAX)),
    st.tuples(st.just(DOUBLE), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just(BOOLEAN), st.booleans()),
    st.tuples(st.just(decimal(15, 2)), st.decimals(-(10**12), 10**12, places=2)),
)


@given(written)
def test_what_is_written_is_read_back(one: tuple[FieldType, Any]) -> None:
    kind, value = one
    assert repr(by_reference(kind, [encode_plain(value)])) == repr(([value], []))


def test_a_plain_value_is_one_scalar() -> None:
    for declare in (
        lambda: PlainValue.of(),
        lambda: PlainValue.of(one=STRING, other=STRING),
        lambda: PlainValue.of(many=list_of(STRING)),
        lambda: PlainValue(name='a "name"', kind=STRING),
        lambda: PlainValue(name="recount_text", kind=STRING),
        lambda: PlainValue(name="text", kind="string"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidDeclaration):
            declare()
