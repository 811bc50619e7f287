"""Templates to pages by Jinja2 with autoescape: numbers, shares, times, and the panels of a stream's page.

The panels are the documents of the grace advisor and of the lens; without them the page shows nothing there.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from recount.advise.workload import sized
from recount.runtime.times import roughly

_LONGEST = 300
_A_WEEK_MS = 7 * 86_400_000
UNKNOWN = "–"  # noqa: RUF001 - a dash
"""In place of a number."""
Kind = Literal["grace", "lens"]
TITLES: dict[Kind, str] = {
    "grace": "What a larger grace would have admitted, and its cost",
    "lens": "What another engine would have dropped last night",
}
_MOST_ROWS, _MOST_COLUMNS, _LARGEST = 50, 12, 4 << 20


def rendered(template: str, **values: Any) -> str:
    """The page that ``template`` makes of ``values``; a value that is missing is an error."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("recount.pages"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": count, "rate": rate, "share": share, "size": size, "time": told_minute}
    environment.filters |= {"ago": duration, "since": since, "short": short}
    return environment


def count(number: float | None) -> str:
    """``1234567`` is ``1,234,567``."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def rate(number: float | None) -> str:
    """Two digits at least, and no more than can be read: ``0.25``, ``7.5``, ``1,235``."""
    if number is None or number >= 100 or number == 0:
        return count(number)
    return f"{number:.1f}" if number >= 1 else f"{number:.2g}"


def share(number: float | None) -> str:
    """A share in percent; one that is not nothing never looks like nothing."""
    if number is None:
        return UNKNOWN
    if number == 0:
        return "0 %"
    return "< 0.01 %" if number < 0.0001 else f"{number:.2%}".replace("%", " %")


def size(number: int | None) -> str:
    """Bytes in the largest unit of which there is at least one."""
    return UNKNOWN if number is None else sized(number)


def told_minute(at_ms: int | None) -> str:
    """Date and time of day without seconds, UTC; as the number where no calendar has it."""
    if at_ms is None:
        return UNKNOWN
    try:
        return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms:,} ms"


def duration(length_ms: float | None) -> str:
    return UNKNOWN if length_ms is None else roughly(length_ms)


def since(at_ms: int | None, now_ms: int) -> str:
    """How long ago ``at_ms`` was; its date where that is more than a week, as of a log of former years."""
    if at_ms is None or now_ms - at_ms > _A_WEEK_MS:
        return told_minute(at_ms)
    return roughly(now_ms - at_ms)


def short(text: object, most: int = _LONGEST) -> str:
    told = str(text)
    return told if len(told) <= most else told[: most - 1] + "…"


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
