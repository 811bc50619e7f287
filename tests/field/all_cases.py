"""All cases of the field."""

from __future__ import annotations

from tests.field import expressions, functions, partitions, sessions, sums, too_large
from tests.field.case import Case

CASES: tuple[Case, ...] = (
    *expressions.CASES,
    *sums.CASES,
    *partitions.CASES,
    *functions.CASES,
    *sessions.CASES,
    *too_large.CASES,
)
RUNNING = tuple(case for case in CASES if case.stops is None)
"""The cases that have results."""
