"""What an expression means for one record: what its Polars and Spark compilations are tested against."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, localcontext
from typing import Any

from recount.core.expressions import Call, Column, Expression, Literal
from recount.core.schema import LONG_MAX, LONG_MIN

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


def evaluate(tree: Expression, record: Mapping[str, Any]) -> Any:
    """The value of ``tree`` for ``record``: the reference meaning."""
    match tree:
        case Column(name):
            return record[name]
        case Literal(value):
            return value
        case Call("when", (condition, then, otherwise)):
            return evaluate(then if evaluate(condition, record) is True else otherwise, record)
        case Call("coalesce", options):
            return next((value for option in options if (value := evaluate(option, record)) is not None), None)
        case Call(name, arguments):
            return _apply(name, [evaluate(argument, record) for argument in arguments])
    raise AssertionError(tree)


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
        made = _ARITHMETIC[name](left, right)
    return made if not isinstance(made, int) or LONG_MIN <= made <= LONG_MAX else None


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """Python refuses to mix Decimal and float: with a DOUBLE on one side, both are DOUBLE."""
    if isinstance(left, float) and isinstance(right, Decimal):
        return left, float(right)
    if isinstance(left, Decimal) and isinstance(right, float):
        return float(left), right
    return left, right
