"""Rules for a record's values: JSON, headers, keys, timestamps, dates, bytes and paths, one value at a time.

Sources: "Values" of docs/semantics.md; "Headers" and "Keys with fields" of docs/own_streams.md. Nothing is coerced; a
LONG and a decimal are read by their digits, a DOUBLE as Python reads it. Times and bytes are computed by the
recompute's own arithmetic.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal, InvalidOperation
from itertools import accumulate
from typing import Any

from recount.declare.operators.nodes import Source
from recount.declare.schema import FieldType, RecordSchema

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


class Amiss(Exception):
    """A path leads into a value that holds no others."""


def found_at(path: Sequence[str], value: Any) -> Any:
    """The value at ``path`` in a ``value`` of dictionaries; None where a part of it is null or missing."""
    for name in path:
        if value is None:
            break
        if not isinstance(value, dict):
            raise Amiss(f"{name} in {str(value)[:80]}")
        value = value.get(name)
    return value


def told_as(form: str, text: str) -> int | str | None:
    """The value of a ``text`` in rows; None where it is not of ``form``."""
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
    """The path of the field ``name`` in a value."""
    return (name,) if name not in schema.readings else schema.readings[name].path or (name,)


def said_of(name: str, schema: RecordSchema) -> str:
    """The declaration of the field ``name``, as a text."""
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


def headers_named(schema: RecordSchema) -> dict[str, str]:
    """The fields that are no part of the value, each with the name of its header."""
    return {name: one.header for name, one in schema.readings.items() if one.header is not None}


def header_fields(headers: Iterable[Mapping[str, Any]], schema: RecordSchema) -> dict[str, Any]:
    """These fields of a record with ``headers``, of which the last one of a name counts; raises ``Bad``."""
    found: dict[str, Any] = {}
    held = {one["key"]: one["value"] for one in headers}
    for name, header in headers_named(schema).items():
        value = held.get(header)
        found[name] = None if value is None else _read(value, schema.readings[name].form)
        if found[name] is None and value is not None:
            raise Bad("schema", f"header {header} is no {said_of(name, schema)}: {value[:80]!r}")
        if found[name] is None and name in schema.required:
            raise Bad("schema", f"no header {header}")
    return found


def _read(value: bytes, form: str | None) -> Any:
    if form == "bytes":
        return base64_of(value)
    try:
        text = str(value, "utf-8")
    except UnicodeDecodeError:
        return None
    return text if form is None else told_as(form, text)


def keys_named(schema: RecordSchema) -> list[str]:
    """The fields that lie in the key, in order."""
    return [name for name in schema.fields if name in schema.readings and schema.readings[name].is_of_key]


def as_values(schema: RecordSchema) -> RecordSchema:
    """These fields as if the key were a value; there must be some."""
    names = keys_named(schema)
    readings = {name: replace(schema.readings[name], is_of_key=False) for name in names}
    fields = {name: schema.fields[name] for name in names}
    return RecordSchema(fields=fields, required=schema.required & fields.keys(), readings=readings)


def within_one_field(schema: RecordSchema) -> RecordSchema:
    """The fields of ``as_values`` in a record whose one field, ``whole``, is the whole key."""
    moved = {
        name: replace(one, path=("whole",) if one.path == ("",) else ("whole", *one.path))
        for name, one in schema.readings.items()
    }
    return replace(schema, readings=moved)


def within_one_field_of(text: str) -> str:
    """The Avro schema of that record, where ``text`` is the key's; what is no JSON stays so, or nests too deep."""
    try:
        key = json.loads(text)
        return json.dumps({"type": "record", "name": "recount_whole", "fields": [{"name": "whole", "type": key}]})
    except (ValueError, RecursionError):
        return text


def text_of(fields: Mapping[str, str | int | None]) -> str | None:
    """The key of rows: the one field as text, several as a JSON object in their order, none where all are null."""
    given = list(fields.values())
    if given.count(None) == len(given):
        return None
    if len(given) == 1:
        return str(given[0])
    members = (f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    return "{" + ",".join(members) + "}"


def has_key_fields(source: Source) -> bool:
    """Whether fields of ``source`` lie in the keys of its records."""
    return isinstance(source.topic.value, RecordSchema) and bool(keys_named(source.topic.value))
