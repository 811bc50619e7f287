"""The catalogue of rule mutants fits the code, and what was published of it (issue 12, 1.5)."""

from __future__ import annotations

import pytest
from tests.mutants.catalogue import Mutant, mutants

from recount.local.project import Project


def test_every_mutant_is_of_code_that_is_there_and_changes_it(project: Project) -> None:
    package = project.root / "include" / "recount"
    found = mutants(package)
    assert len(found) > 100 and {one.in_core for one in found} == {True, False}
    for one in found:
        source = (package / one.file).read_text()
        assert one.apply(source) != source, one


def test_a_mutant_of_code_that_is_gone_is_an_error(project: Project) -> None:
    gone = Mutant(rule="", scenes=(), file="core/windows.py", inside="tumbling", code="grace * 2", replacement="")
    with pytest.raises(LookupError):
        gone.apply((project.root / "include" / "recount" / gone.file).read_text())
