"""The README shows what is there: its declaration, its places, its targets."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from recount.runtime.settings import PREFIX, Settings

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text()


def test_the_declaration_in_the_readme_is_the_one_that_runs() -> None:
    [snippet] = re.findall(r"```python\n(.*?)```", _README, re.DOTALL)
    assert snippet in (_ROOT / "include" / "topologies" / "orders.py").read_text()


def test_the_page_on_settings_lists_every_variable_and_no_other() -> None:
    page = (_ROOT / "docs" / "own_streams.md").read_text()
    listed = re.findall(r"`(RECOUNT_[A-Z_]+)`", page.partition("## Settings")[2])
    assert sorted(listed) == sorted(f"{PREFIX}{field.name.upper()}" for field in fields(Settings))


def test_every_file_and_folder_on_the_page_on_architecture_exists() -> None:
    page = (_ROOT / "docs" / "architecture.md").read_text()
    package = _ROOT / "include" / "recount"
    places = re.findall(r"`([a-z_/]+(?:\.py|/))`", page)
    assert len(places) > 40
    roots = (_ROOT, *(package / part for part in ("", "audit", "recompute", "engine", "advise", "lifecycle")))
    assert [place for place in places if not any((root / place).exists() for root in roots)] == []


def test_every_make_target_in_the_readme_exists() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", _README))
    targets = set(re.findall(r"^([a-z-]+):.*##", (_ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named >= {"demo", "test", "up"}
    assert named <= targets
