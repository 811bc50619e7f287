"""One encoding of an output record, byte for byte that of the standard library without spaces."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recount.declare.output import TIME_HEADER, encode_value, kafka_time_ms, output_record
from recount.declare.schema import LONG, STRING

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.text(), PLAIN | st.lists(PLAIN)))
def test_a_value_is_the_json_of_the_standard_library_without_spaces(row: dict[str, Any]) -> None:
    assert json.loads(encode_value(row)) == row
    members = (
        f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for name, value in row.items()
    )
    assert encode_value(row).decode(errors="surrogatepass") == "{" + ",".join(members) + "}"


@pytest.mark.parametrize("text", ["0.10", "-5.00", "1E+3"])
def test_a_decimal_is_a_number_with_its_full_scale(text: str) -> None:
    assert encode_value({"n": Decimal(text)}) == b'{"n":%s}' % format(Decimal(text), "f").encode()


def test_a_result_at_the_epoch_says_its_time_in_a_header_for_kafkas_clients_take_0_for_now() -> None:
    """Item 1.6."""
    row = {"region": "EU", "orders": 1}
    told = {
        at_ms: output_record(
            row,
            key="region",
            fields={"region": STRING, "orders": LONG},
            timestamp_ms=at_ms,
            revision=0,
            origin="stream",
        )
        for at_ms in (0, 1)
    }
    assert (TIME_HEADER, b"0") in told[0].headers and TIME_HEADER not in dict(told[1].headers)
    assert [kafka_time_ms(at_ms) for at_ms in (0, 1, 2)] == [1, 1, 2]
