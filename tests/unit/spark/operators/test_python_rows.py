"""What a Python function may return: the engine and the interpreter, which the unit-test driver runs, take the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from recount.core.errors import Terminal
from recount.core.returned_values import require_returned
from recount.core.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, decimal, list_of
from recount.spark.operators.python_rows import frame_of

SCALARS = [STRING, LONG, DOUBLE, BOOLEAN, decimal(9, 2), decimal(38, 0), decimal(38, 38)]
kinds = st.sampled_from([*SCALARS, *map(list_of, SCALARS)])
numbers = st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63), 10**38]) | st.floats() | st.decimals()
scalars = st.none() | st.booleans() | numbers | st.decimals(-(10**8), 10**8, places=2) | st.text() | st.binary()
values = scalars | st.lists(scalars, max_size=2)


def refusal(takes: Any, *arguments: Any) -> Terminal | None:
    try:
        takes(*arguments)
    except Terminal as error:
        return error
    return None


@settings(max_examples=500)
@given(values, kinds)
def test_the_driver_refuses_what_the_engine_refuses(value: Any, kind: FieldType) -> None:
    engine = refusal(frame_of, [{"n": value}], {"n": kind}, "a map")
    driver = refusal(require_returned, {"n": value}, {"n": kind}, "a map")
    assert (engine is None) == (driver is None), (engine, driver)
