"""Expressions as columns of DuckDB: the meaning that docs/semantics.md gives them, null for null.

Decimals are exact. What no 64 bits, or no 38 digits, can hold is null: ``range_rules`` says so of the record.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, Context, Decimal, localcontext
from typing import Any

from pyspark.sql import types as T

from recount.declare import expressions as expr
from recount.declare.expression_types import type_of
from recount.declare.schema import FieldType
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, literal, named
from recount.recompute.rules.result_rules import plain_size, size_of_object
from recount.recompute.spark_columns import spark_type

_COMPUTED: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MOST_DIGITS, _DIGITS_OF_LONG = 38, 19
_EXACT = Context(prec=100, rounding=ROUND_DOWN)
_Kind = FieldType | None


def column(tree: expr.Expression, fields: Mapping[str, FieldType]) -> Column:
    """``tree`` over rows with the columns ``fields``."""
    match tree:
        case expr.Column(name):
            return named(name)
        case expr.Literal(value):
            kind = type_of(tree, {})
            made = literal(value)
            return made if kind is None else made.cast(spark_type(kind))
        case expr.Call(expr.JSON_SIZE | expr.PLAIN_SIZE, arguments):
            return _size(tree.operator == expr.PLAIN_SIZE, arguments, fields)
        case expr.Call(name, arguments):
            kinds, kind = [type_of(argument, fields) for argument in arguments], type_of(tree, fields)
            if None in kinds and name not in {"and", "or", "is_null", "coalesce", "when"}:
                return literal(None) if kind is None else literal(None).cast(spark_type(kind))
            return _call(name, [column(argument, fields) for argument in arguments], kinds, kind)
    raise AssertionError(tree)


def _size(is_plain: bool, arguments: tuple[expr.Expression, ...], fields: Mapping[str, FieldType]) -> Column:
    names = [one.name for one in arguments if isinstance(one, expr.Column)]
    kinds = {name: fields[name] for name in names[1:]}

    def size(*cells: Any) -> int:
        key, *value = cells
        of_key = 0 if key is None else len(str(key).encode())
        return of_key + (plain_size(*value, *kinds.values()) if is_plain else size_of_object(value, kinds))

    return F.by_python(size, T.LongType())(*map(named, names))


def _call(name: str, values: list[Column], kinds: list[_Kind], kind: _Kind) -> Column:
    if name in _COMPUTED:
        assert kind is not None, "both sides have a type"
        return _computed(name, values, kinds, kind)
    if name in _COMPARED:
        return _compared(name, values, kinds)
    match name:
        case "/":
            dividend, divisor = (_as_double(value, one) for value, one in zip(values, kinds, strict=True))
            return F.when(divisor != 0.0, dividend / divisor)
        case "and":
            return values[0] & values[1]
        case "or":
            return values[0] | values[1]
        case "not":
            return ~values[0]
        case "is_null":
            return values[0].is_null()
        case "upper" | "lower":
            # one letter of a text can become two: DuckDB keeps their number
            return F.by_python(_changed(name), T.StringType())(values[0])
        case "contains":
            return F.contains(*values)
        case "coalesce":
            return F.coalesce(*_options(values, kinds, kind))
        case "when":
            then, otherwise = _options(values[1:], kinds[1:], kind)
            return F.when(values[0], then).otherwise(otherwise)
    raise AssertionError(name)


def _options(values: list[Column], kinds: list[_Kind], kind: _Kind) -> list[Column]:
    """``values`` in the type ``kind`` of what is chosen from them; a decimal that has no room there is null."""
    if kind is None:
        return values
    as_kind = _as_double if kind.kind == "double" else lambda value, _: value
    return [as_kind(value, one).try_cast(spark_type(kind)) for value, one in zip(values, kinds, strict=True)]


def _changed(name: str) -> Callable[[str | None], str | None]:
    change = str.upper if name == "upper" else str.lower
    return lambda text: None if text is None else change(text)


def _computed(name: str, values: list[Column], kinds: list[_Kind], kind: FieldType) -> Column:
    compute = _COMPUTED[name]
    if kind.kind == "double":
        made: Column = compute(*(_as_double(value, one) for value, one in zip(values, kinds, strict=True)))
        return made
    if kind.kind == "decimal" and not _has_room(name, kinds):
        return F.by_python(_exactly(compute, kind), spark_type(kind))(*values)
    made = F.attempted(compute(*values))
    return made.try_cast(spark_type(kind))


def _compared(name: str, values: list[Column], kinds: list[_Kind]) -> Column:
    compare, which = _COMPARED[name], {one.kind for one in kinds if one is not None}
    if "double" in which:
        values = [_as_double(value, one) for value, one in zip(values, kinds, strict=True)]
    elif "decimal" in which and not _has_room("-", kinds):
        return F.by_python(_if_there(compare), T.BooleanType())(*values)
    made: Column = compare(*values)
    return made


def _as_double(value: Column, kind: _Kind) -> Column:
    return F.exact_double(value) if kind is not None and kind.kind == "decimal" else value.cast("double")


def _has_room(name: str, kinds: list[_Kind]) -> bool:
    """Whether DuckDB computes two decimals, or compares them, within 38 digits whatever their values are."""
    digits = [
        (_DIGITS_OF_LONG, 0) if one is None or one.kind == "long" else (one.precision, one.scale) for one in kinds
    ]
    if name == "*":
        return sum(precision for precision, _ in digits) <= _MOST_DIGITS
    before = max(precision - scale for precision, scale in digits)
    return before + max(scale for _, scale in digits) + 1 <= _MOST_DIGITS


def _exactly(compute: Callable[[Any, Any], Any], kind: FieldType) -> Callable[[Any, Any], Decimal | None]:
    """``compute`` over decimals; null for what ``kind`` cannot hold."""

    def computed(left: Any, right: Any) -> Decimal | None:
        if left is None or right is None:
            return None
        with localcontext(_EXACT):
            made: Decimal = compute(Decimal(left), Decimal(right))
            if abs(made) >= Decimal(1).scaleb(kind.precision - kind.scale):
                return None
            return made.quantize(Decimal(1).scaleb(-kind.scale))

    return computed


def _if_there(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool | None]:
    return lambda left, right: None if left is None or right is None else bool(compare(left, right))
