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


@dataclass(frozen=True, kw_only=True)
class Inflow:
    """The rows at each input (over the keys of that input), and what delays the end of what is kept.

    ``behind_ms``: how far the time by which state is dropped lies behind the newest row, because operators above hold
    rows back and a partition may be behind. Nothing is dropped but at the end of a batch, every ``trigger_ms``, and
    nothing ever where time never ``settles``: where rows can come from above however old they are, or revise others.
    ``partitions``: over how many of the ``source_partitions`` one key's records are spread.
    """

    inputs: tuple[Arrivals, ...]
    trigger_ms: int
    behind_ms: int = 0
    settles: bool = True
    partitions: int = 1
    source_partitions: int = 1

    @property
    def only(self) -> Arrivals:
        """The rows at the only, or the left, input."""
        return self.inputs[0]

    def kept_ms(self, span_ms: int) -> int:
        """How long a row stays in reach that is needed until time has passed it by ``span_ms``."""
        return span_ms + self.behind_ms + self.trigger_ms
