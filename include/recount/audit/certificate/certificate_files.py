"""Certificates on disk: one JSON file per audit, in one folder per stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from recount.certificate.document import Certificate, SignatureFault, verify, verify_alone
from recount.runtime.errors import Terminal
from recount.runtime.installation import bytes_of_file
from recount.runtime.settings import Settings

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
    """Verify the certificate in ``path`` with the predecessors found beside it (``document.verify``)."""
    return verify(load(path), certificates_in(path.parent), signature_fault)


EXIT_UNTRIED, EXIT_FAILED, EXIT_DISAGREED = 1, 3, 5
"""A stream could not be validated; an expectation failed; the expectations and the audit's judge disagree."""


def expectations_page_of(reports: str, stream: str, audit: str) -> Path:
    """The page that shows it."""
    return outcome_of(reports, stream, audit).with_suffix(".html")


def outcome_of(reports: str, stream: str, audit: str) -> Path:
    """The JSON file with the outcome of ``audit``: ``exit_code``, and ``lines`` for people, among others."""
    return Path(reports) / "expectations" / stream / f"{audit}.json"


def summary_file(settings: Settings, stream: str) -> Path:
    """Where the last dry run of ``stream`` left its summary."""
    return Path(settings.reports) / "backfills" / f"{stream}.json"


def write_summary(settings: Settings, stream: str, audit: str, changes: int, unpublished: int) -> None:
    """Write how many results would change as of ``audit``, and how many earlier backfills were never published."""
    document = {"audit": audit, "changes": changes, "unpublished": unpublished}
    target = summary_file(settings, stream)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(".draft")
    draft.write_text(json.dumps(document), encoding="utf-8")
    draft.replace(target)
