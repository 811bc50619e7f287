"""What reaches an operator, and how time passes there."""

from __future__ import annotations

from dataclasses import dataclass

from recount.spark.estimates.arrivals import Arrivals


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
