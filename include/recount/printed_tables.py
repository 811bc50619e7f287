"""Tables that commands print, with every name and value whole."""

from __future__ import annotations

import sys

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_NO_LIMIT = 1_000_000


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
