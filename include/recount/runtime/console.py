"""Output of commands: tables, errors, exit codes that say whether a retry can help, and process identities.

The identity of a process differs from that of a later one with its pid, whatever the clock of the machine does.
"""

import gc
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from recount.runtime.errors import RecountError, Transient

_NO_LIMIT = 1_000_000
EXIT_TERMINAL, EXIT_TRANSIENT = 1, 75
"""A human must act, or the same call may succeed later (EX_TEMPFAIL)."""
EXIT_UNKNOWN = 70
"""Of a job that an error ended which nobody expected (EX_SOFTWARE); Python's own would be that of a final one."""
_FINAL = re.compile(r"recount [a-z]+: no retry can help: (.+)")
IsFinal = Callable[[RecountError], bool]
_NEW_OBJECTS = 100_000
_PROC = Path("/proc")
_START_TICKS = 19
"""Where the start time stands in ``/proc/<pid>/stat``, counted from the field after the name (field 3 of proc(5))."""


def print_whole(*parts: RenderableType) -> None:
    """Print ``parts``, tables and lines between them, on standard output; a ``str``, in a table too, has no markup.

    On a terminal what does not fit goes on in the next line. A file or a pipe has no width: there a row is as wide as
    what is in it, so that programs find every name.
    """
    console = Console(highlight=False, markup=False)
    options = console.options.update(width=_NO_LIMIT)
    for part in parts:
        shown = Text(part) if isinstance(part, str) else part
        if isinstance(shown, Table):
            for column in shown.columns:
                column.overflow = "fold"
        if not sys.stdout.isatty():
            console.width = max(1, Measurement.get(console, options, shown).maximum)
        console.print(shown)


@contextmanager
def errors_reported(command: str, is_final: IsFinal | None = None) -> Iterator[None]:
    """Report an error of Recount in one line that begins with ``command``, and exit.

    Every error but ``Transient`` is final, unless ``is_final`` decides: then the line says of a final one that no retry
    can help, for a reader who does not see the exit code.
    """
    try:
        yield
    except RecountError as error:
        from recount.runtime.log_lines import tell_error

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


def identity_of(pid: int) -> str | None:
    """The boot of the machine and the clock ticks until ``pid`` started; None when there is no such process.

    Neither changes when the clock is set. The start as a time of day does: Linux derives it from the clock.
    """
    try:
        said = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name stands in brackets, and may contain blanks and brackets itself
    ticks = said.rpartition(")")[2].split()[_START_TICKS]
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{ticks}"
