"""How a command or a job ends where it cannot go on: one line, and an exit code that says whether a retry can help."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from recount.core.errors import RecountError, Transient

EXIT_TERMINAL, EXIT_TRANSIENT = 1, 75
"""A human must act, or the same call may succeed later (EX_TEMPFAIL)."""
EXIT_UNKNOWN = 70
"""Of a job that an error ended which nobody expected (EX_SOFTWARE); Python's own would be that of a final one."""
_FINAL = re.compile(r"recount [a-z]+: no retry can help: (.+)")
IsFinal = Callable[[RecountError], bool]
_NEW_OBJECTS = 100_000


@contextmanager
def errors_reported(command: str, is_final: IsFinal | None = None) -> Iterator[None]:
    """Report an error of Recount in one line that begins with ``command``, and exit.

    Every error but ``Transient`` is final, unless ``is_final`` decides: then the line says of a final one that no retry
    can help, for a reader who does not see the exit code.
    """
    try:
        yield
    except RecountError as error:
        from recount.log_lines import tell_error  # takes its time, and most commands end well

        final = is_final(error) if is_final else not isinstance(error, Transient)
        tell_error(f"{command}: {'no retry can help: ' if is_final and final else ''}{error}")
        raise SystemExit(EXIT_TERMINAL if final else EXIT_TRANSIENT) from None


def final_error_in(line: str) -> str | None:
    """The final error that ``line`` reports; None in every other line."""
    found = _FINAL.fullmatch(line)
    return found[1] if found else None


def run_job(name: str, command: Callable[..., Any], is_final: IsFinal | None = None) -> None:
    """Run ``command``, which is ``recount NAME``, as a job of spark-submit or another process of its own."""
    look_seldom()
    job = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    job.command()(command)
    try:
        with errors_reported(f"recount {name}", is_final):
            job()
    except Exception:
        sys.excepthook(*sys.exc_info())
        raise SystemExit(EXIT_UNKNOWN) from None


def look_seldom() -> None:
    """Look for cycles after every 100,000 new objects of this process instead of 700.

    A batch makes a million objects, and the packages that a job imports half a million; few of them are in a cycle. To
    look at all of them again and again took a third of the processor time of sliding windows, and a sixth of importing.
    """
    gc.set_threshold(_NEW_OBJECTS)
