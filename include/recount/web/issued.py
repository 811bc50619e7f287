"""The certificates of a stream as the pages show them: newest first, each read once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from recount.audit.row_changes import change_in_words, late_in_words
from recount.core.instants import told_window
from recount.core.quantities import quantity
from recount.regular_files import bytes_of_file

MOST = 100
"""Squares of a strip: certificates beyond these are in the folder."""
_LARGEST = 64 << 20
_SHOWN = 20
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Issued:
    """What one certificate says. ``outcome`` is ``unreadable`` where the file is none, and then the rest says nothing.

    ``open_findings`` are of all nights up to this one, ``misses_found`` grace misses of this one,
    ``version`` is that of the stream, which a reset raises.
    """

    stream: str
    audit: str
    outcome: str
    issued_ms: int
    open_findings: int = 0
    warnings: Sequence[str] = ()
    misses_found: int = 0
    version: int = 1

    @property
    def page(self) -> str:
        """Its page below the reports folder."""
        return f"certificates/{self.stream}/{self.audit}.html"

    @property
    def kind(self) -> str:
        """How it is painted: ``ok``, ``warned``, ``violation`` or ``unreadable``."""
        return (
            "warned" if self.outcome == "match" and self.warnings else {"match": "ok"}.get(self.outcome, self.outcome)
        )

    @property
    def told(self) -> str:
        """The outcome in words."""
        if self.outcome == "violation":
            return f"violation, {quantity(self.open_findings, 'open finding')}"
        return "match, with warnings" if self.kind == "warned" else self.outcome


@dataclass(frozen=True, kw_only=True)
class Miss:
    """A row that late records would have changed, and how; ``late`` are the first of ``late_records``."""

    key: str | None
    window: str | None
    change: str
    late_records: int
    late: Sequence[str]


def certificates(reports: str, stream: str, most: int = MOST) -> list[Issued]:
    """The newest certificates of ``stream``, newest first."""
    folder = Path(reports) / "certificates" / stream
    files = [(file.stat().st_mtime_ns, str(file)) for file in folder.glob("*.json")] if folder.is_dir() else []
    return [_read(stream, file, changed_ns) for changed_ns, file in sorted(files, reverse=True)[:most]]


@lru_cache(maxsize=20_000)
def _read(stream: str, file: str, changed_ns: int) -> Issued:
    """What the certificate in ``file`` says since ``changed_ns``: no certificate is changed once it is issued."""
    path, issued_ms = Path(file), changed_ns // 1_000_000
    try:
        said = _document(path)
        if said["outcome"] not in ("match", "violation"):
            raise ValueError("no certificate")
        return Issued(
            stream=stream,
            audit=path.stem,
            outcome=said["outcome"],
            issued_ms=issued_ms,
            open_findings=int(said.get("findings", {}).get("open_found", said["differences_found"])),
            warnings=tuple(str(one)[:500] for one in said.get("warnings", [])[:_SHOWN]),
            misses_found=int(said["grace_misses_found"]),
            version=int(said.get("declaration", {}).get("stream_version", 1)),
        )
    except _UNREADABLE:
        return Issued(stream=stream, audit=path.stem, outcome="unreadable", issued_ms=issued_ms)


def first_misses(reports: str, issued: Issued) -> list[Miss]:
    """The first grace misses of a certificate; none where it cannot be read."""
    try:
        said = _document(Path(reports) / "certificates" / issued.stream / f"{issued.audit}.json")
        return [
            Miss(
                key=None if one["key"] is None else str(one["key"]),
                window=_window(one["window_start"], one["window_end"]),
                change=change_in_words(one["published"], one["complete"]),
                late_records=int(one["late_records"]),
                late=[late_in_words(str(place)) for place in one["late"][:3]],
            )
            for one in said["grace_misses"][:_SHOWN]
        ]
    except _UNREADABLE:
        return []


def _window(start_ms: object, end_ms: object) -> str | None:
    return told_window(start_ms, end_ms) if isinstance(start_ms, int) and isinstance(end_ms, int) else None


def _document(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _LARGEST:
        raise ValueError("too large")
    document: dict[str, Any] = json.loads(bytes_of_file(path))
    return document
