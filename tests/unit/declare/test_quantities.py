"""Durations, times and numbers of things are written one way."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from recount.runtime import times


@pytest.mark.parametrize("module", [times])
def test_what_the_docstrings_show_is_what_people_read(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted >= 1
    assert outcome.failed == 0
