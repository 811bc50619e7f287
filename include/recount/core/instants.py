"""Times as people read and write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from recount.core.errors import Terminal

A_TIME = "a time in ISO 8601, UTC unless it has an offset, or milliseconds since the epoch"
_MILLISECONDS = re.compile(r"(?![0-9]{8}$)-?[0-9]{1,18}")
"""Eight digits are a date, 20261121. ``fromisoformat`` takes longer numbers for dates as well."""


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
        raise NoTime(
            "no time", given=text[:100], expected=A_TIME, remedy="write 2026-11-21T01:00:00Z; in a URL a + is %2B"
        ) from error
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def told_time(at_ms: int) -> str:
    """``at_ms`` as date and time of day, UTC.

    As the number where no calendar has it: whoever can write to a topic of results can name any window.

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
