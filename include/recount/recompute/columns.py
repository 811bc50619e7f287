"""Expressions as Spark columns: the same meaning as ``recount.core.evaluation.evaluate``, null for null.

Spark's ANSI mode may be on or off: nothing here relies on an error or on a silent null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.core import expressions as expr
from recount.core.expression_types import type_of
from recount.core.schema import FieldType

_BINARY: Mapping[str, Callable[[Any, Any], Column]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "+": F.try_add,
    "-": F.try_subtract,
    "*": F.try_multiply,
    "and": lambda left, right: left & right,
    "or": lambda left, right: left | right,
}
_SCALARS: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "long": T.LongType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
}


def spark_type(field_type: FieldType) -> T.DataType:
    """The Spark type that holds every value of ``field_type``."""
    if field_type.element is not None:
        # there are no nulls in it, but files do not say so, and Spark casts no array that may have some
        return T.ArrayType(spark_type(field_type.element), containsNull=True)
    if field_type.kind == "decimal":
        return T.DecimalType(field_type.precision, field_type.scale)
    return _SCALARS[field_type.kind]


def named(name: str) -> Column:
    """The column ``name``, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def column(tree: expr.Expression, fields: Mapping[str, FieldType], prefix: str = "") -> Column:
    """``tree`` over rows with the columns ``fields``, before whose names ``prefix`` goes."""
    match tree:
        case expr.Column(name):
            return named(prefix + name)
        case expr.Literal(value):
            return _literal(tree, value)
        case expr.Call(name, arguments):
            if _is_null(arguments, fields) and name not in {"and", "or", "is_null", "coalesce", "when"}:
                return _null_of(tree, fields)
            return _call(name, [column(argument, fields, prefix) for argument in arguments])
    raise AssertionError(tree)


def _literal(tree: expr.Literal, value: expr.Scalar | None) -> Column:
    kind = type_of(tree, {})
    if kind is None or kind.kind == "decimal":
        return F.lit(value)
    return F.lit(value).cast(spark_type(kind))


def _is_null(arguments: tuple[expr.Expression, ...], fields: Mapping[str, FieldType]) -> bool:
    """Whether one of ``arguments`` is the null constant, which has no type for Spark to choose an operator by."""
    return any(type_of(argument, fields) is None for argument in arguments)


def _null_of(tree: expr.Expression, fields: Mapping[str, FieldType]) -> Column:
    kind = type_of(tree, fields)
    return F.lit(None).cast(spark_type(kind)) if kind else F.lit(None)


def _call(name: str, values: list[Column]) -> Column:
    if name in _BINARY:
        return _BINARY[name](*values)
    match name:
        case "/":
            dividend, divisor = (value.cast("double") for value in values)
            return F.when(divisor != 0.0, F.try_divide(dividend, divisor))
        case "not":
            return ~values[0]
        case "is_null":
            return values[0].isNull()
        case "upper":
            return F.upper(values[0])
        case "lower":
            return F.lower(values[0])
        case "contains":
            return F.array_contains(*values)
        case "coalesce":
            return F.coalesce(*values)
        case "when":
            condition, then, otherwise = values
            return F.when(condition, then).otherwise(otherwise)
    raise AssertionError(name)
