"""``make test`` runs all tests: each file lies in one of its runs."""

from __future__ import annotations

import re

from recount.local.project import Project


def test_every_test_is_in_one_run_of_make_test(project: Project) -> None:
    makefile = (project.root / "Makefile").read_text()
    folders = [folder for run in re.findall(r"^RUN_\w+ := (.*)$", makefile, re.MULTILINE) for folder in run.split()]
    files = [str(path.relative_to(project.root)) for path in (project.root / "tests").rglob("test_*.py")]
    assert {file: sum(file.startswith(f"{folder}/") for folder in folders) for file in files} == dict.fromkeys(files, 1)
