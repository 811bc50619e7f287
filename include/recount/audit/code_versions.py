"""Which code an audit ran: Recount's version, sources and commit, and the libraries that were installed."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import recount

_PACKAGE = Path(recount.__file__).parent


def code_versions() -> dict[str, Any]:
    """What is told in a certificate; ``commit`` and ``lock_sha256`` are None outside a checkout."""
    lock = _PACKAGE.parents[1] / "requirements" / "main.lock"
    return {
        "recount": version("recount"),
        "sources_sha256": sources_sha256(_PACKAGE),
        **_commit(),
        "python": platform.python_version(),
        "installed_sha256": _hash("\n".join(sorted(_installed()))),
        "lock_sha256": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else None,
    }


def _installed() -> set[str]:
    """Names and versions, as the folders of their metadata tell them: to read each file would take half a second."""
    return {metadata.name for folder in sys.path for metadata in Path(folder).glob("*.dist-info")}


def sources_sha256(package: Path) -> str:
    """The hash of all Python files below ``package``, with their paths."""
    lines = [
        f"{file.relative_to(package).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in sorted(package.rglob("*.py"))
    ]
    return _hash("\n".join(lines))


def _commit() -> dict[str, Any]:
    """The checkout's commit, and whether the package was changed since; none where the package is not in its files."""
    try:
        _git("ls-files", "--error-unmatch", "__init__.py")
        return {"commit": _git("rev-parse", "HEAD"), "is_changed": bool(_git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "is_changed": None}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_PACKAGE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
