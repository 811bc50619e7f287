"""Cases of keys that are met in several partitions."""

from __future__ import annotations

from tests.field.case import Case

CASES: tuple[Case, ...] = ()
