"""A function of the topology that raises for a record: "Functions that raise" of docs/semantics.md."""

from __future__ import annotations

from recount.core.errors import Terminal

_MOST_SAID = 200


def sets_aside(error: Exception) -> bool:
    """Whether the record is at fault: not where memory is short, nor where the error says that something else is."""
    return not isinstance(error, MemoryError | Terminal)


def reason_for(operator: str, error: Exception) -> str:
    """By what its dead letter is compared: the operator and the kind of error, not the words of its message."""
    return f"function-raised: {type(error).__name__} in {operator[:_MOST_SAID]}"
