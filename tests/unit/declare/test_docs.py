"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())


@pytest.mark.parametrize(("page", "least"), [("semantics.md", 50), ("own_streams.md", 30)])
def test_every_example_of_a_page_runs_as_it_is_written(page: str, least: int) -> None:
    outcome = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert outcome.attempted > least
    assert outcome.failed == 0
