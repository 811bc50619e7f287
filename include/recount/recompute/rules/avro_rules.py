"""Rules of Avro values: "Avro values of a schema registry" of docs/own_streams.md, for one value at a time.

Apache's library reads a value as its writer's schema says, without logical types; declared fields are made of that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

import avro.errors
import avro.io
import avro.schema

from recount.declare.schema import FieldType, RecordSchema
from recount.recompute.rules.value_rules import (
    Bad,
    base64_of,
    day_text,
    found_at,
    nests_too_deep,
    path_of,
    said_of,
    told_as,
)

_EXACT = Context(prec=1000)
_DEEPEST = 100
"""Records, arrays and maps that may lie in one another."""
_MOST_IN_SCHEMA = 200
"""Objects and arrays of a schema's text that may."""
_MOST_BYTES = 64
"""Of a decimal, without those that repeat its sign."""
_AS_MILLISECONDS = (None, "timestamp-millis", "local-timestamp-millis")
_FINER = {"timestamp-millis": 1, "timestamp-micros": 1000, "timestamp-nanos": 1_000_000}
"""How many of the unit are a millisecond."""
_MEANING = "meaning"
"""Where a type keeps the name of its logical type, which the library then does not apply."""
_RECORDS = ("record", "error")
_Bytes = avro.io.BinaryDecoder
_ALONE: dict[str, Callable[[Any], Any]] = {
    "null": _Bytes.read_null,
    "boolean": _Bytes.read_boolean,
    "int": _Bytes.read_int,
    "long": _Bytes.read_long,
    "float": _Bytes.read_float,
    "double": _Bytes.read_double,
    "bytes": _Bytes.read_bytes,
    "string": _Bytes.read_utf8,
}
_Make = Callable[[Any], Any]
"""Makes of a written value, which is not null, what rows have; None where it cannot be."""


class _Reader(avro.io.DatumReader):
    """Apache's reader; of what holds no other value it does not compare the schema with itself first."""

    def read_data(self, writers_schema: Any, readers_schema: Any, decoder: Any) -> Any:
        read = _ALONE.get(writers_schema.type)
        return super().read_data(writers_schema, readers_schema, decoder) if read is None else read(decoder)


def _prepared(found: dict[str, Any]) -> Any:
    if list(found) == ["type"]:  # the library takes no name of a type in an object of its own
        return found["type"]
    made = {name: one for name, one in found.items() if name != "default"}
    if "logicalType" in made:
        made[_MEANING] = made.pop("logicalType")
    return made


