"""Declared readings of fields (moments, dates, bytes, parts of values, headers, keys), and the limit of nesting.

The rules, the same for JSON and Avro as far as the texts go:

* A *timestamp* is a text of RFC 3339 with its offset, ``2026-01-31T12:00:00.5Z`` or ``...+01:00``, with up to nine
  digits of a second; rows have a LONG, the milliseconds since the epoch, and what is finer is cut off (0.9999 s is
  999 ms).
* A *date* is a day of the calendar, ``2026-01-31``; rows have that text.
* *Bytes* are text in base64 with its padding (RFC 4648); rows have that text.
* A *path* leads through records and maps to a value; it is null where one of them is null or has no such name.
* A *header* is the last one of that name, a text in UTF-8 or, declared as bytes, any bytes; a record without it has
  null, and so has one whose value is null.
* A part of the *key* is the value at its path there; the path of the key itself is ``WHOLE``.
* A value nested deeper than ``MOST_NESTED`` is a bad record in every implementation: parsers stop at other depths.

>>> is_too_deep(b"[" * MOST_NESTED + b"]" * MOST_NESTED)
False
>>> is_too_deep(b"[" * (MOST_NESTED + 1) + b"]" * (MOST_NESTED + 1))
True
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from recount.declare.schema import FieldType


MOST_NESTED = 500
"""Objects and arrays that lie in one another; each takes two bytes."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
Form = Literal["timestamp", "date", "bytes"]
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOURS, _MINUTES = 23, 59
"""The farthest offset of a zone."""
WHOLE = ("",)


def is_too_deep(value: bytes, most: int = MOST_NESTED) -> bool:
    """Whether more than ``most`` objects and arrays of ``value`` lie in one another; its texts do not count."""
    if len(value) <= 2 * most or value.count(b"[") + value.count(b"{") <= most:
        return False
    depth = 0
    for found in _TOKEN.finditer(value):
        match found[0]:
            case b"[" | b"{":
                depth += 1
                if depth > most:
                    return True
            case b"]" | b"}":
                depth -= 1
    return False


def has_too_deep(values: Sequence[bytes]) -> bool:
    """Whether one of ``values`` is."""
    return max(map(len, values), default=0) > 2 * MOST_NESTED and any(map(is_too_deep, values))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A field that rows have as ``kind``, made of a ``form``, at a ``path`` in the value; () is the field itself.

    With ``header`` it is no part of the value but the header of that name; with ``is_of_key`` the path is in the key.
    """

    kind: FieldType
    form: Form | None = None
    path: tuple[str, ...] = ()
    header: str | None = None
    is_of_key: bool = False

    @property
    def is_of_value(self) -> bool:
        """Whether it is a part of the value."""
        return self.header is None and not self.is_of_key

    def __str__(self) -> str:
        said = self.form or str(self.kind)
        if self.header is not None:
            return f"{said} of the header {self.header!r}"
        place = f" at {'/'.join(map(repr, self.path))}" if self.path and self.path != WHOLE else ""
        return f"{said}{place}{' of the key' * self.is_of_key}"


def of_text(form: Form, text: str) -> int | str | None:
    """Return ``text`` as rows have it; None where it has not this form."""
    match form:
        case "timestamp":
            return milliseconds(text)
        case "date":
            return text if _is_date(text) else None
        case "bytes":
            return text if _is_base64(text) else None


def of_header(form: Form | None, given: bytes) -> int | str | None:
    """Return the value of a header as rows have it; None where it has not this form.

    >>> of_header(None, b"abc"), of_header("bytes", b"abc"), of_header(None, bytes([255]))
    ('abc', 'YWJj', None)
    """
    if form == "bytes":
        return base64.b64encode(given).decode()
    try:
        text = given.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return of_text(form, text) if form else text


def milliseconds(text: str) -> int | None:
    """The milliseconds since the epoch of a moment; None where ``text`` is none.

    >>> [milliseconds(text) for text in ("1970-01-01T00:00:01.5Z", "1970-01-01T01:00:00+01:00", "1970-01-01")]
    [1500, 0, None]
    """
    found = _MOMENT.fullmatch(text)
    if not found:
        return None
    clock, fraction, sign, hours, minutes = found.groups()
    try:
        moment = datetime.fromisoformat(clock + "+00:00")
    except ValueError:
        return None
    ahead = timedelta()
    if sign:
        if int(hours) > _HOURS or int(minutes) > _MINUTES:
            return None
        ahead = timedelta(hours=int(hours), minutes=int(minutes)) * (1 if sign == "+" else -1)
    second = (moment - _EPOCH - ahead) // timedelta(seconds=1)
    return second * 1000 + int((fraction or "").ljust(3, "0")[:3])


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_base64(text: str) -> bool:
    """Only as an encoder writes it: bits behind the last byte are zero."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)) == text.encode()
    except (binascii.Error, ValueError):
        return False
