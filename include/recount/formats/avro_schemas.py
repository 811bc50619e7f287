"""Avro schemas as trees, by the specification of Avro 1.11, and how a writer's fields become the declared ones.

Both are decided once for a schema. A declared field takes what loses nothing: STRING a string or an enum; LONG an int,
a long, and a timestamp in milliseconds; DOUBLE these numbers, float and double; decimal an int, a long, and a decimal
with no more digits before and behind the point; a list an array of what its element takes. Each may be a union of that
and null. A field that the writer has not is null, unless it is required. Timestamps, dates, bytes and paths follow
``recount.declare.values``; of Avro they take its logical types too, and bytes and fixed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Context, Decimal
from typing import Any

from recount.declare.schema import BadRecord, FieldType, RecordSchema
from recount.declare.values import Form, Reading, is_too_deep, of_text
from recount.runtime.errors import Unresolvable

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_COMPLEX = frozenset({"record", "error", "enum", "array", "map", "fixed"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_MOST_NESTED = 200
"""Objects and arrays of a schema's text that lie in one another; a record in a record takes three or four."""
Convert = Callable[[Any], Any]
"""Makes the declared value of a written one, which is not null; None where it cannot be."""
_MILLISECONDS = frozenset({"", "timestamp-millis", "local-timestamp-millis"})
_WHOLE = ("int", "long")
_PARTS_OF_A_MILLISECOND = {"timestamp-millis": 1, "timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_WIDE = Context(prec=400)


class NoAvroSchema(Exception):
    """A text that is no schema of Avro."""


@dataclass(eq=False)
class AvroType:
    """One type. ``of`` has the items of an array, the values of a map, the branches of a union, in order."""

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: dict[str, AvroType] = field(default_factory=dict)
    of: list[AvroType] = field(default_factory=list)

    def __str__(self) -> str:
        if self.kind == "union":
            return f"union of {', '.join(map(str, self.of))}"
        if self.kind == "array":
            return f"array of {self.of[0]}"
        if self.logical == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        return f"{self.kind} ({self.logical})" if self.logical else self.kind


def parsed_schema(text: str) -> AvroType:
    """The schema that ``text`` is; raises ``NoAvroSchema``."""
    if is_too_deep(text.encode(errors="replace"), _MOST_NESTED):
        raise NoAvroSchema(f"more than {_MOST_NESTED} objects and arrays lie in one another")
    try:
        return _Parsing({}).parsed(json.loads(text), "")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NoAvroSchema(f"{type(error).__name__}: {error}") from error


class _Parsing:
    def __init__(self, named: dict[str, AvroType]) -> None:
        self._named = named

    def parsed(self, found: Any, namespace: str) -> AvroType:
        if isinstance(found, list):
            return AvroType(kind="union", of=[self.parsed(one, namespace) for one in found])
        if isinstance(found, str):
            return AvroType(kind=found) if found in PRIMITIVES else self._by_name(found, namespace)
        kind = found["type"]
        if not isinstance(kind, str):
            return self.parsed(kind, namespace)
        if kind in PRIMITIVES:
            return _logical(AvroType(kind=kind), found)
        return self._complex(kind, found, namespace) if kind in _COMPLEX else self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        return self._named[full] if full in self._named else self._named[name]

    def _complex(self, kind: str, found: Mapping[str, Any], namespace: str) -> AvroType:
        made = AvroType(kind="record" if kind == "error" else kind)
        if kind in _NAMED:
            name = found["name"]
            space, _, last = name.rpartition(".") if "." in name else (found.get("namespace", namespace), "", name)
            namespace = space or ""
            self._named[f"{namespace}.{last}" if namespace else last] = made
        if kind in ("array", "map"):
            made.of.append(self.parsed(found["items" if kind == "array" else "values"], namespace))
        if kind == "enum":
            made.symbols = tuple(found["symbols"])
        if kind == "fixed":
            made.size = _whole(found["size"])
            _logical(made, found)
        for one in found["fields"] if made.kind == "record" else ():
            made.fields[one["name"]] = self.parsed(one["type"], namespace)
        return made


def _logical(made: AvroType, found: Mapping[str, Any]) -> AvroType:
    """A logical type that is not well-formed counts as none, as the specification wants."""
    logical = found.get("logicalType")
    if logical == "decimal":
        precision, scale = found.get("precision"), found.get("scale", 0)
        if made.kind in ("bytes", "fixed") and type(precision) is type(scale) is int and 0 <= scale <= precision:
            made.logical, made.precision, made.scale = "decimal", precision, scale
    elif isinstance(logical, str):
        made.logical = logical
    return made


def _whole(size: Any) -> int:
    if type(size) is not int or size < 0:
        raise ValueError(f"size {size}")
    return size


class Resolution:
    """Makes declared fields of records of one writer's schema; raises ``Unresolvable``."""

    def __init__(self, writer: AvroType, declared: RecordSchema) -> None:
        if writer.kind != "record":
            raise Unresolvable(f"it is no record but {writer}")
        self._declared = declared
        self._made: dict[str, tuple[tuple[str, ...], Convert]] = {}
        for name, kind in declared.fields.items():
            reading = declared.readings.get(name, Reading(kind=kind))
            path = declared.path_of(name)
            found = _found(name, writer, path)
            if found is not None:
                self._made[name] = path, _conversion(name, found, reading)
        missing = sorted(declared.required - self._made.keys())
        if missing:
            raise Unresolvable(f"it has no {', '.join(missing)}, which is declared as required")

    def fields_of(self, record: dict[str, Any]) -> dict[str, Any]:
        """The declared fields of a ``record``; raises ``BadRecord``."""
        found = dict.fromkeys(self._declared.fields)
        for name, (path, convert) in self._made.items():
            given: Any = record
            for step in path:
                given = None if given is None else given.get(step)
            if given is None:
                if name in self._declared.required:
                    raise BadRecord("schema", f"required field {name} is null")
                continue
            found[name] = convert(given)
            if found[name] is None:
                raise BadRecord("schema", f"field {name}: expected {self._declared.told(name)}, got {str(given)[:80]}")
        return found


def _found(name: str, writer: AvroType, path: tuple[str, ...]) -> AvroType | None:
    """The type at ``path``; None where a record has no such field. A map may have any key."""
    for step in path:
        writer = _without_null(writer)
        match writer.kind:
            case "record" if step in writer.fields:
                writer = writer.fields[step]
            case "record":
                return None
            case "map":
                writer = writer.of[0]
            case _:
                raise Unresolvable(f"field {name}: {step} cannot lie in {writer}")
    return writer


def _without_null(writer: AvroType) -> AvroType:
    branches = [one for one in writer.of if one.kind != "null"] if writer.kind == "union" else []
    return _without_null(branches[0]) if len(branches) == 1 else writer


def _conversion(name: str, writer: AvroType, reading: Reading) -> Convert:
    writer, declared = _without_null(writer), reading.kind
    if reading.form:
        return _formed(name, writer, reading.form)
    if declared.element is not None and writer.kind == "array":
        return _of_items(_conversion(name, writer.of[0], Reading(kind=declared.element)))
    is_whole = writer.kind in _WHOLE and writer.logical in _MILLISECONDS
    match declared.kind:
        case "string" if writer.kind in ("string", "enum"):
            return _itself
        case "boolean" if writer.kind == "boolean":
            return _itself
        case "long" if is_whole:
            return _itself
        case "double" if (writer.kind in _WHOLE and not writer.logical) or writer.kind in ("float", "double"):
            return _finite
        case "decimal" if writer.kind in _WHOLE and not writer.logical:
            return lambda given: _decimal(given, 0, declared)
        case "decimal" if writer.logical == "decimal" and _fits(writer, declared):
            return lambda given: _decimal(int.from_bytes(given, "big", signed=True), writer.scale, declared)
    raise Unresolvable(f"field {name} is {writer}, declared as {declared}")


def _formed(name: str, writer: AvroType, form: Form) -> Convert:
    match form, writer.kind, writer.logical:
        case _, "string", "" if form != "bytes":
            return lambda text: of_text(form, text)
        case "timestamp", "long", ("timestamp-millis" | "timestamp-micros" | "timestamp-nanos") as logical:
            parts = _PARTS_OF_A_MILLISECOND[logical]
            return lambda given: given // parts
        case "date", "int", "date":
            return _date
        case "bytes", "bytes" | "fixed", logical if logical != "decimal":
            return lambda given: base64.b64encode(given).decode()
    raise Unresolvable(f"field {name} is {writer}, declared as {form}")


def _date(days: int) -> str | None:
    """A date as a text; None for a day before the year 1 or after 9999."""
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError):
        return None


def _fits(writer: AvroType, declared: FieldType) -> bool:
    before = declared.precision - declared.scale
    return writer.scale <= declared.scale and writer.precision - writer.scale <= before


def _itself(given: Any) -> Any:
    return given


def _finite(given: float) -> float | None:
    return float(given) if math.isfinite(given) else None


def _decimal(unscaled: int, scale: int, declared: FieldType) -> Decimal | None:
    if abs(unscaled) >= 10 ** (declared.precision - declared.scale + scale):
        return None
    return Decimal(unscaled).scaleb(-scale, _WIDE)


def _of_items(convert: Convert) -> Convert:
    def converted(given: list[Any]) -> list[Any] | None:
        items = [None if item is None else convert(item) for item in given]
        return None if any(item is None for item in items) else items

    return converted
