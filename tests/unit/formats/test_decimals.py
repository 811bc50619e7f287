"""Item 1.6: decimals in JSON strings and of up to 38 digits, for the reference, the stream and the recompute."""

from __future__ import annotations

from decimal import Decimal

import pytest

from recount.declare.schema import BadRecord, RecordSchema, decimal, list_of
from recount.formats.json_values import ValueDecoder
from recount.recompute.parsing import Parser

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
        ("990.56", SHORT),
        ("-0.5", SHORT),
        ("12.340", SHORT),
        ("1e2", SHORT),
        ("-0.00", SHORT),
        ("9999999999999.99", SHORT),
        ("9007199254740993", WHOLE),
        (NINES, WHOLE),
        ("-" + NINES, WHOLE),
        ("9" * 20 + "." + "9" * 18, WIDE),
        ("0.300000000000000004", WIDE),
        ("1e-18", WIDE),
    ],
)
def test_a_decimal_is_the_number_as_written_with_and_without_quotes(
    written: str, kind: object, quote: str, nested: bool
) -> None:
    assert told(quote + written + quote, kind, nested=nested) == Decimal(written)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", [SHORT, WHOLE])
@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1_000", "1,5", "NaN", "Infinity", "+1", ".5", "1.", "01", "٣", "0x1", "1e", "null", "true"],
)
def test_a_text_that_is_no_number_of_json_is_no_decimal(text: str, kind: object, nested: bool) -> None:
    assert told(f'"{text}"', kind, nested=nested) is None


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
