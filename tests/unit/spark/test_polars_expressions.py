"""An expression compiled to Polars means what ``evaluate`` says, row by row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recount.core.errors import InvalidDeclaration
from recount.core.evaluation import evaluate
from recount.core.expression_types import type_of
from recount.core.expressions import Expression, coalesce, col, lit, when
from recount.core.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, decimal, list_of
from recount.spark.polars_expressions import compiled, field_column, polars_type

FIELDS: dict[str, FieldType] = {
    "name": STRING,
    "city": STRING,
    "count": LONG,
    "stock": LONG,
    "ratio": DOUBLE,
    "weight": DOUBLE,
    "amount": decimal(9, 2),
    "fee": decimal(5, 1),
    "vip": BOOLEAN,
    "paid": BOOLEAN,
    "tags": list_of(STRING),
    "sizes": list_of(LONG),
}
Row = dict[str, Any]

texts = st.text("abAZß€ ", max_size=3)
# Beyond these bounds LONG may overflow 64 bits, and LONG and DOUBLE are not compared digit by digit.
longs = st.integers(-50_000, 50_000)
doubles = st.one_of(st.sampled_from([0.0, -0.0, 0.1, 0.5]), st.floats(-1e6, 1e6))
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
decimal_leaves = one_of(st.sampled_from([col("amount"), col("fee")]), st.one_of(amounts, fees).map(lit))
boolean_leaves = one_of(st.sampled_from([col("vip"), col("paid")]), st.booleans().map(lit))
null = st.just(lit(None))


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
    text_leaves.map(lambda tree: col("tags").contains(tree)),
    long_leaves.map(lambda tree: col("sizes").contains(tree)),
)
conditions = one_of(
    comparisons(number_trees, one_of(number_trees, null)),
    comparisons(text_trees, one_of(text_trees, null)),
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
    """Whether ``tree`` has a type; a choice between kinds has none."""
    try:
        return type_of(tree, FIELDS) is not None
    except InvalidDeclaration:
        return False


trees = one_of(boolean_trees, number_trees, text_trees, choices(number_trees, boolean_trees)).filter(declarable)


def frame_of(given_rows: list[Row]) -> pl.DataFrame:
    schema = {name: polars_type(kind) for name, kind in FIELDS.items()}
    return pl.DataFrame(given_rows, schema=schema, orient="row").rename(field_column)


def computed(tree: Expression, given_rows: list[Row]) -> list[Any]:
    return frame_of(given_rows).with_columns(compiled(tree, FIELDS).alias("result"))["result"].to_list()


ROW: Row = dict.fromkeys(FIELDS) | {"count": 3, "ratio": 0.5, "amount": Decimal("2.25"), "fee": Decimal("1.5")}


@settings(deadline=None, max_examples=300)
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
def test_polars_computes_what_the_reference_evaluates(tree: Expression, given_rows: list[Row]) -> None:
    assert computed(tree, given_rows) == [evaluate(tree, row) for row in given_rows], str(tree)


@settings(deadline=None, max_examples=100)
@given(trees, rows)
@example(coalesce(col("fee"), col("amount")), [ROW | {"fee": None}])
@example(when(col("vip"), col("fee"), col("amount")), [ROW])
def test_polars_computes_the_type_that_is_declared(tree: Expression, given_rows: list[Row]) -> None:
    declared = type_of(tree, FIELDS)
    assert declared is not None
    column = frame_of(given_rows).with_columns(compiled(tree, FIELDS).alias("result"))["result"]
    if declared.kind == "decimal":
        assert isinstance(column.dtype, pl.Decimal)
        assert column.cast(polars_type(declared)).to_list() == column.to_list()
    else:
        assert column.dtype == polars_type(declared)
