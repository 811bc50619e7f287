"""Functions that a user wrote and that raise: the error names the function and the record."""

from __future__ import annotations

from recount.core.errors import RecountError, Terminal

_MOST_SHOWN = 200


class FunctionFailed(Terminal):
    """A function of the topology raised; ``place`` is the record or the result that it was called for."""

    def __init__(self, what: object, place: str, error: Exception) -> None:
        self.place = place
        super().__init__(
            f"a function of the topology raised {type(error).__name__}: {str(error)[:_MOST_SHOWN]}",
            given=f"{what}, at {place}",
            expected="a function that returns for every record",
            remedy="catch it in the function, and return no row, or one that says so; or filter such records before it",
        )


def failed(what: object, place: str, error: Exception) -> RecountError:
    """What to raise for the ``error`` of a function of ``what`` at ``place``; our own errors stay themselves."""
    return error if isinstance(error, RecountError) else FunctionFailed(what, place, error)
