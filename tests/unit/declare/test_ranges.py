"""Which expressions can have a value that their type cannot hold, and constants that are refused for it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from recount.declare.evaluation import is_risky
from recount.declare.expression_types import type_of
from recount.declare.expressions import Expression, coalesce, col, lit, when
from recount.declare.flow import stream
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.runtime.errors import InvalidDeclaration

FIELDS = {"n": LONG, "m": decimal(15, 2), "rate": decimal(9, 4), "coin": decimal(38, 18), "d": DOUBLE}


ALWAYS_FITS = [
    *(col("m") * col("rate"), col("m") * col("n") + col("m"), col("m") - col("rate") > 0, col("n") / col("n")),
    *(col("coin") / col("m"), col("d") / 3, col("d") > col("coin"), when(col("n") > 1, col("n"), 0)),
    coalesce(col("m"), col("coin")),
]
MAY_NOT_FIT = [
    *(col("n") + 1, when(col("n") * col("n") > 1, 1, 0), col("coin") + col("coin"), col("coin") * col("rate")),
    *(col("d") * 10.0, col("d") / col("m"), coalesce(col("coin"), Decimal(10) ** 20)),
]


@pytest.mark.parametrize("tree", [*ALWAYS_FITS, *MAY_NOT_FIT], ids=str)
def test_what_may_not_fit_is_known_by_its_types(tree: Expression) -> None:
    assert is_risky(tree, FIELDS) is any(tree is one for one in MAY_NOT_FIT)


@pytest.mark.parametrize(
    ("largest", "risky"), [(LONG_MAX // 2, False), (LONG_MAX // 2 + 1, True)], ids=["fits", "one more"]
)
def test_what_is_known_of_the_values_can_exclude_it(largest: int, risky: bool) -> None:
    assert is_risky(col("n") * 2, FIELDS, {"n": largest}) is risky


@pytest.mark.parametrize(
    "tree",
    [lit(2**62) * 4, col("n") + lit(LONG_MAX) * 2, when(col("n") > 0, lit(1e308) * 10, 0.0), lit(1e300) / 1e-300],
    ids=str,
)
def test_a_constant_that_no_type_holds_is_refused(tree: Expression) -> None:
    source = stream(Topic(name="in", key="id", value=RecordSchema(fields=FIELDS)))
    with pytest.raises(InvalidDeclaration) as refused:
        Topology(name="never", sinks=[source.with_fields(x=tree).to(Topic(name="out", key="id"))])
    assert refused.value.field == "constant"


def test_a_product_of_more_than_38_places_is_refused() -> None:
    assert type_of(col("coin") * col("coin") * col("m"), FIELDS) == decimal(38, 38)
    with pytest.raises(InvalidDeclaration):
        type_of(col("coin") * col("coin") * col("rate"), FIELDS)
