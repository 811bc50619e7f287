"""Certificates of a stream, newest first, and outcomes of Great Expectations, as the pages show them.

Each certificate is read once. ``recount.audit.expectations.validation`` wrote the outcomes. A page of ours shows them:
the Data Docs take styles, icons and programs from servers of others.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from recount.audit.certificate.certificate_files import outcome_of
from recount.audit.certificate.summary import change_in_words, late_in_words
from recount.runtime.installation import bytes_of_file
from recount.runtime.times import quantity, told_window

MOST = 100
"""Squares of a strip: certificates beyond these are in the folder."""
_LARGEST = 64 << 20
_SHOWN = 20
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
_LARGEST_OUTCOME, _MOST = 16 << 20, 500
_EXAMPLES = 20
_ORDER = {"failed": 0, "warns": 1, "holds": 2}


@dataclass(frozen=True, kw_only=True)
class Issued:
    """The content of one certificate. ``outcome`` is ``unreadable`` where the file is none; the rest is empty then.

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
        return f"certificates/{self.stream}/{self.audit}.html"

    @property
    def kind(self) -> str:
        """How it is painted: ``ok``, ``warned``, ``violation`` or ``unreadable``."""
        return (
            "warned" if self.outcome == "match" and self.warnings else {"match": "ok"}.get(self.outcome, self.outcome)
        )

    @property
    def told(self) -> str:
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
    """The content of the certificate in ``file`` since ``changed_ns``: no certificate is changed once it is issued."""
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


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One expectation of a ``column``, empty where it is of rows.

    ``state`` is ``holds``, ``warns`` or ``failed``; ``unexpected`` rows None: not evaluated.
    """

    expectation: str
    column: str
    type: str
    state: str
    unexpected: int | None
    examples: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The expectations of one suite, those that do not hold first."""

    name: str
    tried: Sequence[Tried]

    @property
    def state(self) -> str:
        states = {one.state for one in self.tried}
        return next((state for state in ("failed", "warns") if state in states), "holds")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The suites of one audit, tried ``at_ms``, and on what they and the audit disagree."""

    at_ms: int
    suites: Sequence[Suite]
    disagreements: Sequence[str]


def outcome(reports: str, stream: str, audit: str) -> Outcome | None:
    """The outcome of the expectations of ``audit``; None where that was not written down, or cannot be read."""
    file = outcome_of(reports, stream, audit)
    try:
        if file.stat().st_size > _LARGEST_OUTCOME:
            return None
        said = json.loads(bytes_of_file(file))
        suites = [
            Suite(name=str(name), tried=sorted(map(_tried, checks[:_MOST]), key=lambda one: _ORDER[one.state]))
            for name, checks in said["suites"].items()
        ]
        return Outcome(
            at_ms=file.stat().st_mtime_ns // 1_000_000,
            suites=suites,
            disagreements=[str(one) for one in said["disagreements"][:_MOST]],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def outcomes(reports: str, stream: str) -> list[str]:
    """The audits of ``stream`` whose expectations were tried, newest first."""
    folder = outcome_of(reports, stream, "any").parent
    files = [(file.stat().st_mtime_ns, file.stem) for file in folder.glob("*.json")] if folder.is_dir() else []
    return [audit for _, audit in sorted(files, reverse=True)]


def _tried(check: dict[str, object]) -> Tried:
    unexpected, examples = check["unexpected"], check["examples"]
    if not isinstance(examples, list):
        raise TypeError("examples are a list")
    return Tried(
        expectation=str(check["expectation"]),
        column=str(check.get("column", "")),
        type=str(check.get("type", "")),
        state="holds" if check["holds"] is True else "warns" if check["is_warning"] is True else "failed",
        unexpected=unexpected if isinstance(unexpected, int) else None,
        examples=[str(one) for one in examples[:_EXAMPLES]],
    )
