"""When keys speak: the one model behind every estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass

EACH_ITS_OWN = math.inf
"""As many keys as there are records: none comes twice."""


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Rows that come ``per_s`` a second over ``keys`` that are all alike and speak independently of each other.

    So the rows of one key are a Poisson process of ``per_s / keys`` a second (Ross, Introduction to Probability Models,
    5.3). Busier and quieter keys lie below it for windows, which have fewer keys then, and above it for sessions, of
    which quiet keys have more.
    """

    per_s: float
    keys: float

    def within(self, ms: float) -> float:
        """How many rows come in ``ms``."""
        return self.per_s * ms / 1_000

    def silence(self, ms: float) -> float:
        """The chance that a key says nothing for ``ms``: 100 rows/s of 100 keys, 1 s: e^-1."""
        return math.exp(-self.within(ms) / self.keys)

    def keys_within(self, ms: float) -> float:
        """How many keys speak in ``ms``: 100 rows/s of 100 keys, 1 s: 63; in 10 s: 100."""
        if math.isinf(self.keys):
            return self.within(ms)
        return self.keys * -math.expm1(-self.within(ms) / self.keys)

    def firsts_per_s(self, ms: float) -> float:
        """How many rows a second are the first of their key since a first more than ``ms`` ago.

        A key has one in ``ms`` and the time to its next row (Ross, 7.3: renewals). 100 rows/s of 100 keys, 1 s: 50.
        """
        return self.per_s / (1 + self.within(ms) / self.keys)

    def spread_over(self, partitions: int) -> Arrivals:
        """What one of ``partitions`` has of them, where a key's rows lie in all of them alike."""
        return Arrivals(per_s=self.per_s / partitions, keys=self.keys)
