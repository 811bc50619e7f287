"""What an expression means for one record: what its Polars and Spark compilations are tested against."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, localcontext
from math import isfinite
from typing import Any

from recount.core.expression_types import type_of
from recount.core.expressions import ARITHMETIC, JSON_SIZE, PLAIN_SIZE, Call, Column, Expression, Literal
from recount.core.schema import DOUBLE, LONG, FieldType
from recount.core.size_limits import encoded_size
from recount.core.sums import fits

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_EXACT = Context(prec=100)
_MOST_SHOWN = 200


class OutOfRange(ValueError):
    """An expression has a value that its type, of the ``kind``, cannot hold."""

    def __init__(self, tree: Expression, value: object, kind: FieldType, operands: list[Any]) -> None:
        self.kind = kind.kind
        shown = str(tree)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]} …"
        super().__init__(f"{shown} of {', '.join(map(str, operands))} is {value}, which no {kind} can hold")


def evaluate(tree: Expression, record: Mapping[str, Any], fields: Mapping[str, FieldType] | None = None) -> Any:
    """The value of ``tree`` for ``record``: the reference meaning.

    Raises ``OutOfRange`` where a part of it that is evaluated has a value that its type cannot hold: a LONG of more
    than 64 bits, a DOUBLE that is infinite or no number, and where the types of the ``fields`` are given, a decimal
    of more than 38 digits.
    """
    match tree:
        case Column(name):
            return record[name]
        case Literal(value):
            return value
        case Call("when", (condition, then, otherwise)):
            chosen = then if evaluate(condition, record, fields) is True else otherwise
            value = evaluate(chosen, record, fields)
            return _held(tree, value, [value], fields)
        case Call("coalesce", options):
            values = (value for option in options if (value := evaluate(option, record, fields)) is not None)
            value = next(values, None)
            return _held(tree, value, [value], fields)
        case Call() if tree.operator in (JSON_SIZE, PLAIN_SIZE):
            assert fields is not None, "sizes are measured by types"
            return encoded_size(tree, record, fields)
        case Call(name, arguments):
            operands = [evaluate(argument, record, fields) for argument in arguments]
            made = _apply(name, operands)
            return _held(tree, made, operands, fields) if name == "/" or name in ARITHMETIC else made
    raise AssertionError(tree)


def _held(tree: Expression, value: Any, operands: list[Any], fields: Mapping[str, FieldType] | None) -> Any:
    """``value`` of ``tree``, a decimal with all places of its type; raises ``OutOfRange`` where that cannot hold it."""
    match value:
        case float() if not isfinite(value):
            raise OutOfRange(tree, value, DOUBLE, operands)
        case int() if not fits(value, LONG):
            raise OutOfRange(tree, value, LONG, operands)
        case Decimal() if fields is not None:
            kind = type_of(tree, fields)
            assert kind is not None, "only the null constant has no type"
            if not fits(value, kind):
                raise OutOfRange(tree, value, kind, operands)
            return value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    return value


def _apply(name: str, values: list[Any]) -> Any:
    if name == "is_null":
        return values[0] is None
    if name in {"and", "or"}:
        deciding = name == "or"
        return deciding if deciding in values else None if None in values else not deciding
    if None in values:
        return None
    if name == "not":
        return not values[0]
    if name in {"upper", "lower"}:
        return getattr(values[0], name)()
    if name == "contains":
        return values[1] in values[0]
    if name == "/":
        divisor = float(values[1])
        return None if divisor == 0 else float(values[0]) / divisor
    left, right = _comparable(*values)
    if name in _COMPARISONS:
        return _COMPARISONS[name](left, right)
    with localcontext(_EXACT):
        return _ARITHMETIC[name](left, right)


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """With a DOUBLE on one side, both are DOUBLE: Python would compare it with a LONG exactly."""
    if isinstance(left, float) and isinstance(right, Decimal | int):
        return left, float(right)
    if isinstance(left, Decimal | int) and isinstance(right, float):
        return float(left), right
    return left, right
