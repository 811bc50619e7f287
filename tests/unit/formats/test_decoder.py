"""The fast decoder takes exactly what ``RecordSchema.decode`` takes, and words a fault alike."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import LogRecord, arrow_batch
from tests.whole_topic import whole_topic

from recount.declare.operators.nodes import Source
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, BadRecord, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.engine.stage.intake import Intake
from recount.formats.json_values import Fault, ValueDecoder
from recount.recompute.decoding import NO_LIMIT_MS, DecodePass, Limits
from recount.recompute.parsing import Parser
from recount.reference.topology_driver import TopologyDriver

SCHEMA = RecordSchema.of(
    id=STRING,
    count=LONG,
    ratio=DOUBLE,
    amount=decimal(15, 2),
    vip=BOOLEAN,
    tags=list_of(STRING),
    sizes=list_of(LONG),
    prices=list_of(decimal(5, 1)),
    required=("id",),
)


def expected(values: list[bytes | None], columns: list[str]) -> tuple[list[dict[str, Any]], list[Fault]]:
    """Rows and faults as the reference sees them; a faulty value and a tombstone are rows of nulls."""
    rows, faults = [], []
    for index, value in enumerate(values):
        row: dict[str, Any] = dict.fromkeys(SCHEMA.fields)
        try:
            row = row if value is None else SCHEMA.decode(value)
        except BadRecord as bad:
            faults.append(Fault(index, bad.reason, bad.detail))
        rows.append({name: row[name] for name in columns})
    return rows, faults


def decoded(values: list[bytes | None], columns: list[str]) -> tuple[list[dict[str, Any]], list[Fault]]:
    result = ValueDecoder(SCHEMA, columns).decode(values)
    assert list(result.columns) == columns
    cells = {name: column.to_pylist() for name, column in result.columns.items()}
    return [{name: cells[name][index] for name in columns} for index in range(len(values))], result.faults


integers = st.one_of(
    st.integers(), st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**400, -(10**5000)])
).map(lambda number: str(number) if abs(number) < 10**4000 else "-1" + "0" * 5000)
numbers = st.one_of(
    integers,
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**14), 10**14, places=2).map(str),
    st.decimals(-(10**6), 10**6, places=3).map(str),
    st.sampled_from(["1.0", "1e2", "-0", "-0.0", "1e400", "-1E+999", "1e-400", "0.10", "01", "1.", ".5", "+1", "-"]),
)
escapes = st.sampled_from(["\\ud800", "\\udc00x", "\\ud83d\\ude00", "\\u0000", "\\n", "\\q", "\x01", "é", "𐍈", "\\/"])
texts = st.lists(st.one_of(escapes, st.text("ab \u00df", max_size=3)), max_size=3).map(lambda t: '"' + "".join(t) + '"')
words = st.sampled_from(["null", "true", "false", "NaN", "Infinity", "-Infinity", "tru", "{}", '{"id":1}', "", "[[]]"])
scalars = st.one_of(numbers, texts, words)
arrays = st.lists(scalars, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
names = st.sampled_from([*(f'"{name}"' for name in SCHEMA.fields), '"other"', '"\\u0069d"', '""', "id"])
members = st.tuples(names, st.one_of(scalars, arrays)).map(":".join)
objects = st.lists(members, max_size=6).map(lambda found: '{"id": "x", ' * bool(found) + ",".join(found) + "}")
typed = st.fixed_dictionaries(
    {'"id"': texts},
    optional={
        '"count"': integers,
        '"ratio"': numbers,
        '"amount"': numbers,
        '"vip"': st.sampled_from(["true", "false", "null"]),
        '"tags"': st.lists(texts, max_size=2).map(lambda items: "[" + ",".join(items) + "]"),
        '"sizes"': st.lists(integers, max_size=2).map(lambda items: "[" + ",".join(items) + "]"),
        '"prices"': st.lists(numbers, max_size=2).map(lambda items: "[" + ",".join(items) + "]"),
        '"other"': scalars,
    },
).map(lambda found: "{" + ",".join(f"{name}: {value}" for name, value in found.items()) + "}")
documents = st.one_of(typed, objects, scalars, arrays).map(lambda text: text.encode("utf-8", "surrogatepass"))
broken = st.tuples(
    documents, st.integers(0, 40), st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xef\xbb\xbf"])
).map(lambda drawn: drawn[0][: drawn[1]] + drawn[2] + drawn[0][drawn[1] :])
values = st.lists(st.one_of(st.none(), documents, broken, st.binary(max_size=8)), max_size=6)
columns = st.sampled_from([list(SCHEMA.fields), ["id"], ["amount", "prices"], []])


@settings(deadline=None, max_examples=500)
@given(values, columns)
@example([b'{"id":"a","other":"\xff"}'], ["id"])
@example([b'{"id":"\xc3', b'\xa9"}'], ["id"])
@example([b'{"id":"a","count":9223372036854775808}', b'{"id":"b","count":1}'], ["id"])
@example([b'{"id":"\\ud800"}'], ["count"])
@example([b'{"id":"a","sizes":[9223372036854775808]}', b'{"id":"a","prices":[1.5]}'], ["id"])
@example([b'{"count":1}', None, b'{"id":null}'], ["count"])
def test_the_fast_decoder_takes_what_the_reference_takes(given_values: list[bytes | None], wanted: list[str]) -> None:
    assert repr(decoded(given_values, wanted)) == repr(expected(given_values, wanted))


@pytest.mark.parametrize("nesting", [b"[" * 100_000, b'{"id":"a","other":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
def test_absurd_nesting_is_a_bad_record_and_harms_no_other(nesting: bytes) -> None:
    rows, faults = decoded([b'{"id":"before"}', nesting, b'{"id":"after"}'], ["id"])
    assert [row["id"] for row in rows] == ["before", None, "after"]
    assert [(fault.index, fault.reason) for fault in faults] == [(1, "undecodable")]


def test_a_field_can_have_any_name() -> None:
    """Names that are no identifiers of Python are declared, described and audited like any other."""
    names = ["gewicht.kg", "gewicht", "größe", "class", "net weight", "1st", "f0", "ﬁn"]
    schema = RecordSchema(fields=dict.fromkeys(names, LONG), required=frozenset({"f0"}))
    values = [json.dumps(dict(zip(names, range(8), strict=True))).encode(), b'{"gewicht.kg": "1", "f0": 1}', None]
    result = ValueDecoder(schema).decode(values)
    assert {name: column.to_pylist() for name, column in result.columns.items()} == {
        name: [number, None, None] for number, name in enumerate(names)
    }
    assert [fault.index for fault in result.faults] == [1]
    assert ValueDecoder(schema).decode([b'{"gewicht.kg": 3}']).faults[0].reason == "schema"


SHORT, WIDE, WHOLE = decimal(15, 2), decimal(38, 18), decimal(38, 0)
NINES = "9" * 38


def told(written: str, kind: object, *, nested: bool = False) -> Decimal | None:
    """What all three make of ``written``; None where each refuses it."""
    schema = RecordSchema(fields={"id": SHORT, "amount": list_of(kind) if nested else kind}, required=frozenset({"id"}))  # type: ignore[arg-type,dict-item]
    value = f'{{"id": 1, "amount": {f"[{written}]" if nested else written}}}'.encode()
    try:
        reference = schema.decode(value)["amount"]
    except BadRecord:
        reference = None
    # beside others, among which it must not matter
    values: list[bytes | None] = [b'{"id": "2.5", "amount": null}', value, None, b'{"id": 3}']
    decoded, parsed = ValueDecoder(schema).decode(values), Parser(schema, list(schema.fields)).parsed(values)
    assert [fault.index for fault in decoded.faults] == list(parsed.bad) == ([1] if reference is None else [])
    assert (
        decoded.columns["amount"].to_pylist() == parsed.columns["amount"].to_pylist() == [None, reference, None, None]
    )
    assert decoded.columns["id"][0].as_py() == parsed.columns["id"][0].as_py() == Decimal("2.50")
    return reference[0] if nested and reference else reference


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(
    ("written", "kind"),
    [
        *(("990.56", SHORT), ("-0.5", SHORT), ("12.340", SHORT), ("1e2", SHORT), ("-0.00", SHORT)),
        *(("9999999999999.99", SHORT), ("9007199254740993", WHOLE), (NINES, WHOLE), ("-" + NINES, WHOLE)),
        *(("9" * 20 + "." + "9" * 18, WIDE), ("0.300000000000000004", WIDE), ("1e-18", WIDE)),
    ],
)
def test_a_decimal_is_the_number_as_written_with_and_without_quotes(
    written: str, kind: object, quote: str, nested: bool
) -> None:
    assert told(quote + written + quote, kind, nested=nested) == Decimal(written)


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("12.345", SHORT),
        ("10000000000000.00", SHORT),
        ("1" + "0" * 38, WHOLE),
        (NINES + ".5", WHOLE),
        ("1e38", WHOLE),
        ("1e-1", WHOLE),
        ("1e999999999999999999999", WHOLE),
        ("9" * 21, WIDE),
    ],
)
def test_a_number_with_more_digits_is_no_decimal_with_and_without_quotes(
    written: str, kind: object, quote: str
) -> None:
    assert told(quote + written + quote, kind) is None


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_decimal_of_up_to_15_digits_may_be_written_as_the_double_that_stands_for_it(quote: str) -> None:
    assert told(f"{quote}0.29999999999999999{quote}", SHORT) == Decimal("0.30")
    assert told(f"{quote}0.29999999999999999{quote}", decimal(16, 2)) is None


AMOUNTS = Topic(name="amounts", key="id", value=RecordSchema.of(n=LONG))
VALUES = [b'{"n": 1}', b'{"n": 2}', b"no json", b"no json", None]
ASIDE = frozenset({1, 3, 4})
EXPECTED = [None, "set-aside", "undecodable", "set-aside", "set-aside"]


def test_the_three_implementations_agree_and_the_order_goes_before_what_else_is_wrong() -> None:
    source = Source(topic=AMOUNTS)
    batch = arrow_batch("amounts", 0, 0, [LogRecord(timestamp_ms=n, value=value) for n, value in enumerate(VALUES)])
    good, bad = Intake(source, ["n"], needs_key=True, latest_ms=NO_LIMIT_MS, set_aside=ASIDE).take(batch)
    by_stream: dict[int, Any] = dict.fromkeys(good["offset"].to_list()) | dict(
        bad.select("offset", "reason").iter_rows()
    )
    assert [by_stream[offset] for offset in range(len(VALUES))] == EXPECTED
    assert bad["timestamp_ms"].to_list() == [1, 2, 3, 4]

    limits = {0: Limits(starts=[0], latest_ms=[NO_LIMIT_MS], set_aside=ASIDE)}
    [found] = DecodePass(flow=whole_topic(source=source, needs_record_key=True), limits=limits)(iter([batch]))
    assert [row["reason"] for row in found.to_pylist()] == EXPECTED

    topology = Topology(name="kept", sinks=[stream(AMOUNTS).to(Topic(name="out", key="id"))], on_bad_record="fail")
    driver = TopologyDriver(topology, set_aside=["amounts-0@0"])
    assert driver.pipe("amounts", key="a", value=b"no json", timestamp_ms=0) == "dead-lettered"
    assert driver.pipe("amounts", key="a", value=b'{"n": 1}', timestamp_ms=0) == "counted"
