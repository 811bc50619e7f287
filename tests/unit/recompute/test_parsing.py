"""The recompute reads JSON by itself (issue 12, 1.5): many values as one by one, and as the stream does."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.formats.test_decoder import SCHEMA, columns, values

from recount.declare.schema import DOUBLE, LONG, BadRecord, FieldType, RecordSchema, decimal
from recount.formats.json_values import ValueDecoder
from recount.recompute import parsing
from recount.recompute.parsing import Parsed, Parser
from recount.recompute.rules.value_rules import Bad, fields_of

Told = tuple[list[dict[str, Any]], dict[int, str]]


def one_by_one(given_values: list[bytes | None], wanted: list[str], *, by_stream: bool) -> Told:
    """Rows, and the reasons of bad values, of each value by itself."""
    rows, bad = [], {}
    for index, value in enumerate(given_values):
        row: dict[str, Any] = dict.fromkeys(SCHEMA.fields)
        try:
            if value is not None:
                row = SCHEMA.decode(value) if by_stream else fields_of(value, SCHEMA)
        except (Bad, BadRecord) as fault:
            bad[index] = fault.reason
        rows.append({name: row[name] for name in wanted})
    return rows, bad


def at_once(given_values: list[bytes | None], wanted: list[str]) -> Told:
    found = Parser(SCHEMA, wanted).parsed(given_values)
    cells = {name: column.to_pylist() for name, column in found.columns.items()}
    rows = [{name: cells[name][index] for name in wanted} for index in range(len(given_values))]
    return rows, {index: reason for index, (reason, _) in found.bad.items()}


@settings(deadline=None, max_examples=300)
@given(values, columns)
@example([b'{"id":"a"},{"id":"b"}', b'{"id":"c"'], ["id"])
@example([b'{"id":["a', b'b"]}'], ["id"])
@example([b'{"id":"a","count":9223372036854775808}', b'{"id":"b","count":1}'], ["id"])
@example([b'{"id":"a","amount":1e999999999999999999999}', b'{"id":"a","ratio":1e-9999999999999999999}'], ["ratio"])
@example([b'{"id":"a","ratio":1e999}', b'{"id":"a","prices":[1.25]}', b'{"id":"a","prices":[1.5]}'], ["prices"])
@example([b'{"id":"\\ud800"}', None, b'{"id":null}'], ["id"])
@example([b"[" * 100_000, b'{"id":"a","count":-0}'], ["count"])
def test_many_values_are_read_as_one_by_one(given_values: list[bytes | None], wanted: list[str]) -> None:
    assert at_once(given_values, wanted) == one_by_one(given_values, wanted, by_stream=False)


@settings(deadline=None, max_examples=300)
@given(values)
def test_the_stream_takes_the_same_values_for_the_same(given_values: list[bytes | None]) -> None:
    wanted = list(SCHEMA.fields)
    assert at_once(given_values, wanted) == one_by_one(given_values, wanted, by_stream=True)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("12.34", "12.34"),
        ("12.340", "12.34"),
        ("12.345", None),
        ("1.2e1", "12"),
        ("1E+3", None),
        ("-99.99", "-99.99"),
        ("100", None),
        ("-0.00", "0"),
        ("0.29999999999999999", "0.3"),
        ("0.30000000000000004", None),
        ("1e-400", "0"),
    ],
)
def test_a_decimal_is_judged_by_its_digits_or_as_the_double_that_stands_for_it(written: str, read: str | None) -> None:
    found = Parser(RecordSchema.of(n=decimal(4, 2)), ["n"]).parsed([b'{"n":%s}' % written.encode()])
    assert found.columns["n"].to_pylist() == [None if read is None else Decimal(read)]
    assert read is None or [RecordSchema.of(n=decimal(4, 2)).decode(b'{"n":%s}' % written.encode())["n"]] == [
        Decimal(read)
    ]
    assert [reason for reason, _ in found.bad.values()] == ([] if read else ["schema"])


_NUMBERS = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    st.decimals(-(10**12), 10**12, places=2).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**65), 2**65).map(str),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(_NUMBERS, st.booleans()), min_size=1), st.sampled_from([(4, 2), (15, 2), (18, 2), (38, 30)]))
@example([("0.29999999999999999", False), ("0.3", False)], (15, 2))
@example([("0.29999999999999999", False), ("0.3", False)], (18, 2))
@example([("1e-400", False), ("12345678901234567.89", False), ("5", False), ("1e15", False)], (18, 2))
@example([("123456789012345678", False), ("0.000000000000000000000000000001", False)], (38, 30))
def test_numbers_are_those_that_the_rules_read(written: list[tuple[str, bool]], size: tuple[int, int]) -> None:
    schema = RecordSchema.of(n=decimal(*size), whole=LONG, some=DOUBLE)
    texts = [f'{{"n":"{number}"}}' if is_text else f'{{"n":{number}}}' for number, is_text in written]
    texts += [f'{{"{name}":{number}}}' for number, _ in written for name in ("whole", "some")]
    values = [text.encode() for text in texts]
    found = Parser(schema, list(schema.fields)).parsed(values)
    for index, value in enumerate(values):
        row = {name: column[index].as_py() for name, column in found.columns.items()}
        assert (row, _reason(found, index)) == _told_alone(value, schema)


@pytest.mark.parametrize("depth", [499, 500, 800, 987, 990, 1_022, 100_000])
@pytest.mark.parametrize("around", [(b"[", b"]"), (b'{"a":', b"}"), (b'["[[",', b"]")])
@pytest.mark.parametrize("name", [b"other", b"n"])
def test_a_value_that_nests_too_deep_is_bad_at_one_depth(depth: int, around: tuple[bytes, bytes], name: bytes) -> None:
    """Parsers stop at depths of their own, and Python's at one that depends on who calls it: one record could be good
    for the stream and bad for its audit, or stop the stream where it was to be told."""
    nested = around[0] * depth + b"1" + around[1] * depth
    schema, value = RecordSchema.of(n=LONG), b'{"m":1,"%s":%s}' % (name, nested)
    reason = "undecodable" if depth >= 500 else "schema" if name == b"n" else None
    assert _told_alone(value, schema)[1] == reason
    assert _reason(Parser(schema, ["n"]).parsed([value]), 0) == reason
    assert [fault.reason for fault in ValueDecoder(schema).decode([value, None]).faults] == [reason] * bool(reason)
    assert [fault.reason for fault in ValueDecoder(schema).decode([value]).faults] == [reason] * bool(reason)
    assert _reason(Parser(schema, ["n"]).parsed([value]), 0) == _told_alone(value, schema)[1]
    by_digits = RecordSchema.of(n=LONG, long=decimal(38, 2))
    longer = b'{"long":1234567890123456.5,%s' % value[1:]
    assert _reason(Parser(by_digits, ["n"]).parsed([longer]), 0) == _told_alone(longer, by_digits)[1]


@pytest.mark.parametrize(
    "value", [b'\\"' * 500_000, b'"' + b"a" * 500_000, b'"\\' * 300_000, b'{"n":"' + b"[" * 500_000]
)
def test_the_depth_of_a_value_that_is_no_json_is_soon_known(value: bytes) -> None:
    """Looked for in turn from each of a million quotes, the end of a text would take hours to be found missing."""
    schema, began = RecordSchema.of(n=LONG), time.process_time()
    deep = b"[" * 501 + value
    assert _reason(Parser(schema, ["n"]).parsed([deep]), 0) == "undecodable"
    assert [fault.reason for fault in ValueDecoder(schema).decode([deep]).faults] == ["undecodable"]
    assert time.process_time() - began < 5


def _told_alone(value: bytes, schema: RecordSchema) -> tuple[dict[str, Any], str | None]:
    try:
        return fields_of(value, schema), None
    except Bad as bad:
        return dict.fromkeys(schema.fields), bad.reason


def _reason(parsed: Parsed, index: int) -> str | None:
    return parsed.bad[index][0] if index in parsed.bad else None


@pytest.mark.parametrize("kind", [decimal(15, 2), decimal(30, 4)])
@pytest.mark.parametrize(
    "written",
    [
        *("1e-99999999", "0e-99999999", "1e-1000000000000000001", "1e1000000000000000001", "1e99999999"),
        *("1." + 5_000 * "0", "0." + 60 * "0" + "1", "0." + 5_000 * "0" + "1", 5_000 * "1"),
    ],
)
def test_a_number_of_which_arrow_would_make_another_is_read_as_by_the_stream(written: str, kind: FieldType) -> None:
    """Of a decimal with many places Arrow reads beyond its tables: some become 0, others end the process."""
    schema = RecordSchema.of(n=kind)
    for value in (b'{"n":%s}' % written.encode(), b'{"n":"%s"}' % written.encode()):
        found, by_stream = Parser(schema, ["n"]).parsed([value]), ValueDecoder(schema).decode([value])
        assert found.columns["n"].to_pylist() == by_stream.columns["n"].to_pylist()
        assert [reason for reason, _ in found.bad.values()] == [fault.reason for fault in by_stream.faults]
        assert bool(by_stream.faults) == _is_refused(value, schema)


def _is_refused(value: bytes, schema: RecordSchema) -> bool:
    try:
        schema.decode(value)
    except BadRecord:
        return True
    return False


def test_values_that_would_be_others_together_are_read_apart() -> None:
    parser = Parser(RecordSchema.of(n=decimal(4, 2)), ["n"])
    found = parser.parsed([b'{"n":1},{"n":2}', b'{"n":[3', b"4]}", b'{"n":5}'])
    assert found.columns["n"].to_pylist() == [None, None, None, Decimal(5)]
    assert sorted(found.bad) == [0, 1, 2]


@pytest.mark.parametrize(
    "value",
    [b'{"id":"\\ud800"}', b'{"id":"x\\udfff"}', b'{"id":"a","count":"\\ud83d"}', b'{"id":"a","tags":["\\ud800"]}'],
)
def test_what_is_said_of_half_a_character_can_be_written(value: bytes) -> None:
    [(reason, detail)] = Parser(SCHEMA, list(SCHEMA.fields)).parsed([value]).bad.values()
    assert reason == "schema" and b"\\ud" in detail.encode("utf-8")


@pytest.mark.parametrize("digits", [27, 28, 29, 36])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_decimal_of_38_digits_is_read_beside_a_bad_value_as_it_is_alone(digits: int, sign: str) -> None:
    schema = RecordSchema.of(amount=decimal(38, 2))
    written, bad = f"{sign}{'9' * digits}.99", b'{"amount":1e99}'
    found = Parser(schema, ["amount"]).parsed([b'{"amount":"%s"}' % written.encode(), bad])
    assert list(found.bad) == [1]
    assert found.columns["amount"].to_pylist()[0] == Decimal(written)


@pytest.mark.parametrize("bad", [b'{"n":"none","m":1}', b'{"n":1e999,"m":1}', b'{"n":1,"m":9223372036854775808}'])
def test_a_bad_value_does_not_slow_the_reading_of_the_others(bad: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[bytes] = []

    def told(value: bytes, schema: RecordSchema) -> dict[str, Any]:
        looked_at.append(value)
        return fields_of(value, schema)

    monkeypatch.setattr(parsing, "fields_of", told)
    plain = [b'{"n":"%d.5","m":%d}' % (number, number) for number in range(1_000)]
    found = Parser(RecordSchema.of(n=decimal(9, 2), m=LONG), ["n", "m"]).parsed([*plain[:700], bad, *plain[700:]])
    assert list(found.bad) == [700]
    assert found.columns["m"].drop_null().to_pylist() == list(range(1_000))
    assert looked_at == [bad]
