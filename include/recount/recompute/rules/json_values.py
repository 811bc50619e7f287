"""What a record's JSON value may hold: "Values" of docs/semantics.md, told of one value at a time.

Nothing is coerced; a LONG and a decimal are read by their digits, a DOUBLE as Python reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Context, Decimal, InvalidOperation
from itertools import accumulate
from typing import Any

from recount.core.schema import FieldType, RecordSchema
from recount.recompute.rules.readings import Amiss, found_at, told_as

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""A number as JSON writes it."""
DOUBLE_DIGITS = 15
MOST_NESTED = 500
"""Objects and arrays that may lie in one another."""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""A text, also one that does not end: to look for its end again and again would take for ever."""
_WIDE = Context(prec=400)
_ZERO = Decimal(0)
_LONGS = range(-(2**63), 2**63)
_FLAGS = {"true": True, "false": False}


class Bad(Exception):
    """A value that is none, with ``reason`` and ``detail``.

    Of half a character, which no text in UTF-8 can hold, the detail has the number.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, str(detail.encode("utf-8", "backslashreplace"), "utf-8")
        super().__init__(self.reason, self.detail)


class Written(str):
    """A number of a JSON text, not yet read."""

    __slots__ = ()


def refused(name: str) -> None:
    """For a word that Python reads and JSON has not, as ``NaN``."""
    raise ValueError(f"{name} is no JSON")


def fields_of(value: bytes, schema: RecordSchema) -> dict[str, Any]:
    """Every declared field of ``value``, null where it has none; raises ``Bad``."""
    if nests_too_deep(value):
        raise Bad("undecodable", f"more than {MOST_NESTED} objects and arrays lie in one another")
    try:
        document = json.loads(str(value, "utf-8"), parse_float=Written, parse_int=Written, parse_constant=refused)
    except (ValueError, RecursionError) as error:
        raise Bad("undecodable", f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise Bad("schema", "the value is no JSON object")
    return dict(_typed_fields(document, schema))


def nests_too_deep(value: bytes, most: int = MOST_NESTED) -> bool:
    """Whether more than ``most`` of them do; what stands in texts does not count."""
    if value.count(b"{") + value.count(b"[") <= most:
        return False
    brackets = re.sub(rb"[^][{}]+", b"", _TEXT.sub(b"", value))
    return max(accumulate(1 if one in b"[{" else -1 for one in brackets), default=0) > most


def _typed_fields(document: dict[str, Any], schema: RecordSchema) -> Iterator[tuple[str, Any]]:
    for name in schema.fields:
        try:
            given = found_at(path_of(name, schema), document)
        except Amiss as fault:
            raise Bad("schema", f"field {name}: {fault}") from fault
        made = None if given is None else _as_declared(given, name, schema)
        if made is None and (given is not None or name in schema.required):
            told = said_of(name, schema)
            raise Bad("schema", f"field {name} is no {told}: {str(given)[:80]}" if given is not None else f"no {name}")
        yield name, made


def path_of(name: str, schema: RecordSchema) -> tuple[str, ...]:
    """Where the field ``name`` lies in a value."""
    return (name,) if name not in schema.readings else schema.readings[name].path or (name,)


def said_of(name: str, schema: RecordSchema) -> str:
    """As what the field ``name`` is declared."""
    return str(schema.readings.get(name, schema.fields[name]))


def _as_declared(given: Any, name: str, schema: RecordSchema) -> Any:
    form = schema.readings[name].form if name in schema.readings else None
    if form is None:
        return typed(given, schema.fields[name])
    return told_as(form, given) if isinstance(given, str) and not isinstance(given, Written) else None


def typed(given: Any, kind: FieldType) -> Any:
    """``given`` as ``kind`` holds it; None where it cannot be."""
    if kind.element is not None:
        items = [typed(item, kind.element) for item in given] if isinstance(given, list) else [None]
        return None if any(item is None for item in items) else items
    match kind.kind, given:
        case "decimal", str() if NUMBER.fullmatch(given):
            return exact(given, kind)
        case "long", Written():
            return _whole(given)
        case "double", Written():
            number = float(given)
            return number if math.isfinite(number) else None
        case "boolean", bool():
            return given
        case "string", str() if not isinstance(given, Written):
            return given if given.isascii() or not re.search("[\ud800-\udfff]", given) else None
    return None


def exact(written: str, kind: FieldType) -> Decimal | None:
    """The number ``written``, if it has no more decimal places and digits than ``kind``; zeros behind do not count.

    A double tells decimals of up to 15 digits apart. So of these one may also be written as the double that stands for
    it: ``0.29999999999999999`` is 0.3.
    """
    try:
        number = Decimal(written)
    except InvalidOperation:  # an exponent beyond every Decimal, but maybe one of a number that no double tells from 0
        return _ZERO if kind.precision <= DOUBLE_DIGITS and float(written) == 0 else None
    try:
        made = number.quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
    except InvalidOperation:
        return None
    is_same = made == number or (kind.precision <= DOUBLE_DIGITS and float(made) == float(written))
    return made if is_same and made.copy_abs() < 10 ** (kind.precision - kind.scale) else None


def _whole(written: str) -> int | None:
    if not written.lstrip("-").isdigit() or len(written) > len(str(_LONGS[0])):
        return None
    number = int(written)
    return number if number in _LONGS else None


def scalar_of(value: bytes, kind: FieldType) -> Any:
    """The bytes of ``value`` as ``kind`` holds them; raises ``Bad``."""
    if kind.kind == "string":
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError as error:
            raise Bad("undecodable", f"no UTF-8: {error}") from error
    text = str(value, "ascii", "backslashreplace")
    if kind.kind == "boolean":
        made: Any = _FLAGS.get(text)
    else:
        made = typed(Written(text), kind) if NUMBER.fullmatch(text) else None
    if made is None:
        raise Bad("schema", f"the value is no {kind}: {text[:80]}")
    return made
