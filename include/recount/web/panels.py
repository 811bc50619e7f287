"""Where the documents of the grace advisor and of the lens come into a stream's page; without them it shows nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["grace", "lens"]
TITLES: dict[Kind, str] = {
    "grace": "What a larger grace would have admitted, and its cost",
    "lens": "What another engine would have dropped last night",
}
_MOST_ROWS, _MOST_COLUMNS, _LARGEST = 50, 12, 4 << 20


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A table with sentences above it: what ``<reports>/<kind>/<stream>.json`` has of the fields below."""

    title: str
    said: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def panel(reports: str, kind: Kind, stream: str) -> Panel | None:
    """The panel of ``stream``; None where there is no document of that kind, or it is none."""
    file = Path(reports) / kind / f"{stream}.json"
    try:
        if file.stat().st_size > _LARGEST:
            return None
        document = json.loads(file.read_bytes())
        said, columns, rows = (document[name] for name in ("said", "columns", "rows"))
        if not all(isinstance(one, list) for one in (said, columns, rows, *rows)):
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Panel(
        title=TITLES[kind],
        said=[str(one) for one in said[:_MOST_ROWS]],
        columns=[str(one) for one in columns[:_MOST_COLUMNS]],
        rows=[[str(cell) for cell in row[:_MOST_COLUMNS]] for row in rows[:_MOST_ROWS]],
    )
