"""The catalogue of rule mutants fits the code, leaves no boundary out, and every mutant was caught (issue 12, 1.5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.catalogue import mutants
from tests.mutants.page import Caught, key_of, page, read
from tests.mutants.scenes import names
from tests.mutants.sites import is_of, uncovered
from tests.mutants.untried import untried

from recount.profile.home import Project


@pytest.fixture(name="package")
def _package(project: Project) -> Path:
    return project.root / "include" / "recount"


def test_every_mutant_is_of_code_that_is_there_and_changes_it(package: Path) -> None:
    found = mutants(package)
    assert len(found) > 200 and {one.is_shared for one in found} == {True, False}
    for one in found:
        source = (package / one.file).read_text()
        assert one.apply(source) != source, one
    assert len({key_of(one) for one in found}) == len(found), "two mutants are the same"


def test_every_boundary_of_a_rule_has_a_mutant_or_a_reason(package: Path) -> None:
    reasons, without = list(untried()), uncovered(package, mutants(package))
    assert [one for one in without if not any(is_of(reason, one, package) for reason in reasons)] == []
    assert [reason for reason in reasons if not any(is_of(reason, one, package) for one in without)] == []


def test_the_published_page_has_every_mutant_and_each_turned_an_audit_red(project: Project, package: Path) -> None:
    text, found = (project.root / "docs" / "mutants.md").read_text(), mutants(package)
    known = read(text)
    assert page(found, known, list(untried())) == text, "run: make mutants ARGS=--missing"
    assert [key_of(one) for one in found if "audit" not in known.get(key_of(one), Caught()).caught_by] == []
    assert {one.scene for one in known.values()} == set(names()), "a scene that reveals no mutant"
