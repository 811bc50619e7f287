"""How the fields of a writer's schema become the declared ones, decided once for a schema.

A declared field takes what loses nothing: STRING a string or an enum; LONG an int, a long, and a timestamp in
milliseconds; DOUBLE these numbers, float and double; decimal an int, a long, and a decimal with no more digits before
and behind the point; a list an array of what its element takes. Each may be a union of that and null. A field that the
writer has not is null, unless it is required. Timestamps, dates, bytes and paths are told in ``core.readings``; of Avro
they take its logical types too, and bytes and fixed.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal
from typing import Any

from recount.codec.avro_schemas import AvroType
from recount.codec.unresolvable import Unresolvable
from recount.core.readings import Form, Reading, of_text
from recount.core.schema import BadRecord, FieldType, RecordSchema

Convert = Callable[[Any], Any]
"""Makes the declared value of a written one, which is not null; None where it cannot be."""
_MILLISECONDS = frozenset({"", "timestamp-millis", "local-timestamp-millis"})
_WHOLE = ("int", "long")
_PARTS_OF_A_MILLISECOND = {"timestamp-millis": 1, "timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_WIDE = Context(prec=400)


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
    """As a text; None for a day before the year 1 or after 9999."""
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
