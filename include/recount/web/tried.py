"""What Great Expectations found, as ``recount.audit.expectations`` wrote it down: shown on a page of ours.

Its own pages, the Data Docs, take styles, icons and programs from servers of others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from recount.audit.expectation_outcomes import outcome_of
from recount.regular_files import bytes_of_file

_LARGEST, _MOST = 16 << 20, 500
_EXAMPLES = 20


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
        """The worst of them."""
        states = {one.state for one in self.tried}
        return next((state for state in ("failed", "warns") if state in states), "holds")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The suites of one audit, tried ``at_ms``, and on what they and the audit disagree."""

    at_ms: int
    suites: Sequence[Suite]
    disagreements: Sequence[str]


def outcome(reports: str, stream: str, audit: str) -> Outcome | None:
    """What came of the expectations of ``audit``; None where that was not written down, or cannot be read."""
    file = outcome_of(reports, stream, audit)
    try:
        if file.stat().st_size > _LARGEST:
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


_ORDER = {"failed": 0, "warns": 1, "holds": 2}


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
