"""Differences between two texts of a row, field by field, as people read them: ``orders 5 → 6``.

The texts are those of differences and grace misses: JSON of a row, with or without its time around it, ``deleted``, or
None where there is no row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recount.declare.columns import RESULT_TIME
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.runtime.times import roughly, told_time

NO_ROW = "no row"
_TIME, _ROW, _DELETED = "timestamp_ms", "row", "deleted"
_TIMES = {WINDOW_START, WINDOW_END, RESULT_TIME, _TIME}
_NAMES = {RESULT_TIME: "time", _TIME: "time"}
_MILLISECONDS = re.compile(r"(?<![\w.])(-?\d+) ms\b")
_FIRST_TIME_MS = 10**11
_MARGIN = re.compile(r"(.*) \+(\d+) ms")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A field, and what both rows have there; None: nothing."""

    name: str
    old: str | None
    new: str | None


def changes(old: str | None, new: str | None) -> Sequence[Change] | None:
    """The fields that differ between ``old`` and ``new``; None where one of them is the text of no row.

    >>> changes('{"n":1,"at":5}', '{"n":2,"at":5}')
    [Change(name='n', old='1', new='2')]
    """
    before, after = _fields(old), _fields(new)
    if before is None or after is None:
        return None
    names = dict.fromkeys([*before, *after])
    return [
        Change(name=_NAMES.get(name, name), old=before.get(name), new=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def change_in_words(old: str | None, new: str | None) -> str:
    """The fields that differ, each with both values; ``no row`` in place of a row that is not there."""
    found = changes(old, new)
    if not found:
        return f"{old or NO_ROW} → {new or NO_ROW}"
    if _is_none(old):
        return f"{NO_ROW} → {_listed(found, old=False)}"
    if _is_none(new):
        return f"{_listed(found, old=True)} → {NO_ROW}"
    return ", ".join(f"{one.name} {_or_none(one.old)} → {_or_none(one.new)}" for one in found)


def sides_in_words(expected: str | None, actual: str | None) -> tuple[str | None, str | None]:
    """The fields that differ as either side has them; the texts themselves where these are no rows or none differs."""
    found = changes(expected, actual)
    if found is None:
        return times_in_words(expected), times_in_words(actual)
    if not found:
        return expected, actual
    return (
        expected if _is_none(expected) else _listed(found, old=True),
        actual if _is_none(actual) else _listed(found, old=False),
    )


def times_in_words(text: str | None) -> str | None:
    """``text`` with what it says in milliseconds as times; less than three years are a duration.

    >>> times_in_words("last read at 1363564800000 ms"), times_in_words("idle after 269663 ms")
    ('last read at 2013-03-18 00:00:00', 'idle after 4 min 29 s')
    """
    return text and _MILLISECONDS.sub(lambda found: _time_or_duration(int(found[1])), text)


def _time_or_duration(ms: int) -> str:
    return told_time(ms) if abs(ms) >= _FIRST_TIME_MS else roughly(ms)


def late_in_words(place: str) -> str:
    """A late record as a grace miss names it, the margin in words: ``orders-0@7 +3 min``."""
    found = _MARGIN.fullmatch(place)
    return f"{found[1]} +{roughly(int(found[2]))}" if found else place


def _is_none(text: str | None) -> bool:
    return text is None or text == _DELETED


def _listed(found: Sequence[Change], *, old: bool) -> str:
    values = [(one.name, one.old if old else one.new) for one in found]
    return ", ".join(f"{name} {value}" for name, value in values if value is not None) or "nothing"


def _or_none(value: str | None) -> str:
    return "none" if value is None else value


def _fields(text: str | None) -> Mapping[str, str] | None:
    """The fields of the row that are not null, as text; none of no row; None where it is another text."""
    if text is None or text == _DELETED:
        return {}
    try:
        document = json.loads(text, parse_float=str)
    except ValueError:
        return None
    if not isinstance(document, Mapping):
        return None
    row = document.get(_ROW)
    if isinstance(row, Mapping) and document.keys() <= {_ROW, _TIME}:
        document = {**row, **({_TIME: document[_TIME]} if _TIME in document else {})}
    return {name: _text(name, value) for name, value in document.items() if value is not None}


def _text(name: str, value: object) -> str:
    if name in _TIMES and type(value) is int:
        return told_time(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
