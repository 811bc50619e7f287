"""Timestamps, dates, bytes and paths as docs/own_streams.md tells them, by arithmetic of the recompute's own."""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Sequence
from typing import Any

_DAY = r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
_DAYS = re.compile(_DAY, re.ASCII)
_MOMENTS = re.compile(
    _DAY
    + r"T(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<part>\d{1,9}))?"
    + r"(?:Z|(?P<zone>[+-])(?P<hours>\d\d):(?P<minutes>\d\d))",
    re.ASCII,
)
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS_TO_1970 = 719_162
"""From the first of January of the year 1."""


class Amiss(Exception):
    """A path leads into a value that holds no others."""


def found_at(path: Sequence[str], value: Any) -> Any:
    """What lies at ``path`` in a ``value`` of dictionaries; None where a part of it is null or missing."""
    for name in path:
        if value is None:
            break
        if not isinstance(value, dict):
            raise Amiss(f"{name} in {str(value)[:80]}")
        value = value.get(name)
    return value


def told_as(form: str, text: str) -> int | str | None:
    """What rows have of a ``text``; None where it is not of ``form``."""
    if form == "timestamp":
        return _moment(text)
    if form == "date":
        found = _DAYS.fullmatch(text)
        return text if found and _day_number(found) is not None else None
    try:
        return text if base64_of(a2b_base64(text.encode("ascii"), strict_mode=True)) == text else None
    except (Error, UnicodeEncodeError):
        return None


def base64_of(given: bytes) -> str:
    """``given`` as rows have it."""
    return str(b64encode(given), "ascii")


def day_text(since_1970: int) -> str | None:
    """The text of a day; None for one before the year 1 or after the year 9999."""
    number = since_1970 + _DAYS_TO_1970
    if number < 0:
        return None
    # 400 years have 146,097 days; the last day of a cycle of 400, 100 or 4 years belongs to its last year
    cycles, rest = divmod(number, 146_097)
    centuries = min(rest // 36_524, 3)
    rest -= centuries * 36_524
    fours, rest = divmod(rest, 1_461)
    years = min(rest // 365, 3)
    rest -= years * 365
    year = 400 * cycles + 100 * centuries + 4 * fours + years + 1
    month = 1
    while rest >= _length(year, month):
        rest -= _length(year, month)
        month += 1
    return text_of_day(year, month, rest + 1)


def text_of_day(year: int, month: int, day: int) -> str | None:
    """The text of a day; None for one that no calendar has from the year 1 to 9999."""
    if not _is_day(year, month, day) or year > 9999:
        return None
    return f"{year:04}-{month:02}-{day:02}"


def _is_leap(year: int) -> bool:
    return year % 400 == 0 or (year % 4 == 0 and year % 100 != 0)


def _length(year: int, month: int) -> int:
    return _LENGTHS[month - 1] + (month == 2 and _is_leap(year))


def _is_day(year: int, month: int, day: int) -> bool:
    return year >= 1 and 1 <= month <= 12 and 1 <= day <= _length(year, month)


def _day_number(found: re.Match[str]) -> int | None:
    """Days since 1970; None for a day that no calendar has."""
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    if not _is_day(year, month, day):
        return None
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    return days + sum(_length(year, one) for one in range(1, month)) + day - 1 - _DAYS_TO_1970


def _moment(text: str) -> int | None:
    found = _MOMENTS.fullmatch(text)
    days = _day_number(found) if found else None
    if found is None or days is None:
        return None
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"])
    east = 60 * int(found["hours"] or 0) + int(found["minutes"] or 0)
    if hour > 23 or minute > 59 or second > 59 or int(found["hours"] or 0) > 23 or int(found["minutes"] or 0) > 59:
        return None
    minutes = 1440 * days + 60 * hour + minute - (-east if found["zone"] == "-" else east)
    return 60_000 * minutes + 1000 * second + int(f"{found['part'] or '':0<9}"[:3])
