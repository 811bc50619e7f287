"""Whether a published JSON value is one that a stream writes: Spark's reader takes more, and rounds what it takes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from recount.core.nodes import KEY
from recount.core.output import encode_value
from recount.core.schema import FieldType


def is_written_so(value: Column, fields: Mapping[str, FieldType]) -> Column:
    """Whether the bytes ``value`` are the encoding of a row of ``fields``, see ``is_encoded``; null for a null."""
    asked = F.udf(lambda one: None if one is None else is_encoded(bytes(one), fields), "boolean")
    return asked(value)


def is_encoded(value: bytes, fields: Mapping[str, FieldType]) -> bool:
    """Whether ``value`` is what ``encode_value`` makes of a row of ``fields``, of which some may be missing.

    They are missing from what was written before they were declared.
    """
    try:
        row = {name: one for name, one in typed_row(_read(value), fields).items() if name != KEY}
    except (ValueError, KeyError, AttributeError, RecursionError, InvalidOperation, OverflowError):
        return False
    return encode_value({name: row[name] for name in fields if name in row}) == value


def kept_rows(text: str, fields: Mapping[str, FieldType]) -> list[tuple[dict[str, Any] | None, int]]:
    """The rows, each with its time, of which an audit has kept ``text``, see ``kept_for_backfills``."""
    said = _read(text)
    return [(one["row"] and typed_row(one["row"], fields), int(one["at_ms"])) for one in said]


def typed_row(said: Any, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """The members of a JSON object as ``fields`` hold them; ``ValueError`` or ``KeyError`` for what they do not."""
    return {name: _typed(one, fields[name]) for name, one in said.items()}


def _read(text: str | bytes) -> Any:
    return json.loads(text, parse_float=_Number, parse_int=_Number)


def plain_decimals(text: Column, fields: Mapping[str, FieldType]) -> Column:
    """The JSON ``text`` that Spark has made of rows of ``fields``, decimals without exponents: it writes 4E-8."""
    names = frozenset(name for name, kind in fields.items() if _least_places(kind) > _PLACES_WITHOUT_EXPONENT)
    if not names:
        return text
    return F.udf(lambda one: None if one is None else with_plain_decimals(one, names), "string")(text)


def with_plain_decimals(text: str, names: Collection[str]) -> str:
    """The JSON ``text``, numbers of the members ``names`` without exponents.

    >>> with_plain_decimals('[{"e":4E-8,"x":1.0E-8,"s":"\\"e\\":4E-8"}]', {"e"})
    '[{"e":0.00000004,"x":1.0E-8,"s":"\\"e\\":4E-8"}]'
    """
    member = ""

    def plain(found: re.Match[str]) -> str:
        nonlocal member
        token = found[0]
        if token.startswith('"'):
            member = json.loads(token)  # of two texts that follow each other the second is a value: a name comes next
            return token
        return format(Decimal(token), "f") if member in names else token

    return _TOKEN.sub(plain, text)


def _least_places(kind: FieldType) -> int:
    return kind.scale if kind.element is None else _least_places(kind.element)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9.]+[eE][+-]?[0-9]+')
_PLACES_WITHOUT_EXPONENT = 6
"""Java and Python write a decimal without exponent that is not below 0.000001."""


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _typed(said: Any, kind: FieldType) -> Any:
    """``said`` as ``kind`` holds it; what it does not hold as it is raises ``ValueError`` or is encoded otherwise."""
    if said is None:
        return None
    if kind.element is not None:
        return [_typed(one, kind.element) for one in _of(list, said)]
    match kind.kind:
        case "string" if not isinstance(said, _Number):
            return _of(str, said)
        case "boolean":
            return _of(bool, said)
        case "long":
            return int(_of(_Number, said))
        case "double":
            return float(said if isinstance(said, float) else _of(_Number, said))
        case "decimal":
            made = Decimal(_of(_Number, said))
            if made.as_tuple().exponent == -kind.scale:
                return made
    raise ValueError(said)


def _of(expected: type, said: Any) -> Any:
    if not isinstance(said, expected):
        raise ValueError(said)
    return said
