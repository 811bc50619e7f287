"""An expression compiled to Polars means what ``evaluate`` says, row by row."""

from __future__ import annotations

from decimal import Context, Decimal
from sys import float_info
from typing import Any

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recount.declare.evaluation import OutOfRange, evaluate, require_in_range
from recount.declare.expression_types import type_of
from recount.declare.expressions import Expression, coalesce, col, lit, when
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, LONG_MAX, LONG_MIN, STRING, FieldType, decimal, list_of
from recount.engine.stage.polars_expressions import compiled, field_column, out_of_range, polars_type
from recount.runtime.errors import InvalidDeclaration

MAX_DOUBLE = float_info.max

FIELDS: dict[str, FieldType] = {
    "name": STRING,
    "city": STRING,
    "count": LONG,
    "stock": LONG,
    "ratio": DOUBLE,
    "weight": DOUBLE,
    "amount": decimal(9, 2),
    "fee": decimal(5, 1),
    "huge": decimal(38, 0),
    "coin": decimal(38, 18),
    "dust": decimal(38, 30),
    "vip": BOOLEAN,
    "paid": BOOLEAN,
    "tags": list_of(STRING),
    "sizes": list_of(LONG),
}
Row = dict[str, Any]

texts = st.text("abAZß€ ", max_size=3)
longs = st.one_of(
    st.integers(-50_000, 50_000),
    st.sampled_from([2**31, 2**32 + 1, 2**53 + 1, LONG_MAX // 2, LONG_MAX // 2 + 1, LONG_MAX, LONG_MIN, LONG_MIN + 1]),
    st.integers(LONG_MIN, LONG_MAX),
)
"""Small ones, those at the ends of 64 bits and around the roots of these, and any."""
doubles = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 0.5]),
    st.floats(-1e6, 1e6),
    st.sampled_from([MAX_DOUBLE, -MAX_DOUBLE, 9e307, 1e154, 5e-324, -5e-324, 2.2e-308, 1e-160, 2.0**53, 2.0**63]),
    st.floats(allow_nan=False, allow_infinity=False),
)


def decimals_of(kind: FieldType) -> st.SearchStrategy[Decimal]:
    """Decimals of few digits, and of up to as many as ``kind`` can hold, which none of its operators may lose."""
    most = 10**kind.precision - 1
    unscaled = st.one_of(
        st.integers(-100, 100),
        st.sampled_from([most, -most, most // 2, most // 2 + 1, 10 ** (kind.precision // 2)]),
        st.integers(0, kind.precision - 1).map(lambda zeros: 10**zeros),
        st.integers(0, kind.scale).map(lambda zeros: 10**zeros),
        st.integers(-most, most),
    )
    return unscaled.map(lambda number: Decimal(number).scaleb(-kind.scale, Context(prec=kind.precision)))


amounts = st.decimals(-1_000, 1_000, places=2)
fees = st.decimals(-100, 100, places=1)
VALUES = {
    "name": texts,
    "city": texts,
    "count": longs,
    "stock": longs,
    "ratio": doubles,
    "weight": doubles,
    "amount": amounts,
    "fee": fees,
    **{name: decimals_of(FIELDS[name]) for name in ("huge", "coin", "dust")},
    "vip": st.booleans(),
    "paid": st.booleans(),
    "tags": st.lists(texts, max_size=3),
    "sizes": st.lists(longs, max_size=3),
}
rows = st.lists(st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}), max_size=5)

Tree = st.SearchStrategy[Expression]


def one_of(*trees: Tree) -> Tree:
    """``st.one_of`` with a short representation: the shrinker asks for it, and that of all trees has 350 MB."""
    any_of = st.one_of(*trees)

    @st.composite
    def tree(draw: st.DrawFn) -> Expression:
        return draw(any_of)

    return tree()


