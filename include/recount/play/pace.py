"""When records are due: a steady rate with a burst in every minute.

>>> pace = Pace(rate=60, burst=4)
>>> pace.due_ms(0), pace.due_ms(60 * 60), pace.due_ms(2 * 60 * 60)
(0, 60000, 120000)
>>> [sum(start <= pace.due_ms(number) < start + 1_000 for number in range(60 * 60)) for start in (10_000, 57_000)]
[48, 192]
"""

from __future__ import annotations

from dataclasses import dataclass

_CYCLE_S, _BURST_S = 60, 5


@dataclass(frozen=True, kw_only=True)
class Pace:
    """``rate`` records a second over a minute, whose last five seconds have ``burst`` times as many as the others."""

    rate: float
    burst: float = 4.0

    def due_ms(self, index: int) -> int:
        """When the record ``index`` is due, from the first one on."""
        cycles, rest = divmod(index, self.rate * _CYCLE_S)
        calm_s = _CYCLE_S - _BURST_S
        calm_rate = self.rate * _CYCLE_S / (calm_s + self.burst * _BURST_S)
        in_burst = max(0.0, rest - calm_rate * calm_s)
        passed_s = (rest - in_burst) / calm_rate + in_burst / (calm_rate * self.burst)
        return round(1_000 * (cycles * _CYCLE_S + passed_s))
