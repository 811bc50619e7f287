"""The snippets of docs/tables.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[3] / "docs" / "tables.md").read_text()


def snippet(heading: str, language: str = "python") -> str:
    """The first one below ``heading``."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"no {language} below {heading}"
    return found[1]


def rows_of(heading: str, **given: Any) -> list[tuple[Any, ...]]:
    """What the snippet below ``heading`` calls ``rows``."""
    names = dict(given)
    exec(snippet(heading), names)  # noqa: S102 - it is our own page
    return sorted(names["rows"])
