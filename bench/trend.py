"""Whether something that was sampled over time grows: least squares over each half, and a judgement in a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Judgement = Literal["flat", "grows", "levels off", "falls"]

_FLAT_SHARE = 0.05
_WITHIN = 2.0
_LEAST = 4
_HOUR_S = 3_600.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """The least-squares line through one half of the samples: its mean, its slope, how far it rises over the half.

    ``scatter`` is the standard deviation of the samples around it.
    """

    mean: float
    per_hour: float
    rise: float
    scatter: float

    @classmethod
    def through(cls, seconds: Sequence[float], values: Sequence[float]) -> Line:
        """The line through ``values`` at ``seconds``."""
        per_s, start = np.polyfit(seconds, values, 1)
        away = np.asarray(values) - (per_s * np.asarray(seconds) + start)
        return cls(
            mean=float(np.mean(values)),
            per_hour=float(per_s * _HOUR_S),
            rise=float(per_s * (seconds[-1] - seconds[0])),
            scatter=float(np.std(away)),
        )


@dataclass(frozen=True, kw_only=True)
class Trend:
    """The first half of the samples, in which a process grows warm, and the second, which is judged.

    Flat: over the second half the line rises or falls by less than a twentieth of its mean, or by less than twice the
    scatter of the samples around it; or it rises, but not to a twentieth above the mean of the first half, for the
    machine's pace comes and goes. What rises more than that grows; it levels off when it rises at less than half the
    slope of the first half.
    """

    first: Line
    second: Line

    @classmethod
    def of(cls, seconds: Sequence[float], values: Sequence[float]) -> Trend | None:
        """The trend of ``values`` sampled at ``seconds``; None where there are fewer than four a half."""
        middle = len(seconds) // 2
        if middle < _LEAST:
            return None
        return cls(
            first=Line.through(seconds[:middle], values[:middle]),
            second=Line.through(seconds[middle:], values[middle:]),
        )

    @property
    def judgement(self) -> Judgement:
        """In a word."""
        if abs(self.second.rise) <= max(_FLAT_SHARE * abs(self.second.mean), _WITHIN * self.second.scatter):
            return "flat"
        if self.second.rise < 0:
            return "falls"
        if self.second.mean + self.second.rise / 2 <= (1 + _FLAT_SHARE) * self.first.mean:
            return "flat"
        return "levels off" if self.second.per_hour < self.first.per_hour / 2 else "grows"
