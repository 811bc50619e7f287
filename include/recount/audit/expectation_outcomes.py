"""What came of the expectations of an audit, for those who only read it: ``recount.audit.expectations`` writes it."""

from __future__ import annotations

from pathlib import Path

EXIT_UNTRIED, EXIT_FAILED, EXIT_DISAGREED = 1, 3, 5
"""A stream could not be validated; an expectation failed; the expectations and the audit's judge disagree."""


def expectations_page_of(reports: str, stream: str, audit: str) -> Path:
    """The page that shows it."""
    return outcome_of(reports, stream, audit).with_suffix(".html")


def outcome_of(reports: str, stream: str, audit: str) -> Path:
    """The JSON file with the outcome of ``audit``: ``exit_code``, and ``lines`` for people, among others."""
    return Path(reports) / "expectations" / stream / f"{audit}.json"
