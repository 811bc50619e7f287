"""Writes docs/errors.md: ``make errors``."""

from __future__ import annotations

from pathlib import Path

from tests.errors.errors_page import page
from tests.errors.raised import raised_in

ROOT = Path(__file__).parents[2]

if __name__ == "__main__":
    (ROOT / "docs" / "errors.md").write_text(page(raised_in(ROOT / "include" / "recount")))
