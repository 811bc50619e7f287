"""Whether a text is a cron expression of five fields, in numbers."""

from __future__ import annotations

import re

_LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_PART = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/([1-9]\d?))?")


def is_cron(text: object) -> bool:
    """Minute, hour, day of the month, month, day of the week: ``*``, ``5``, ``1-5``, ``*/15``, or several with commas.

    >>> is_cron("30 2 * * 1-5"), is_cron("60 2 * * *"), is_cron("2 o'clock")
    (True, False, False)
    """
    if not isinstance(text, str) or len(fields := text.split(" ")) != len(_LIMITS):
        return False
    return all(
        _is_within(part, least, most)
        for field, (least, most) in zip(fields, _LIMITS, strict=True)
        for part in field.split(",")
    )


def _is_within(part: str, least: int, most: int) -> bool:
    found = _PART.fullmatch(part)
    if found is None:
        return False
    bounds = [int(number) for number in found.group(1, 2) if number is not None]
    return all(least <= number <= most for number in bounds) and bounds == sorted(bounds)
