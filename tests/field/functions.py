"""Cases of Python functions, processors and timers."""

from __future__ import annotations

from tests.field.case import Case

CASES: tuple[Case, ...] = ()
