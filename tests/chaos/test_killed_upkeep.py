"""Whenever a driver dies in its upkeep, the ledger holds every batch once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.engine.ledger_scene import LedgerScene

from recount.profile.home import Project

_KILLS = 8
_SEED = 11


def killed_after(seconds: float, folder: Path, project: Project) -> int:
    """Run ``upkeep.py`` from its first batch on for so long, then kill -9; the last batch that it said."""
    program = str(project.root / "tests" / "chaos" / "upkeep.py")
    environment = {**os.environ, "PYTHONPATH": f"{project.root}:{project.root / 'include'}"}
    with subprocess.Popen([sys.executable, program, str(folder)], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        said = [first, *process.stdout]
    return int(said[-1])


@pytest.mark.thorough
def test_a_driver_that_is_killed_in_its_upkeep_again_and_again_loses_and_doubles_no_proof(
    tmp_path: Path, project: Project
) -> None:
    drawn = random.Random(_SEED)
    forgotten = 0
    for _ in range(_KILLS):
        last = killed_after(drawn.uniform(0.05, 1.5), tmp_path, project)
        scene = LedgerScene(tmp_path)
        assert scene.found == list(reversed(range(len(scene.found))))
        assert len(scene.found) in (last + 1, last + 2), "a batch may be committed and not said"
        forgotten = scene.commits[0]
    assert forgotten > 0
