"""What only make targets run can be imported, and ``make test`` runs all tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from recount.profile.home import Project

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"tests/compose/counter.py", "tests/compose/sender.py", "bench/quix_streams.py", "bench/served.py"}
"""These run in other environments, with arguments, as the DAGs of tests/airflow do in Airflow."""
IMPORT = """
import importlib, sys, traceback
failed = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        failed.append(f"{name}\\n{traceback.format_exc()}")
sys.exit("\\n".join(failed) or 0)
"""


def test_all_that_is_no_test_can_be_imported() -> None:
    files = [file.relative_to(ROOT) for folder in ("tests", "bench") for file in sorted((ROOT / folder).rglob("*.py"))]
    others = [
        file
        for file in files
        if not file.name.startswith("test_") and str(file) not in ELSEWHERE and file.parent.name != "dags"
    ]
    modules = [".".join(file.with_suffix("").parts) for file in others]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, *modules],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'include'}", "UPGRADE_FROM": "HEAD"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_test_is_in_one_run_of_make_test(project: Project) -> None:
    makefile = (project.root / "Makefile").read_text()
    runs = [run.partition(" --ignore ")[::2] for run in re.findall(r"^RUN_\w+ := (.*)$", makefile, re.MULTILINE)]
    files = [str(path.relative_to(project.root)) for path in (project.root / "tests").rglob("test_*.py")]

    def is_in(file: str, folders: str, but: str) -> bool:
        return any(file.startswith(f"{one}/") for one in folders.split()) and not (but and file.startswith(f"{but}/"))

    assert {file: sum(is_in(file, *run) for run in runs) for file in files} == dict.fromkeys(files, 1)
