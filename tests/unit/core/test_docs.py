"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())


def test_every_example_in_the_semantics_runs_as_it_is_written() -> None:
    outcome = doctest.testfile(str(ROOT / "docs" / "semantics.md"), module_relative=False)
    assert outcome.attempted > 50
    assert outcome.failed == 0