text_leaves = one_of(st.sampled_from([col("name"), col("city")]), texts.map(lit))
long_leaves = one_of(st.sampled_from([col("count"), col("stock")]), longs.map(lit))
double_leaves = one_of(st.sampled_from([col("ratio"), col("weight")]), doubles.map(lit))
decimal_leaves = one_of(
    st.sampled_from([col(name) for name in ("amount", "fee", "huge", "coin", "dust")]),
    st.one_of(amounts, fees, VALUES["huge"], VALUES["coin"], VALUES["dust"]).map(lit),
)
boolean_leaves = one_of(st.sampled_from([col("vip"), col("paid")]), st.booleans().map(lit))
null = st.just(lit(None))
always_null = st.just(coalesce(lit(None)))
"""The constant itself is refused in a comparison."""


def arithmetic(left: Tree, right: Tree) -> Tree:
    return one_of(
        st.tuples(left, right).map(lambda pair: pair[0] + pair[1]),
        st.tuples(left, right).map(lambda pair: pair[0] - pair[1]),
        st.tuples(left, right).map(lambda pair: pair[0] * pair[1]),
    )


def choices(of: Tree, condition: Tree) -> Tree:
    """What keeps the type of ``of``."""
    return one_of(
        st.tuples(of, of).map(lambda pair: coalesce(*pair)),
        st.tuples(condition, of, of).map(lambda drawn: when(*drawn)),
        st.tuples(condition, of, null).map(lambda drawn: when(*drawn)),
    )


def comparisons(left: Tree, right: Tree) -> Tree:
    return one_of(
        st.tuples(left, right).map(lambda pair: pair[0] == pair[1]),
        st.tuples(left, right).map(lambda pair: pair[0] != pair[1]),
        st.tuples(left, right).map(lambda pair: pair[0] < pair[1]),
        st.tuples(left, right).map(lambda pair: pair[0] <= pair[1]),
        st.tuples(left, right).map(lambda pair: pair[0] > pair[1]),
        st.tuples(left, right).map(lambda pair: pair[0] >= pair[1]),
    )


simple_conditions = one_of(boolean_leaves, comparisons(long_leaves, long_leaves))
text_trees = one_of(
    text_leaves,
    choices(text_leaves, simple_conditions),
    text_leaves.map(lambda tree: tree.upper()),
    text_leaves.map(lambda tree: tree.lower()),
)
long_trees = one_of(long_leaves, choices(long_leaves, simple_conditions), arithmetic(long_leaves, long_leaves))
decimal_trees = one_of(
    decimal_leaves,
    choices(decimal_leaves, simple_conditions),
    arithmetic(decimal_leaves, one_of(decimal_leaves, long_leaves)),
    arithmetic(long_leaves, decimal_leaves),
)
exact_trees = one_of(long_trees, decimal_trees)
quotients = st.tuples(exact_trees, exact_trees).map(lambda pair: pair[0] / pair[1])
double_trees = one_of(
    double_leaves,
    quotients,
    choices(double_leaves, simple_conditions),
    arithmetic(double_leaves, one_of(double_leaves, long_leaves, decimal_leaves)),
    arithmetic(one_of(long_leaves, decimal_leaves), double_leaves),
)
number_trees = one_of(long_trees, decimal_trees, double_trees)
memberships = one_of(
    text_leaves.map(lambda tree: col("tags").contains(tree)), long_leaves.map(lambda tree: col("sizes").contains(tree))
)
conditions = one_of(
    comparisons(number_trees, one_of(number_trees, always_null)),
    comparisons(text_trees, one_of(text_trees, always_null)),
    comparisons(boolean_leaves, boolean_leaves),
    one_of(text_trees, number_trees, null, st.just(col("tags"))).map(lambda tree: tree.is_null()),
    memberships,
    boolean_leaves,
)
boolean_trees = st.recursive(
    conditions,
    lambda inner: one_of(
        st.tuples(inner, one_of(inner, null)).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, one_of(inner, null)).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda tree: ~tree),
        choices(inner, inner),
    ),
    max_leaves=4,
)


