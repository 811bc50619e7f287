"""How a command or a job ends where it cannot go on: one line, and an exit code that says whether a retry can help."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from recount.core.errors import RecountError, Transient
from recount.garbage import look_seldom

EXIT_TERMINAL, EXIT_TRANSIENT = 1, 75
"""A human must act, or the same call may succeed later (EX_TEMPFAIL)."""
EXIT_UNKNOWN = 70
"""Of a job that an error ended which nobody expected (EX_SOFTWARE); Python's own would be that of a final one."""


@contextmanager
def errors_reported(command: str) -> Iterator[None]:
    """Report an error of Recount in one line that begins with ``command``, and exit."""
    try:
        yield
    except RecountError as error:
        from recount.log_lines import tell_error  # takes its time, and most commands end well

        tell_error(f"{command}: {error}")
        raise SystemExit(EXIT_TRANSIENT if isinstance(error, Transient) else EXIT_TERMINAL) from None


def run_job(name: str, command: Callable[..., Any]) -> None:
    """Run ``command``, which is ``recount NAME``, as a job of spark-submit or another process of its own."""
    look_seldom()
    job = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    job.command()(command)
    try:
        with errors_reported(f"recount {name}"):
            job()
    except Exception:
        sys.excepthook(*sys.exc_info())
        raise SystemExit(EXIT_UNKNOWN) from None
