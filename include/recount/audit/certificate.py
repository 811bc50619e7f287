"""Certificates on disk: one JSON file per audit, in one folder per stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from recount.core.certificate import Certificate, SignatureFault, verify, verify_alone
from recount.core.errors import Terminal
from recount.regular_files import bytes_of_file

_KEPT = 2_000
"""Certificates that hold, of some 40 KB each: those of the audits that are at work at once, a night each for a year."""
_NAME_ONE = "name a file AUDIT.json below certificates/STREAM of the reports"


def certificates_in(folder: Path) -> list[Certificate]:
    """All certificates in ``folder``."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def load(path: Path) -> Certificate:
    """The certificate in the file ``path``; raises ``Terminal`` when it is none."""
    try:
        document: Any = json.loads(bytes_of_file(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Terminal(
            "no certificate", given=f"{path}: {error}", expected="a JSON object", remedy=_NAME_ONE
        ) from error
    if not isinstance(document, Mapping) or "sha256" not in document:
        raise Terminal("no certificate", given=str(path), expected="a JSON object with a sha256", remedy=_NAME_ONE)
    return document


def sound(path: Path) -> Certificate:
    """The certificate in the file ``path``, which holds by itself; raises ``Terminal`` where it does not.

    An audit asks for all of its stream several times. A file that has not changed is read once; do not change what is
    returned.
    """
    try:
        there = path.stat()
    except OSError as error:
        raise Terminal("no certificate", given=str(error), expected="a file", remedy=_NAME_ONE) from error
    return _sound(path, there.st_ino, there.st_size, there.st_mtime_ns)


@lru_cache(maxsize=_KEPT)
def _sound(path: Path, *_of_the_file: int) -> Certificate:
    certificate = load(path)
    verify_alone(certificate)
    return certificate


def verify_file(path: Path, signature_fault: SignatureFault | None = None) -> list[str]:
    """Verify the certificate in ``path`` with the predecessors found beside it (``core.certificate.verify``)."""
    return verify(load(path), certificates_in(path.parent), signature_fault)
