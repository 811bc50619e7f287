"""Durations as people write them: ``"5 min"``, ``"60 s"``, ``"500 ms"`` or a ``timedelta``."""

from __future__ import annotations

import re
from datetime import timedelta

from recount.core.errors import InvalidDeclaration

Duration = str | timedelta

_UNIT_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONG_NAMES = {"second": "s", "minute": "min", "hour": "h", "day": "d"}
_PATTERN = re.compile(rf"(\d+)\s*(?:({'|'.join(_UNIT_MS)})|({'|'.join(_LONG_NAMES)})s?)")
_LONGEST_MS = 10_000_000 * _UNIT_MS["d"]
"""Some 27,000 years: a time and several durations are together within 64 bits."""
_ALL_UNITS_MS = sorted(_UNIT_MS.items(), key=lambda unit: -unit[1])


def milliseconds(duration: Duration, field: str = "duration") -> int:
    """Whole milliseconds of ``duration``; ``field`` names it in the error.

    >>> milliseconds("5 min"), milliseconds("1 day"), milliseconds("30 minutes")
    (300000, 86400000, 1800000)

    Raises ``InvalidDeclaration`` for a negative duration, an unknown unit, a part of a millisecond, or what is longer
    than any log.
    """
    made = _milliseconds(duration)
    if made is not None and 0 <= made <= _LONGEST_MS:
        return made
    raise InvalidDeclaration(
        field,
        given=duration,
        expected="a timedelta or a text like '5 min', in ms, s, min, h or d (or second, minute, hour, day), not"
        f" negative, in whole milliseconds, and at most {readable(_LONGEST_MS)}",
        remedy=f"write {field}='60 s' or {field}=timedelta(seconds=60)",
    )


def _milliseconds(duration: object) -> int | None:
    """Those of ``duration``; None where it has a part of one, or is no duration."""
    if isinstance(duration, timedelta):
        whole, rest = divmod(duration, timedelta(milliseconds=1))
        return None if rest else whole
    match = _PATTERN.fullmatch(duration.strip()) if isinstance(duration, str) else None
    return int(match[1]) * _UNIT_MS[match[2] or _LONG_NAMES[match[3]]] if match else None


def readable(duration_ms: int) -> str:
    """The shortest exact text of ``duration_ms``: ``300000`` is ``5 min``, ``1500`` is ``1500 ms``."""
    for name, unit_ms in _ALL_UNITS_MS:
        if duration_ms >= unit_ms and duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms} {name}"
    return f"{duration_ms} ms"


def roughly(length_ms: float) -> str:
    """A measured ``length_ms`` in its two largest units; ``readable`` is for what is declared, which has to be exact.

    >>> roughly(269_663), roughly(1_530), roughly(850), roughly(-61_000), roughly(90_061_000)
    ('4 min 29 s', '1.5 s', '850 ms', '-1 min 1 s', '1 d 1 h')
    """
    length = abs(length_ms)
    if length < 10_000:
        text = f"{length:.0f} ms" if length < 1_000 else f"{length / 1_000:.1f} s".replace(".0", "")
    else:
        parts, rest_ms = [], int(length)
        for name, unit_ms in _ALL_UNITS_MS[:-1]:
            number, rest_ms = divmod(rest_ms, unit_ms)
            parts += [f"{number:,} {name}"] if number else []
        text = " ".join(parts[:2])
    return f"-{text}" if length_ms < 0 else text
