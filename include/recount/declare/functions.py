"""Calls of a user's Python functions: the errors they raise, and the declared type of what they return.

Nothing is rounded or cut.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from copy import deepcopy
from decimal import Context, Decimal
from numbers import Integral, Rational, Real
from typing import Any

from recount.declare.aggregates import fits
from recount.declare.evaluation import OutOfRange
from recount.declare.output import TooLarge
from recount.declare.schema import LONG_MAX, LONG_MIN, FieldType, is_unicode
from recount.runtime.errors import OfARecord, RecountError, Terminal

FUNCTION_RAISED = "function-raised"
"""How the reason of a record begins that was set aside because a function raised."""
OUT_OF_RANGE = "out-of-range"
"""How it begins where an expression has a value that its type cannot hold."""
_MOST_SHOWN = 200
_UNCHANGING = frozenset({str, int, float, bool, type(None), Decimal})
_LARGEST_EXACT = 2**53
"""A double holds each whole number up to here."""
_EXACT = Context(prec=100)


def own_value(value: Any) -> Any:
    """The value, or a copy of what a function can change: its list."""
    if type(value) in _UNCHANGING or not (isinstance(value, list | set | deque) or hasattr(value, "__array__")):
        return value
    return deepcopy(value)


def own_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The ``row`` that a function returned, which may go on changing what is in it."""
    return {name: own_value(value) for name, value in row.items()}


def handed(row: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The ``fields`` of ``row`` for a function, which may change them: nobody else sees it."""
    return {name: own_value(row[name]) for name in fields}


class FunctionFailed(OfARecord):
    """A function of the topology raised; ``place`` is the record or the result that it was called for."""

    def __init__(self, what: object, place: str, error: Exception) -> None:
        self.place = self.record = place
        super().__init__(
            f"a function of the topology raised {type(error).__name__}: {message_of(error)}",
            given=f"{what}, at {place}",
            expected="a function that returns for every row",
            remedy="catch it in the function, and return no row, or one that says so; or filter such rows before it",
        )


class ValueOutOfRange(OfARecord):
    """An expression has a value that its type cannot hold, at a ``place`` where no record can be set aside."""

    def __init__(self, what: object, place: str, error: OutOfRange) -> None:
        self.place = self.record = place
        super().__init__(
            f"a value is out of range: {message_of(error)}",
            given=f"{what}, at {place}",
            expected="a value that its type can hold: the row was not read from the log just now, so none is set aside",
            remedy="filter such rows before it, or guard the expression: when(condition, expression, None)",
        )


def failed(what: object, place: str, error: Exception) -> RecountError:
    """Return what to raise for the ``error`` of a function of ``what`` at ``place``; our own errors stay themselves."""
    if isinstance(error, OutOfRange):
        return ValueOutOfRange(what, place, error)
    return error if isinstance(error, RecountError) else FunctionFailed(what, place, error)


def is_of_the_record(error: Exception) -> bool:
    """Whether a record is at fault: not for our own errors, which say what else is wrong, nor for want of memory."""
    return not isinstance(error, RecountError | MemoryError)


def reason_of(what: object, error: Exception) -> str:
    """The reason of the dead letter: the operator ``what`` and the type of the error, which every run has alike."""
    if isinstance(error, TooLarge):
        return error.reason
    operator = str(getattr(what, "in_reasons", what))[:_MOST_SHOWN]
    if isinstance(error, OutOfRange):
        return f"{OUT_OF_RANGE}: {error.kind} in {operator}"
    return f"{FUNCTION_RAISED}: {type(error).__name__} in {operator}"


def message_of(error: Exception) -> str:
    """Return the message of the error, for people: it may hold an address or a time, so that nothing compares it."""
    try:
        said = str(error)
    except Exception:
        return "its message cannot be shown"
    return said[:_MOST_SHOWN].encode(errors="replace").decode()


def require_returned(row: Mapping[str, Any], fields: Mapping[str, FieldType], maker: object) -> None:
    """Raise ``Terminal`` where a value of ``row``, which ``maker`` returned, has not its type; what lacks is null."""
    for name, kind in fields.items():
        if not _holds(kind, row.get(name)):
            raise of_another_type(f"{name}: {row[name]!r}", kind, name, maker)


def as_declared(row: Mapping[str, Any], fields: Mapping[str, FieldType], maker: object) -> dict[str, Any]:
    """The ``fields`` of ``row``, which ``maker`` returned, each as a value of its type; raises ``Terminal`` for others.

    1 of a DOUBLE is 1.0, ``Decimal("1.5")`` of a ``decimal(9, 2)`` is 1.50, a tuple is a list: as tables hold it.
    """
    require_returned(row, fields, maker)
    return {name: _plain(kind, row.get(name)) for name, kind in fields.items()}


def of_another_type(given: str, kind: FieldType, name: str, maker: object) -> Terminal:
    """The error of a value that is not of the ``kind`` that is declared for the field ``name``."""
    return Terminal.of(
        "function-made-another-type",
        given=given,
        maker=maker,
        kind=kind,
        finite=", and finite" if kind.kind == "double" else "",
        name=name,
    )


def _holds(kind: FieldType, value: Any) -> bool:
    if value is None:
        return True
    if kind.element is not None:
        element = kind.element
        # what can be read once, or has no order of its own but by chance, is no list
        is_list = isinstance(value, list | tuple | set | range | deque) or (
            hasattr(value, "__array__") and hasattr(value, "__len__")
        )
        return is_list and all(_holds(element, one) for one in value)
    match kind.kind:
        case "string":
            return isinstance(value, str) and is_unicode(value)
        case "long":
            return _is_whole(value) and LONG_MIN <= value <= LONG_MAX
        case "double":
            is_exact = not _is_whole(value) or abs(value) <= _LARGEST_EXACT
            is_ratio = isinstance(value, Rational) and not isinstance(value, Integral)
            return isinstance(value, Real) and not is_ratio and is_exact and math.isfinite(value)
        case "decimal":
            is_number = isinstance(value, Decimal | int) and not isinstance(value, bool)
            return is_number and _fits(Decimal(value), kind)
    return isinstance(value, bool)


def _plain(kind: FieldType, value: Any) -> Any:
    if value is None:
        return None
    if kind.element is not None:
        return [_plain(kind.element, one) for one in value]
    match kind.kind:
        case "string":
            return str.__str__(value)
        case "long":
            return int(value)
        case "double":
            return float(value)
        case "decimal":
            made = Decimal(value).quantize(Decimal((0, (1,), -kind.scale)), context=_EXACT)
            return made if made else abs(made)
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _fits(value: Decimal, kind: FieldType) -> bool:
    if not value.is_finite():
        return False
    shifted = value.scaleb(kind.scale, _EXACT)
    return shifted == shifted.to_integral_value(context=_EXACT) and fits(value, kind)
