"""A function of the topology that raises stops the batch, and the error names the operator and the record."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.spark.operators.feeding import LEFT, Event, fed, interpreted, keyed, topology

from recount.core.aggregates import fold
from recount.core.schema import LONG
from recount.core.topology import Topology
from recount.core.user_functions import FunctionFailed
from recount.core.windows import tumbling

left = keyed(LEFT)
LOG = [Event(1, "a", {"l": 2}), Event(2, "a", {"l": 0})]


def halved(row: Any) -> list[dict[str, int]]:
    return [{"n": 10 // row["l"]}]


def processed(row: Any, _state: Any) -> list[dict[str, int]]:
    return halved(row)


MAPPED = topology(left.flat_map(halved, n=LONG))
PROCESSED = topology(left.process(processed, n=LONG))
FOLDED = topology(
    left.windowed_by(tumbling("10 s", grace="0 s"))
    .aggregate(
        n=fold("l", initial=int, adder=lambda total, n: total + 10 // n, merger=lambda a, b: a + b, returns=LONG)
    )
    .emit_each_batch()
)


@pytest.mark.parametrize("flow", [MAPPED, PROCESSED, FOLDED], ids=["map", "process", "fold"])
def test_a_function_that_raises_names_the_record(flow: Topology) -> None:
    with pytest.raises(FunctionFailed) as raised:
        fed(flow, [LOG])
    assert raised.value.place.endswith("-0@1")
    assert "ZeroDivisionError" in raised.value.what


def test_the_interpreter_names_it_too() -> None:
    with pytest.raises(FunctionFailed) as raised:
        interpreted(MAPPED, LOG)
    assert raised.value.place.endswith("-0@1")
