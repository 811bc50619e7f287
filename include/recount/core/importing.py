"""The import of a module of topologies: what fails in it is told with its file and line."""

from __future__ import annotations

import importlib
import sys
import traceback
from types import ModuleType

from recount.core.errors import RecountError, Terminal

_NOT_THE_USERS = sys.stdlib_module_names | {__name__.partition(".")[0]}
"""Packages whose lines say nothing about a declaration: Python's own, and Recount."""


def imported(name: str) -> ModuleType:
    """The module ``name``; raises ``Terminal`` with the place in it at which it, or a declaration, is wrong."""
    try:
        return importlib.import_module(name)
    except RecountError as error:
        error.place = error.place or _place_of(error)
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise Terminal(
                "no such module of topologies",
                given=name,
                expected="modules that Python can import, separated by commas",
                remedy="mend RECOUNT_TOPOLOGIES, or put the module's folder into PYTHONPATH",
            ) from None
        refused = Terminal(
            "a module of topologies cannot be imported",
            given=f"{name}: {type(error).__name__}: {error}",
            expected="a module that Python can import",
            remedy="mend the line",
        )
        refused.place = _place_of(error)
        raise refused from error


def _place_of(error: Exception) -> str | None:
    """The innermost line that is neither Python's own nor ours."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    places = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_THE_USERS
    ]
    return places[-1] if places else None
