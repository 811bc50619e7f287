"""How much an operator keeps, and how often it is written and looked up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StateUse:
    """``rows`` and ``bytes`` that are kept in memory now; ``puts`` and ``gets`` count rows since the driver started.

    A put is a row that was written, or forgotten; a get is an identity that was looked for. Looks at all rows, as for
    those that are due, count as none.
    """

    rows: int
    bytes: int
    puts: int
    gets: int