def declarable(tree: Expression) -> bool:
    """Whether ``tree`` has a type; a choice between kinds has none, nor has a product of more than 38 places."""
    try:
        require_in_range([tree])
        return type_of(tree, FIELDS) is not None
    except InvalidDeclaration:
        return False


trees = one_of(boolean_trees, number_trees, text_trees, choices(number_trees, boolean_trees)).filter(declarable)


def frame_of(given_rows: list[Row]) -> pl.DataFrame:
    schema = {name: polars_type(kind) for name, kind in FIELDS.items()}
    return pl.DataFrame(given_rows, schema=schema, orient="row").rename(field_column)


OUT_OF_RANGE = "out of range"
"""Stands for a value that its type cannot hold."""


def evaluated(tree: Expression, row: Row) -> Any:
    """What the reference evaluates."""
    try:
        return evaluate(tree, row, FIELDS)
    except OutOfRange as error:
        return f"{OUT_OF_RANGE}: {error.kind}"


ROW: Row = dict.fromkeys(FIELDS) | {"count": 3, "ratio": 0.5, "amount": Decimal("2.25"), "fee": Decimal("1.5")}


@settings(deadline=None, max_examples=250)
@given(trees, rows)
@example(col("amount") * col("fee"), [ROW])
@example(col("amount") / 0, [ROW])
@example(col("count") / 5, [ROW, ROW])
@example(col("vip") & lit(None), [ROW])
@example(lit(0) == coalesce(col("count"), lit(0)), [ROW | {"count": None}] * 2)
@example(when(lit("a").is_null(), lit(0) == col("count"), lit(True)), [ROW, ROW])
@example(when(lit(True), lit(0), col("count")) == coalesce(col("count"), lit(0)), [ROW | {"count": None}] * 2)
@example(lit(0) == coalesce(lit(0), col("count")), [ROW | {"count": None}] * 2)
@example(coalesce(col("fee"), col("amount")), [ROW | {"fee": None}])
@example(col("coin") * col("coin"), [ROW | {"coin": Decimal(1)}])
@example(col("coin") * Decimal("0.01"), [ROW | {"coin": Decimal(100)}])
@example(col("huge") - col("coin"), [ROW | {"huge": Decimal(10**20), "coin": Decimal("0.5")}])
@example(col("huge") > col("dust"), [ROW | {"huge": Decimal(10**37), "dust": Decimal("0.5")}])
@example(col("count") < col("ratio"), [ROW | {"count": 2**53 + 1, "ratio": 2.0**53}])
@example(col("count") * 2, [ROW | {"count": LONG_MAX}])
@example(when(col("vip"), col("ratio") * 2.0, 0.5) > 1.0, [ROW | {"vip": True, "ratio": MAX_DOUBLE}])
@example(when(col("vip"), col("fee"), col("amount")), [ROW])
def test_polars_computes_the_values_the_range_and_the_type_that_the_reference_says(
    tree: Expression, given_rows: list[Row]
) -> None:
    beyond = out_of_range(tree, FIELDS)
    columns = [compiled(tree, FIELDS).alias("result"), (pl.lit(False) if beyond is None else beyond).alias("beyond")]
    found = frame_of(given_rows).with_columns(columns)
    expected = [evaluated(tree, row) for row in given_rows]
    assert found["beyond"].to_list() == [str(value).startswith(OUT_OF_RANGE) for value in expected], str(tree)
    within = found.filter(~pl.col("beyond"))["result"]
    assert within.to_list() == [value for value in expected if not str(value).startswith(OUT_OF_RANGE)], str(tree)
    declared = type_of(tree, FIELDS)
    assert declared is not None
    if declared.kind == "decimal":
        assert isinstance(within.dtype, pl.Decimal)
        assert within.cast(polars_type(declared)).to_list() == within.to_list()
    else:
        assert within.dtype == polars_type(declared)
