"""Certificates on disk: one JSON file per audit, in one folder per stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recount.core.certificate import Certificate, SignatureFault, verify
from recount.core.errors import Terminal

_NAME_ONE = "name a file AUDIT.json below certificates/STREAM of the reports"


def certificates_in(folder: Path) -> list[Certificate]:
    """All certificates in ``folder``."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def load(path: Path) -> Certificate:
    """The certificate in the file ``path``; raises ``Terminal`` when it is none."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Terminal(
            "no certificate", given=f"{path}: {error}", expected="a JSON object", remedy=_NAME_ONE
        ) from error
    if not isinstance(document, Mapping) or "sha256" not in document:
        raise Terminal("no certificate", given=str(path), expected="a JSON object with a sha256", remedy=_NAME_ONE)
    return document


def verify_file(path: Path, signature_fault: SignatureFault | None = None) -> list[str]:
    """Verify the certificate in ``path`` with the predecessors found beside it (``core.certificate.verify``)."""
    return verify(load(path), certificates_in(path.parent), signature_fault)
