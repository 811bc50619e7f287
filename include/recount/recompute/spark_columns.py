"""Expressions as Spark columns: the same meaning as ``recount.declare.evaluation.evaluate``, null for null.

Spark's ANSI mode may be on or off: nothing here relies on an error or on a silent null. Decimals need a session that is
``exact_in``: by default Spark rounds what has many digits both before and behind the point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.declare import expressions as expr
from recount.declare.expression_types import type_of
from recount.declare.schema import FieldType
from recount.recompute.rules.result_rules import plain_size, size_of_object

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


def exact_in(session: SparkSession) -> None:
    """Let ``session`` compute decimals exactly, and give null where no 38 digits are enough."""
    session.conf.set("spark.sql.decimalOperations.allowPrecisionLoss", "false")


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
        case expr.Call(expr.JSON_SIZE | expr.PLAIN_SIZE, arguments):
            return _size(tree.operator == expr.PLAIN_SIZE, arguments, fields, prefix)
        case expr.Call(name, arguments):
            if _is_null(arguments, fields) and name not in {"and", "or", "is_null", "coalesce", "when"}:
                return _null_of(tree, fields)
            if name in {"coalesce", "when"}:
                return _chosen(tree, fields, prefix)
            return _call(name, [column(argument, fields, prefix) for argument in arguments])
    raise AssertionError(tree)


def _literal(tree: expr.Literal, value: expr.Scalar | None) -> Column:
    kind = type_of(tree, {})
    if kind is None or kind.kind == "decimal":
        return F.lit(value)
    return F.lit(value).cast(spark_type(kind))


def _size(
    is_plain: bool, arguments: tuple[expr.Expression, ...], fields: Mapping[str, FieldType], prefix: str
) -> Column:
    names = [one.name for one in arguments if isinstance(one, expr.Column)]
    kinds = {name: fields[name] for name in names[1:]}

    def size(*cells: Any) -> int:
        key, *value = cells
        of_key = 0 if key is None else len(str(key).encode())
        return of_key + (plain_size(*value, *kinds.values()) if is_plain else size_of_object(value, kinds))

    return F.udf(size, "long")(*(named(prefix + name) for name in names))


def _is_null(arguments: tuple[expr.Expression, ...], fields: Mapping[str, FieldType]) -> bool:
    """Whether one of ``arguments`` is the null constant, which has no type for Spark to choose an operator by."""
    return any(type_of(argument, fields) is None for argument in arguments)


def _null_of(tree: expr.Expression, fields: Mapping[str, FieldType]) -> Column:
    kind = type_of(tree, fields)
    return F.lit(None).cast(spark_type(kind)) if kind else F.lit(None)


def _chosen(tree: expr.Call, fields: Mapping[str, FieldType], prefix: str) -> Column:
    """A decimal that has no room among those that it is chosen from is null."""
    kind = type_of(tree, fields)
    values = [column(argument, fields, prefix) for argument in tree.arguments]
    options = values[1:] if tree.operator == "when" else values
    if kind is not None and kind.kind == "decimal":
        options = [option.try_cast(spark_type(kind)) for option in options]
    if tree.operator == "coalesce":
        return F.coalesce(*options)
    then, otherwise = options
    return F.when(values[0], then).otherwise(otherwise)


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
    raise AssertionError(name)
