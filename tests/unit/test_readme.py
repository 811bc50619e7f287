"""The README shows what is there: its declaration, its places, its targets."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from recount.core.settings import PREFIX, Settings

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text()


def test_the_declaration_in_the_readme_is_the_one_that_runs() -> None:
    [snippet] = re.findall(r"```python\n(.*?)```", _README, re.DOTALL)
    assert snippet in (_ROOT / "include" / "topologies" / "orders.py").read_text()


def test_the_page_on_settings_lists_every_variable_and_no_other() -> None:
    page = (_ROOT / "docs" / "own_streams.md").read_text()
    listed = re.findall(r"`(RECOUNT_[A-Z_]+)`", page.partition("## Settings")[2])
    assert sorted(listed) == sorted(f"{PREFIX}{field.name.upper()}" for field in fields(Settings))


def test_every_place_in_the_map_of_the_house_exists() -> None:
    places = [
        place for row in re.findall(r"^\| (`.*?) \|", _README, re.MULTILINE) for place in re.findall("`(.*?)`", row)
    ]
    assert len(places) > 10
    assert [place for place in places if not (_ROOT / place).is_dir()] == []


def test_every_make_target_in_the_readme_exists() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", _README))
    targets = set(re.findall(r"^([a-z-]+):.*##", (_ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named >= {"demo", "test", "up"}
    assert named <= targets
