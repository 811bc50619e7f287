"""Tables that commands print, with every name and value whole."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_NO_LIMIT = 1_000_000


def print_table(table: Table) -> None:
    """Print ``table`` on standard output.

    On a terminal what does not fit goes on in the next line. A file or a pipe has no width: there a row is as wide as
    what is in it, so that programs find every name.
    """
    for column in table.columns:
        column.overflow = "fold"
    console = Console()
    if not sys.stdout.isatty():
        options = console.options.update(width=_NO_LIMIT)
        console.width = Measurement.get(console, options, table).maximum
    console.print(table)
