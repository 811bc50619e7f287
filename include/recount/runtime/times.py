"""Durations, times and amounts, read from and written as text for people."""

import re
import time
from datetime import UTC, datetime, timedelta

from recount.runtime.errors import InvalidDeclaration, Terminal

Duration = str | timedelta
_UNIT_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONG_NAMES = {"second": "s", "minute": "min", "hour": "h", "day": "d"}
_PATTERN = re.compile(rf"(\d+)\s*(?:({'|'.join(_UNIT_MS)})|({'|'.join(_LONG_NAMES)})s?)")
_LONGEST_MS = 10_000_000 * _UNIT_MS["d"]
"""Some 27,000 years: a time and several durations are together within 64 bits."""
_ALL_UNITS_MS = sorted(_UNIT_MS.items(), key=lambda unit: -unit[1])
A_TIME = "a time in ISO 8601, UTC unless it has an offset, or milliseconds since the epoch"
_MILLISECONDS = re.compile(r"(?![0-9]{8}$)-?[0-9]{1,18}")
"""Eight digits are a date, 20261121. ``fromisoformat`` takes longer numbers for dates as well."""


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
    raise InvalidDeclaration.of("no-duration", given=duration, field=field, most=readable(_LONGEST_MS))


def _milliseconds(duration: object) -> int | None:
    """Milliseconds of ``duration``; None where it has a part of one, or is no duration."""
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


class NoTime(Terminal):
    """A text that is no time."""


def instant_ms(text: str) -> int:
    """The time that ``text`` names, in milliseconds since the epoch; raises ``NoTime``.

    >>> instant_ms("2026-11-21T01:00:00Z"), instant_ms("2026-11-21T02:00:00+01:00"), instant_ms("1500")
    (1795222800000, 1795222800000, 1500)
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise NoTime.of("no-time", given=text[:100], expected=A_TIME) from error
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def clock_ms() -> int:
    """The time of this machine's clock."""
    return time.time_ns() // 1_000_000


def told_time(at_ms: int) -> str:
    """``at_ms`` as date and time of day, UTC.

    As the number where no calendar has it: a writer to a topic of results can name any window.

    >>> told_time(1_500), told_time(2**63 - 1)
    ('1970-01-01 00:00:01.500', '9,223,372,036,854,775,807 ms')
    """
    try:
        told = datetime.fromtimestamp(at_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return f"{told}.{at_ms % 1_000:03}" if at_ms % 1_000 else told
    except (ValueError, OverflowError, OSError):
        return f"{at_ms:,} ms"


def told_window(start_ms: int | None, end_ms: int | None) -> str:
    """A window from its start to its end, UTC, no longer than it has to be; ``none`` for a bound that is missing.

    >>> told_window(0, 86_400_000), told_window(0, 300_000), told_window(86_100_000, 86_700_000)
    ('1970-01-01 to 1970-01-02', '1970-01-01 00:00 to 00:05', '1970-01-01 23:55 to 1970-01-02 00:05')
    """
    first, last = ("none" if at_ms is None else told_time(at_ms) for at_ms in (start_ms, end_ms))
    for rest in (" 00:00:00", ":00"):
        if first.endswith(rest) and last.endswith(rest):
            first, last = first.removesuffix(rest), last.removesuffix(rest)
            break
    date, _, time = last.partition(" ")
    return f"{first} to {time if time and first.startswith(f'{date} ') else last}"


def quantity(number: int, one: str, many: str | None = None) -> str:
    """``number`` with its noun, ``one`` where it is 1, else ``many``; without ``many``, an s is added.

    >>> quantity(1, "record"), quantity(1200, "record"), quantity(0, "miss", "misses"), quantity(2, "late record")
    ('1 record', '1,200 records', '0 misses', '2 late records')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
