"""``make test`` runs all tests: each file lies in one of its runs."""

from __future__ import annotations

import re

from recount.profile.project import Project


def test_every_test_is_in_one_run_of_make_test(project: Project) -> None:
    makefile = (project.root / "Makefile").read_text()
    runs = [run.partition(" --ignore ")[::2] for run in re.findall(r"^RUN_\w+ := (.*)$", makefile, re.MULTILINE)]
    files = [str(path.relative_to(project.root)) for path in (project.root / "tests").rglob("test_*.py")]

    def is_in(file: str, folders: str, but: str) -> bool:
        return any(file.startswith(f"{one}/") for one in folders.split()) and not (but and file.startswith(f"{but}/"))

    assert {file: sum(is_in(file, *run) for run in runs) for file in files} == dict.fromkeys(files, 1)
