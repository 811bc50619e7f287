"""A rule of the stream that is wrong turns an audit red (issue 12, 1.5): a sample of what `make mutants` tries."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recount.profile.home import Project


@pytest.mark.thorough
@pytest.mark.timeout(580)
def test_a_sample_of_the_rule_mutants_turns_the_audit_red(project: Project) -> None:
    command = [sys.executable, "-m", "tests.mutants", "--sample", "1", "--seed", "12"]
    told = subprocess.run(command, cwd=project.root, capture_output=True, text=True, timeout=560, check=False)
    assert told.returncode == 0, told.stdout + told.stderr[-2_000:]
    assert "1 of 1 mutants turned the audit red" in told.stdout