class WriterSchema:
    """A schema of the registry, beside what is declared; raises ``Bad`` where it cannot be read so.

    ``of_sink``: the values are a sink's, and may hold what a source's may not: a DOUBLE beyond all numbers, as a sum
    can be, and a null in a list.
    """

    def __init__(self, number: int, text: str, declared: RecordSchema, *, of_sink: bool = False) -> None:
        self._number, self._declared, self._of_sink = number, declared, of_sink
        self._is_endless = False
        self._least: dict[int, int] = {}
        try:
            if nests_too_deep(text.encode(errors="replace"), _MOST_IN_SCHEMA):
                raise ValueError("it nests too deep")
            prepared = json.dumps(json.loads(text, object_hook=_prepared))
            root: Any = avro.schema.parse(prepared, validate_enum_symbols=False, validate_names=False)
            self._least_bytes(root, ())
        except (avro.errors.AvroException, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._unreadable(f"it is no Avro schema: {error!r}") from error
        if root.type not in _RECORDS:
            raise self._unreadable("it is no record")
        self._reader = _Reader(root)
        self._made = [(name, *self._place(name, root)) for name in declared.fields]

    def fields_of(self, value: bytes) -> dict[str, Any]:
        """The declared fields of a value of this schema, without its head; raises ``Bad``."""
        source = BytesIO(value)
        try:
            record: Any = self._reader.read(_Bytes(source))
            if self._is_endless:
                _require_end(record, _DEEPEST)
        except (avro.errors.AvroException, ValueError, OverflowError, RecursionError) as error:
            raise Bad("undecodable", f"no value of schema {self._number}: {error}") from error
        if source.tell() != len(value):
            raise Bad("undecodable", f"more than a value of schema {self._number}")
        return dict(self._fields(record))

    def _fields(self, record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, path, make in self._made:
            given = found_at(path, record) if make else None
            made = None if given is None or make is None else make(given)
            if made is None and given is not None:
                raise Bad("schema", f"field {name} is no {said_of(name, self._declared)}: {str(given)[:80]}")
            if made is None and name in self._declared.required:
                raise Bad("schema", f"no {name}")
            yield name, made

    def _place(self, name: str, root: Any) -> tuple[tuple[str, ...], _Make | None]:
        """Where the field is, and what makes its value; None where the writer has no such field."""
        path = path_of(name, self._declared)
        written = self._lying_at(name, path, root)
        if written is None:
            if name in self._declared.required:
                raise self._unreadable(f"no {name}, which is required")
            return path, None
        form = self._declared.readings[name].form if name in self._declared.readings else None
        make = _of_form(written, form) if form else self._of_kind(written, self._declared.fields[name])
        if make is None:
            raise self._unreadable(f"{name} is {written}, declared {said_of(name, self._declared)}")
        return path, make

    def _lying_at(self, name: str, path: tuple[str, ...], written: Any) -> Any:
        for step in path:
            if written.type == "map":
                written = written.values
            elif written.type in _RECORDS:
                if step not in written.fields_dict:
                    return None
                written = written.fields_dict[step].type
            else:
                raise self._unreadable(f"{name}: no {step} in {written}")
            written = _without_null(written)
        return written

    def _of_kind(self, written: Any, kind: FieldType) -> _Make | None:
        written = _without_null(written)
        meaning, is_whole = _meaning(written), written.type in ("int", "long")
        if kind.element is not None:
            make = self._of_kind(written.items, kind.element) if written.type == "array" else None
            return make and self._of_items(make)
        match kind.kind:
            case "string" if written.type in ("string", "enum"):
                return _same
            case "boolean" if written.type == "boolean":
                return _same
            case "long" if is_whole and meaning in _AS_MILLISECONDS:
                return _same
            case "double" if written.type in ("float", "double") or (is_whole and meaning is None):
                return float if self._of_sink else _number
            case "decimal" if is_whole and meaning is None:
                return lambda given: _decimal(given, 0, kind)
            case "decimal" if (places := _places(written)) is not None:
                digits, scale = places
                if scale <= kind.scale and digits - scale <= kind.precision - kind.scale:
                    return lambda given: None if _is_long(given) else _decimal(_signed(given), scale, kind)
        return None

    def _of_items(self, make: _Make) -> _Make:
        def made(given: list[Any]) -> list[Any] | None:
            items = [None if item is None else make(item) for item in given]
            return None if items.count(None) > (given.count(None) if self._of_sink else 0) else items

        return made

    def _unreadable(self, why: str) -> Bad:
        fields = "; ".join(f"{name} {said_of(name, self._declared)}" for name in self._declared.fields)
        return Bad("schema", f"schema {self._number} cannot be read as declared ({fields}): {why}")

    def _least_bytes(self, written: Any, around: tuple[int, ...]) -> int:
        """The fewest bytes of a value, 1 for more; raises ``ValueError`` for an array of which no byte is an item."""
        if id(written) in around:
            self._is_endless = True
            return 1
        if id(written) not in self._least:
            self._least[id(written)] = self._least_of_parts(written, (*around, id(written)))
        return self._least[id(written)]

    def _least_of_parts(self, written: Any, around: tuple[int, ...]) -> int:
        match written.type:
            case "record" | "error":
                return max([self._least_bytes(field.type, around) for field in written.fields], default=0)
            case "array" if self._least_bytes(written.items, around) == 0:
                raise ValueError("an array of items of no length")
            case "map":
                self._least_bytes(written.values, around)
            case "union":
                for one in written.schemas:
                    self._least_bytes(one, around)
        return 0 if written.type == "null" or (written.type == "fixed" and written.size == 0) else 1


def _require_end(held: Any, depth: int) -> None:
    if isinstance(held, (dict, list)):
        if depth == 0:
            raise ValueError(f"more than {_DEEPEST} records, arrays and maps in one another")
        for one in held.values() if isinstance(held, dict) else held:
            _require_end(one, depth - 1)


def _without_null(written: Any) -> Any:
    """``written``; of a union with null the other type."""
    others = [one for one in written.schemas if one.type != "null"] if written.type == "union" else []
    return others[0] if len(others) == 1 else written


def _meaning(written: Any) -> str | None:
    """The logical type, but for decimals; an empty name is none."""
    named = written.other_props.get(_MEANING)
    return named if isinstance(named, str) and named not in ("decimal", "") else None


def _places(written: Any) -> tuple[int, int] | None:
    """Digits and decimal places of a decimal; None of any other type, and of a decimal that is not well-formed."""
    props = written.other_props
    digits, scale = props.get("precision"), props.get("scale", 0)
    is_decimal = written.type in ("bytes", "fixed") and props.get(_MEANING) == "decimal"
    if not is_decimal or type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits:
        return None
    return digits, scale


def _of_form(written: Any, form: str) -> _Make | None:
    """The function that makes values of ``form`` as rows have them; None where it is another type."""
    meaning = _meaning(written)
    if form == "bytes":
        return base64_of if written.type in ("bytes", "fixed") and _places(written) is None else None
    if written.type == "string":
        return (lambda given: told_as(form, given)) if meaning is None else None
    if form == "date":
        return day_text if written.type == "int" and meaning == "date" else None
    if written.type == "long" and meaning in _FINER:
        finer = _FINER[meaning]
        return lambda given: given // finer
    return None


def _same(given: Any) -> Any:
    return given


def _number(given: float) -> float | None:
    return float(given) if math.isfinite(given) else None


def _decimal(unscaled: int, scale: int, kind: FieldType) -> Decimal | None:
    number = Decimal(unscaled).scaleb(-scale, context=_EXACT)
    return number if number.copy_abs() < 10 ** (kind.precision - kind.scale) else None


def _is_long(digits: bytes) -> bool:
    """Whether the number has more digits than any decimal; to make a number of a million bytes takes minutes."""
    return len(digits.lstrip(b"\xff" if digits[:1] == b"\xff" else b"\0")) > _MOST_BYTES


def _signed(digits: bytes) -> int:
    number = int.from_bytes(digits, "big")
    return number - (1 << 8 * len(digits)) if digits and digits[0] >= 0x80 else number
