"""What only make targets run can be imported: no other test would see a name that has moved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"tests/compose/counter.py", "tests/compose/sender.py", "bench/quix_streams.py", "bench/served.py"}
"""These run in other environments, with arguments."""
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
    others = [file for file in files if not file.name.startswith("test_") and str(file) not in ELSEWHERE]
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
