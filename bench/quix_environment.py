"""The environment of the contender Quix Streams, apart from Recount's: built from requirements/bench.lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from recount.profile.home import Project
from recount.runtime.errors import Terminal


def build_quix_streams(project: Project) -> None:
    """Install the locked packages unless that is done; raises ``Terminal`` with the last words of uv."""
    lock, python = project.root / "requirements" / "bench.lock", quix_python(project)
    home = python.parents[1]
    done = home / ".complete"
    if done.exists() and done.stat().st_mtime > lock.stat().st_mtime:
        return
    _uv("venv", "--clear", f"--python={sys.executable}", str(home))
    _uv("pip", "sync", f"--python={python}", "--require-hashes", str(lock))
    done.touch()


def quix_python(project: Project) -> Path:
    """The interpreter of the environment."""
    return project.root / ".cache" / "bench" / "quix_streams" / "bin" / "python"


def _uv(*arguments: str) -> None:
    command = [str(Path(sys.executable).parent / "uv"), "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Terminal(
            "Quix Streams does not install",
            given=done.stderr[-2_000:],
            remedy="see uv above; --job and --part measure without it",
        )
