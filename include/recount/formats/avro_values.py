"""Values of Avro by fastavro, and how a writer's fields become the declared ones.

Both are decided once for a schema. A declared field takes what loses nothing: STRING a string or an enum; LONG an int,
a long, and a timestamp in milliseconds; DOUBLE these numbers, float and double; decimal an int, a long, and a decimal
with no more digits before and behind the point; a list an array of what its element takes. Each may be a union of that
and null. A field that the writer has not is null, unless it is required. Timestamps, dates, bytes and paths follow
``recount.declare.values``; of Avro they take its logical types too, and bytes and fixed.

fastavro reads values as they are written, without logical types: it would round a decimal that has too many digits.
"""

import base64
import json
import math
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

from recount.declare.schema import BadRecord, FieldType, RecordSchema
from recount.declare.values import Form, Reading, is_too_deep, of_text
from recount.runtime.errors import Unresolvable
from recount.runtime.installation import require_extra

DEEPEST = 100
"""Records, arrays and maps of a value that may lie in one another, where the schema has no end."""
_MOST_NESTED = 200
"""Objects and arrays of a schema's text that lie in one another; a record in a record takes three or four."""
Convert = Callable[[Any], Any]
"""Makes the declared value of a written one, which is not null; None where it cannot be."""
_MILLISECONDS = frozenset({"", "timestamp-millis", "local-timestamp-millis"})
_WHOLE = ("int", "long")
_PARTS_OF_A_MILLISECOND = {"timestamp-millis": 1, "timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_WIDE = Context(prec=400)
_LOGICAL = "recount.logical"
"""The name under which the logical type of a written type is kept."""


class NoAvroSchema(Exception):
    """A text that is no schema of Avro, or one of values that cannot be read safely."""


class Malformed(Exception):
    """Bytes that are no value of the schema."""


def _as_it_is_read(found: dict[str, Any]) -> Any:
    """A part of a schema's text: reading needs no defaults, and no object around what has one attribute."""
    if found.keys() == {"type"}:
        return found["type"]
    return {_LOGICAL if name == "logicalType" else name: one for name, one in found.items() if name != "default"}


class AvroWriter:
    """The schema of a writer, as JSON; raises ``NoAvroSchema``."""

    def __init__(self, text: str) -> None:
        if is_too_deep(text.encode(errors="replace"), _MOST_NESTED):
            raise NoAvroSchema(f"more than {_MOST_NESTED} objects and arrays lie in one another")
        require_extra("registry")
        import fastavro
        from fastavro import _read_py

        self._named: dict[str, Any] = {}
        self._takes_no_bytes: dict[str, bool] = {}
        self._lies_in_itself = False
        try:
            self.root: Any = fastavro.parse_schema(json.loads(text, object_hook=_as_it_is_read), self._named)
            self._look_at(self.root, ())
        except NoAvroSchema:
            raise
        except Exception as error:  # the library has no one error for what is no schema
            raise NoAvroSchema(f"{type(error).__name__}: {error}") from error
        # the compiled reader ends the process at some thousand levels
        self._read: Any = _read_py.schemaless_reader if self._lies_in_itself else fastavro.schemaless_reader

    def value(self, data: bytes, at: int) -> Any:
        """The one value from ``at`` to the end; a record and a map are dictionaries. Raises ``Malformed``."""
        source = BytesIO(data)
        source.seek(at)
        try:
            found = self._read(source, self.root)
        except Exception as error:  # the library has no one error for bytes that are no value
            raise Malformed(f"{type(error).__name__}: {error}") from error
        if source.tell() != len(data):
            raise Malformed(f"{len(data) - source.tell()} bytes are left over")
        if self._lies_in_itself and _is_deep(found):
            raise Malformed(f"more than {DEEPEST} records, arrays and maps lie in one another")
        return found

    def meant(self, found: Any) -> dict[str, Any]:
        """The definition that ``found`` stands for: of a name, and of a union with null and one more type."""
        if isinstance(found, list):
            others = [one for one in found if one != "null"]
            return self.meant(others[0]) if len(others) == 1 else {"type": "union"}
        if isinstance(found, str):
            found = self._named.get(found, {"type": found})
        return dict(found)

    def _look_at(self, found: Any, around: tuple[str, ...]) -> bool:
        """Whether values of the type take no bytes; an array of such could claim billions in a few bytes."""
        match found:
            case str():
                self._lies_in_itself |= found in around
                return found == "null" or self._takes_no_bytes.get(found, False)
            case list():
                for one in found:
                    self._look_at(one, around)
            case {"fields": fields, "name": name}:
                empty = [self._look_at(one["type"], (*around, name)) for one in fields]
                self._takes_no_bytes[name] = all(empty)
                return all(empty)
            case {"items": items}:
                if self._look_at(items, around):
                    raise NoAvroSchema("the items of an array take no bytes")
            case {"values": values}:
                self._look_at(values, around)
            case {"size": size, "name": name}:
                self._takes_no_bytes[name] = size == 0
                return bool(size == 0)
        return False


def _is_deep(found: Any) -> bool:
    level = [found]
    for _ in range(DEEPEST):
        parts = (one.values() if isinstance(one, dict) else one for one in level)
        level = [inner for part in parts for inner in part if isinstance(inner, (dict, list))]
    return bool(level)


class Resolution:
    """Makes declared fields of records of one ``writer``; raises ``Unresolvable``."""

    def __init__(self, writer: AvroWriter, declared: RecordSchema) -> None:
        self._writer, self._declared = writer, declared
        root = writer.meant(writer.root)
        if "fields" not in root:
            raise Unresolvable(f"it is no record but {_told(root)}")
        self._made: dict[str, tuple[tuple[str, ...], Convert]] = {}
        for name, kind in declared.fields.items():
            reading = declared.readings.get(name, Reading(kind=kind))
            path = declared.path_of(name)
            found = self._found(name, root, path)
            if found is not None:
                self._made[name] = path, self._conversion(name, found, reading)
        missing = sorted(declared.required - self._made.keys())
        if missing:
            raise Unresolvable(f"it has no {', '.join(missing)}, which is declared as required")

    def fields_of(self, record: dict[str, Any]) -> dict[str, Any]:
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

    def _found(self, name: str, found: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
        """The type at ``path``; None where a record has no such field. A map may have any key."""
        for step in path:
            if "fields" in found:
                fields = {one["name"]: one["type"] for one in found["fields"]}
                if step not in fields:
                    return None
                found = self._writer.meant(fields[step])
            elif "values" in found:
                found = self._writer.meant(found["values"])
            else:
                raise Unresolvable(f"field {name}: {step} cannot lie in {_told(found)}")
        return found

    def _conversion(self, name: str, writer: dict[str, Any], reading: Reading) -> Convert:
        kind, logical, declared = writer["type"], _logical(writer), reading.kind
        if reading.form:
            return _formed(name, writer, reading.form)
        if declared.element is not None and kind == "array":
            element = self._writer.meant(writer["items"])
            return _of_items(self._conversion(name, element, Reading(kind=declared.element)))
        match declared.kind:
            case "string" if kind in ("string", "enum"):
                return _itself
            case "boolean" if kind == "boolean":
                return _itself
            case "long" if kind in _WHOLE and logical in _MILLISECONDS:
                return _itself
            case "double" if (kind in _WHOLE and not logical) or kind in ("float", "double"):
                return _finite
            case "decimal" if kind in _WHOLE and not logical:
                return lambda given: _decimal(given, 0, declared)
            case "decimal" if logical == "decimal" and _fits(*_digits(writer), declared):
                _, scale = _digits(writer)
                return lambda given: _decimal(int.from_bytes(given, "big", signed=True), scale, declared)
        raise Unresolvable(f"field {name} is {_told(writer)}, declared as {declared}")


def _digits(writer: dict[str, Any]) -> tuple[int, int]:
    """Precision and scale of a decimal; the first is 0 where it is not well-formed."""
    precision, scale = writer.get("precision"), writer.get("scale", 0)
    if writer["type"] in ("bytes", "fixed") and type(precision) is type(scale) is int and 0 <= scale <= precision:
        return precision, scale
    return 0, 0


def _logical(writer: dict[str, Any]) -> str:
    """The logical type; one that is not well-formed counts as none, as the specification wants."""
    logical = writer.get(_LOGICAL)
    if not isinstance(logical, str) or (logical == "decimal" and not _digits(writer)[0]):
        return ""
    return logical


def _told(writer: dict[str, Any]) -> str:
    logical = _logical(writer)
    if logical == "decimal":
        return "decimal({}, {})".format(*_digits(writer))
    return f"{writer['type']} ({logical})" if logical else str(writer["type"])


def _formed(name: str, writer: dict[str, Any], form: Form) -> Convert:
    match form, writer["type"], _logical(writer):
        case _, "string", "" if form != "bytes":
            return lambda text: of_text(form, text)
        case "timestamp", "long", ("timestamp-millis" | "timestamp-micros" | "timestamp-nanos") as logical:
            parts = _PARTS_OF_A_MILLISECOND[logical]
            return lambda given: given // parts
        case "date", "int", "date":
            return _date
        case "bytes", "bytes" | "fixed", logical if logical != "decimal":
            return lambda given: base64.b64encode(given).decode()
    raise Unresolvable(f"field {name} is {_told(writer)}, declared as {form}")


def _date(days: int) -> str | None:
    """A date as a text; None for a day before the year 1 or after 9999."""
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError):
        return None


def _fits(precision: int, scale: int, declared: FieldType) -> bool:
    return scale <= declared.scale and precision - scale <= declared.precision - declared.scale


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
