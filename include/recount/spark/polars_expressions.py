"""Expressions compiled to Polars, with the meaning of ``recount.core.evaluation.evaluate``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any

import polars as pl

from recount.core.evaluation import evaluate
from recount.core.expression_types import columns_of, type_of
from recount.core.expressions import ARITHMETIC, Call, Column, Expression, Literal
from recount.core.schema import FieldType

_INFIX: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SCALARS: dict[str, pl.DataType] = {
    "string": pl.String(),
    "long": pl.Int64(),
    "double": pl.Float64(),
    "boolean": pl.Boolean(),
}


def polars_type(field_type: FieldType) -> pl.DataType:
    """The Polars type that carries ``field_type``."""
    if field_type.kind == "decimal":
        return pl.Decimal(field_type.precision, field_type.scale)
    if field_type.element is not None:
        return pl.List(polars_type(field_type.element))
    return _SCALARS[field_type.kind]


def field_column(name: str) -> str:
    """The column that carries the record's field ``name``: no field can be taken for a column of the engine's own."""
    return f"field {name}"


def compiled(tree: Expression, fields: Mapping[str, FieldType]) -> pl.Expr:
    """``tree`` as a Polars expression over the columns of the record's ``fields``."""
    taken = _taken(tree)
    if taken is not tree:
        declared = type_of(tree, fields)
        return compiled(taken, fields).cast(polars_type(declared)) if declared else compiled(taken, fields)
    match tree:
        case Column(name):
            return pl.col(field_column(name))
        case Literal(value):
            return _literal(value)
        case Call("coalesce", options):
            return pl.coalesce([compiled(option, fields) for option in options])
        case Call("when", (condition, then, otherwise)):
            chosen = pl.when(compiled(condition, fields)).then(compiled(then, fields))
            return chosen.otherwise(compiled(otherwise, fields))
        case Call(name, (left, right)) if name in _MIRRORED and _is_constant(left) and not _is_constant(right):
            # of pl.lit(0) == pl.coalesce(column, 0) Polars makes one row
            return compiled(Call(_MIRRORED[name], (right, left)), fields)
        case Call(name, arguments):
            values = [compiled(argument, fields) for argument in arguments]
            result = type_of(tree, fields)
            if name in {"and", "or", "not"}:
                values = [value.cast(pl.Boolean) for value in values]  # the null constant has no type of its own
            if name == "*" and result is not None and result.kind == "decimal":
                # Polars rounds a product to the larger scale of its factors; the exact one has the scale of both
                values = [value.cast(polars_type(result)) for value in values]
            if name in ARITHMETIC and result is not None and result.kind == "long":
                # a result beyond 64 bits is null; Polars would let it wrap
                return _apply(name, [value.cast(pl.Int128) for value in values]).cast(pl.Int64, strict=False)
            return _apply(name, values)
    raise AssertionError(tree)


def _is_constant(tree: Expression) -> bool:
    return not columns_of(_taken(tree))


def _taken(tree: Expression) -> Expression:
    """What ``tree`` chooses for every record, by a constant; else ``tree``.

    Polars would choose too, and makes one row instead of a column where the other branch is ``pl.lit(0) == column``.
    """
    match tree:
        case Call("when", (condition, then, otherwise)) if not columns_of(condition):
            return _taken(then if evaluate(condition, {}) is True else otherwise)
        case Call("coalesce", (first, *_)) if not columns_of(first) and evaluate(first, {}) is not None:
            return first
    return tree


def _literal(value: Any) -> pl.Expr:
    if isinstance(value, Decimal):
        return pl.lit(value, pl.Decimal(38, max(0, -int(value.as_tuple().exponent))))
    if type(value) is int:
        return pl.lit(value, pl.Int64())
    return pl.lit(value)


def _apply(name: str, values: list[pl.Expr]) -> pl.Expr:
    match name:
        case "is_null":
            return values[0].is_null()
        case "not":
            return ~values[0]
        case "upper":
            return values[0].str.to_uppercase()
        case "lower":
            return values[0].str.to_lowercase()
        case "contains":
            return pl.when(values[1].is_not_null()).then(values[0].list.contains(values[1]))
        case "/":
            dividend, divisor = (value.cast(pl.Float64) for value in values)
            # Polars multiplies by the reciprocal where all divisors are one constant (3 / 5 would be
            # 0.6000000000000001): a column of zeros makes it a column
            return pl.when(divisor != 0).then(dividend / (divisor + pl.int_range(pl.len()) * 0))
        case _:
            return reduce(_INFIX[name], values)
