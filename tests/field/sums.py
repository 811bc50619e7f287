"""Cases of sums and averages, and of the texts of small decimals."""

from __future__ import annotations

from tests.field.case import Case

CASES: tuple[Case, ...] = ()
