"""Functions that a user wrote and that raise: whose fault it is, what the dead letter says, or the error."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from copy import deepcopy
from decimal import Decimal
from typing import Any

from recount.core.errors import OfARecord, RecountError
from recount.core.evaluation import OutOfRange
from recount.core.size_limits import TooLarge

FUNCTION_RAISED = "function-raised"
"""How the reason of a record begins that was set aside because a function raised."""
OUT_OF_RANGE = "out-of-range"
"""How it begins where an expression has a value that its type cannot hold."""
_MOST_SHOWN = 200
_UNCHANGING = frozenset({str, int, float, bool, type(None), Decimal})


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
    """What to raise for the ``error`` of a function of ``what`` at ``place``; our own errors stay themselves."""
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
    """What the error says, for people: it may hold an address or a time, so that nothing compares it."""
    try:
        said = str(error)
    except Exception:
        return "its message cannot be told"
    return said[:_MOST_SHOWN].encode(errors="replace").decode()
