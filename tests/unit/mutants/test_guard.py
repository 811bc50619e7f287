"""A rule that the recompute would ask the stream for raises while the recompute is at work, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.mutants.catalogue import mutants
from tests.mutants.guard import GUARDED, can_be_guarded, guard, guarded, recompute_at_work

from recount.profile.home import Project

SOURCE = '''
class Windows:
    def closes_ms(self, end_ms):
        """When it closes."""
        return end_ms + 5


def late(windows, end_ms):
    return windows.closes_ms(end_ms) < 9
'''


def test_a_guarded_rule_raises_while_the_recompute_is_at_work(tmp_path: Path) -> None:
    package, names = tmp_path / "recount", {}
    exec(guarded(SOURCE, ["Windows.closes_ms", "late"], tmp_path / GUARDED), names)  # noqa: S102
    rules: Any = names
    assert rules["late"](rules["Windows"](), 3)
    with recompute_at_work(package):
        for ask in (lambda: rules["Windows"]().closes_ms(3), lambda: rules["late"](None, 3)):
            with pytest.raises(AssertionError, match="recompute"):
                ask()
    assert rules["Windows"]().closes_ms(3) == 8


def test_every_rule_of_the_core_is_guarded_and_can_still_be_mutated(project: Project, tmp_path: Path) -> None:
    found = [one for one in mutants(project.root / "include" / "recount") if can_be_guarded(one)]
    assert len(found) > 60 and all(one.is_shared for one in found)
    package = tmp_path / "recount"
    for file in {one.file for one in found}:
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text((project.root / "include" / "recount" / file).read_text())
    guard(package, found)
    for one in found:
        source = (package / one.file).read_text()
        assert str(tmp_path / GUARDED) in source
        compile(one.apply(source), one.file, "exec")
