"""Values that a Python function of a topology returns: of the declared type, or an error. Nothing is rounded or cut."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from decimal import Context, Decimal
from numbers import Integral, Rational, Real
from typing import Any

from recount.core.errors import Terminal
from recount.core.schema import LONG_MAX, LONG_MIN, FieldType, is_unicode
from recount.core.sums import fits

_LARGEST_EXACT = 2**53
"""A double holds each whole number up to here."""
_EXACT = Context(prec=100)


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
    return Terminal(
        f"{maker} made a value of another type",
        given=given,
        expected=f"{kind} or None, as declared{', and finite' if kind.kind == 'double' else ''}",
        remedy=f"convert the value in the function, or declare another type for {name}",
    )


def _holds(kind: FieldType, value: Any) -> bool:
    if value is None:
        return True
    if kind.element is not None:
        element = kind.element
        # what can be read once, or has no order of its own but by chance, is no list
        is_list = isinstance(value, list | tuple | set | range | deque) or _is_array(value)
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


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and hasattr(value, "__len__")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _fits(value: Decimal, kind: FieldType) -> bool:
    if not value.is_finite():
        return False
    shifted = value.scaleb(kind.scale, _EXACT)
    return shifted == shifted.to_integral_value(context=_EXACT) and fits(value, kind)
