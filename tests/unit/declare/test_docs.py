"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType

import pytest

from recount.declare.operators import keys_and_fields
from recount.runtime import times

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())


@pytest.mark.parametrize(("page", "least"), [("semantics.md", 50), ("own_streams.md", 30)])
def test_every_example_of_a_page_runs_as_it_is_written(page: str, least: int) -> None:
    outcome = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert outcome.attempted > least
    assert outcome.failed == 0


@pytest.mark.parametrize("module", [times, keys_and_fields])
def test_what_the_docstrings_of_a_module_show_is_what_people_read(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted >= 1
    assert outcome.failed == 0
