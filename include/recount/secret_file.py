"""Files with secrets: written for their owner alone, and refused where everybody may read them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read, from its first byte on; whoever reads finds the old one or the new."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)


def fault_of_mode(path: Path) -> str | None:
    """What is wrong with who may read a file with secrets: everybody must not."""
    mode = path.stat().st_mode & 0o777
    return f"{path} can be read by everybody (mode {mode:04o}): chmod 600" if mode & 0o004 else None
