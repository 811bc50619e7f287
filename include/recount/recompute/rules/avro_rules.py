"""Rules of Avro values: "Avro values of a schema registry" of docs/own_streams.md, for one value at a time.

The writer's schema is walked beside the bytes. Declared fields are made of what it says there; the rest is passed over.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

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
_NAMED = ("record", "error", "enum", "fixed")


class WriterSchema:
    """A schema of the registry, beside what is declared; raises ``Bad`` where it cannot be read so.

    ``of_sink``: the values are a sink's, and may hold what a source's may not: a DOUBLE beyond all numbers, as a sum
    can be, and a null in a list.
    """

    def __init__(self, number: int, text: str, declared: RecordSchema, *, of_sink: bool = False) -> None:
        self._number, self._declared, self._of_sink = number, declared, of_sink
        self._known: dict[str, Any] = {}
        try:
            if nests_too_deep(text.encode(errors="replace"), _MOST_IN_SCHEMA):
                raise ValueError("it nests too deep")
            self._root = self._with_names(json.loads(text), "")
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._unreadable(f"it is no Avro schema: {error!r}") from error
        if _kind(self._root) != "record":
            raise self._unreadable("it is no record")
        self._paths = {name: path_of(name, declared) for name in declared.fields}
        self._types = {name: self._lying_at(name, path) for name, path in self._paths.items()}
        for name, written in self._types.items():
            if written is not None and not self._is_read(written, name):
                raise self._unreadable(f"{name} is {_told(written)}, declared {said_of(name, declared)}")
            if written is None and name in declared.required:
                raise self._unreadable(f"no {name}, which is required")

    def fields_of(self, value: bytes) -> dict[str, Any]:
        """The declared fields of a value of this schema, without its head; raises ``Bad``."""
        source = BytesIO(value)
        try:
            record = self._read(self._root, source, _DEEPEST)
        except (EOFError, ValueError) as error:
            raise Bad("undecodable", f"no value of schema {self._number}: {error}") from error
        if source.tell() != len(value):
            raise Bad("undecodable", f"more than a value of schema {self._number}")
        return dict(self._typed_fields(record))

    def _typed_fields(self, record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, kind in self._declared.fields.items():
            written, made = self._types[name], None
            given = None if written is None else found_at(self._paths[name], record)
            if given is not None:
                form = self._form_of(name)
                made = _formed(given, written, form) if form else self._typed(given, written, kind)
            if made is None and given is not None:
                raise Bad("schema", f"field {name} is no {said_of(name, self._declared)}: {str(given)[:80]}")
            if made is None and name in self._declared.required:
                raise Bad("schema", f"no {name}")
            yield name, made

    def _typed(self, given: Any, written: Any, kind: FieldType) -> Any:
        """``given``, which was written as ``written``, as ``kind`` holds it; None where it cannot be."""
        if kind.element is not None:
            of_item = written["items"]
            if isinstance(of_item, list):
                [of_item] = [one for one in of_item if _kind(one) != "null"]
            items = [None if item is None else self._typed(item, of_item, kind.element) for item in given]
            bad = items.count(None) - (given.count(None) if self._of_sink else 0)
            return None if bad else items
        if kind.kind == "double":
            return float(given) if self._of_sink or math.isfinite(given) else None
        if kind.kind == "decimal":
            places = _places(written)
            if places is not None and _is_long(given):  # to make a number of a million bytes takes minutes
                return None
            unscaled, scale = (given, 0) if places is None else (_signed(given), places[1])
            number = Decimal(unscaled).scaleb(-scale, context=_EXACT)
            return number if number.copy_abs() < 10 ** (kind.precision - kind.scale) else None
        return given

    def _unreadable(self, why: str) -> Bad:
        fields = "; ".join(f"{name} {said_of(name, self._declared)}" for name in self._declared.fields)
        return Bad("schema", f"schema {self._number} cannot be read as declared ({fields}): {why}")

    def _with_names(self, found: Any, space: str) -> Any:
        """``found`` with the definition in place of each name; one that contains itself is a loop of objects."""
        if isinstance(found, list):
            return [self._with_names(one, space) for one in found]
        if isinstance(found, str):
            if found in _READ or found == "null":
                return {"type": found}
            qualified = f"{space}.{found}" if space and "." not in found else found
            return self._known[qualified if qualified in self._known else found]
        kind = found["type"]
        if not isinstance(kind, str):
            return self._with_names(kind, space)
        made = dict(found)
        if kind in _NAMED:
            name = found["name"]
            space = name.rpartition(".")[0] if "." in name else found.get("namespace", space) or ""
            own = name.rpartition(".")[2]
            self._known[f"{space}.{own}" if space else own] = made
            if kind == "error":
                made["type"] = "record"
        if made["type"] == "record":
            made["fields"] = [
                {"name": one["name"], "type": self._with_names(one["type"], space)} for one in found["fields"]
            ]
        elif kind == "array":
            made["items"] = self._with_names(found["items"], space)
        elif kind == "map":
            made["values"] = self._with_names(found["values"], space)
        elif kind == "enum":
            made["symbols"] = list(found["symbols"])
        elif kind == "fixed":
            if type(found["size"]) is not int or found["size"] < 0:
                raise ValueError("the size of a fixed")
        elif kind not in _READ and kind != "null":
            return self._with_names(kind, space)
        return made

    def _without_null(self, written: Any) -> Any:
        """``written``; of a union with null the other type. A union of several is the type of a list of types."""
        while isinstance(written, list):
            others = [one for one in written if _kind(one) != "null"]
            if len(others) != 1:
                return {"type": written}
            written = others[0]
        return written

    def _form_of(self, name: str) -> str | None:
        return self._declared.readings[name].form if name in self._declared.readings else None

    def _lying_at(self, name: str, path: tuple[str, ...]) -> Any:
        """The value written at ``path``, without null; None where a record has no such field."""
        written = self._root
        for step in path:
            if written["type"] == "map":
                written = written["values"]
            elif written["type"] == "record":
                fields = {one["name"]: one["type"] for one in written["fields"]}
                if step not in fields:
                    return None
                written = fields[step]
            else:
                raise self._unreadable(f"{name}: no {step} in {_told(written)}")
            written = self._without_null(written)
        return written

    def _is_read(self, written: Any, name: str) -> bool:
        form = self._form_of(name)
        if form is None:
            return self._is_readable(written, self._declared.fields[name])
        avro, logical = written["type"], _logical(written)
        if form == "bytes":
            return avro in ("bytes", "fixed") and _places(written) is None
        if avro == "string":
            return logical is None
        if form == "date":
            return bool(avro == "int" and logical == "date")
        return avro == "long" and logical in _FINER

    def _is_readable(self, written: Any, kind: FieldType) -> bool:
        written = self._without_null(written)
        avro, logical = written["type"], _logical(written)
        if kind.element is not None:
            return avro == "array" and self._is_readable(written["items"], kind.element)
        is_whole = avro in ("int", "long")
        match kind.kind:
            case "string":
                return bool(avro in ("string", "enum"))
            case "boolean":
                return bool(avro == "boolean")
            case "long":
                return is_whole and logical in _AS_MILLISECONDS
            case "double":
                return avro in ("float", "double") or (is_whole and logical is None)
            case "decimal":
                places = _places(written)
                if places is None:
                    return is_whole and logical is None
                digits, scale = places
                return scale <= kind.scale and digits - scale <= kind.precision - kind.scale
        return False

    def _read(self, written: Any, source: BytesIO, depth: int) -> Any:
        if isinstance(written, list):
            branch = _number(source)
            if branch not in range(len(written)):
                raise ValueError(f"union has no branch {branch}")
            return self._read(written[branch], source, depth)
        if written["type"] in ("record", "array", "map"):
            depth -= 1
            if depth < 0:
                raise ValueError(f"more than {_DEEPEST} records, arrays and maps in one another")
        match written["type"]:
            case "null":
                return None
            case "record":
                return {one["name"]: self._read(one["type"], source, depth) for one in written["fields"]}
            case "array":
                return list(self._items(source, lambda: self._read(written["items"], source, depth)))
            case "map":
                return dict(self._items(source, lambda: (_text(source), self._read(written["values"], source, depth))))
            case "enum":
                symbol = _small(source)
                if symbol not in range(len(written["symbols"])):
                    raise ValueError(f"enum has no symbol {symbol}")
                return written["symbols"][symbol]
            case "fixed":
                return _exactly(source, written["size"])
            case primitive:
                return _READ[primitive](source)

    def _items(self, source: BytesIO, read: Any) -> Iterator[Any]:
        while count := _number(source):
            if count < 0:
                _number(source)
            for _ in range(abs(count)):
                before = source.tell()
                yield read()
                if source.tell() == before:
                    raise ValueError("items of no length")


def _kind(written: Any) -> str:
    return "union" if isinstance(written, list) else str(written["type"])


def _logical(written: Any) -> str | None:
    """The logical type, but for decimals; an empty name is none."""
    named = written.get("logicalType")
    return named if isinstance(named, str) and named not in ("decimal", "") else None


def _told(written: Any) -> str:
    if isinstance(written["type"], list):
        return "a union of " + ", ".join(map(_kind, written["type"]))
    return " ".join(str(written[part]) for part in ("type", "logicalType") if part in written)


def _places(written: Any) -> tuple[int, int] | None:
    """Digits and decimal places of a decimal; None of any other type, and of a decimal that is not well-formed."""
    digits, scale = written.get("precision"), written.get("scale", 0)
    is_decimal = written["type"] in ("bytes", "fixed") and written.get("logicalType") == "decimal"
    if not is_decimal or type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits:
        return None
    return digits, scale


def _formed(given: Any, written: Any, form: str) -> Any:
    """``given``, which was written as ``written``, as rows have a value of ``form``; None where it cannot be."""
    if form == "bytes":
        return base64_of(given)
    if written["type"] == "string":
        return told_as(form, given)
    return day_text(given) if form == "date" else given // _FINER[written["logicalType"]]


def _is_long(digits: bytes) -> bool:
    """Whether the number has more digits than any decimal; zeros or ones before it do not count."""
    return len(digits.lstrip(b"\xff" if digits[:1] == b"\xff" else b"\0")) > _MOST_BYTES


def _signed(digits: bytes) -> int:
    number = int.from_bytes(digits, "big")
    return number - (1 << 8 * len(digits)) if digits and digits[0] >= 0x80 else number


def _exactly(source: BytesIO, length: int) -> bytes:
    if length < 0:
        raise ValueError("a length below zero")
    found = source.read(length)
    if len(found) < length:
        raise EOFError("the value ends too early")
    return found


def _number(source: BytesIO) -> int:
    zigzag = 0
    for place in range(10):
        [byte] = _exactly(source, 1)
        zigzag += (byte % 128) << (7 * place)
        if byte < 128:
            if zigzag >= 2**64:
                break
            return -(zigzag + 1) // 2 if zigzag % 2 else zigzag // 2
    raise ValueError("a number beyond 64 bits")


def _small(source: BytesIO) -> int:
    number = _number(source)
    if not -(2**31) <= number < 2**31:
        raise ValueError("an int beyond 32 bits")
    return number


def _blob(source: BytesIO) -> bytes:
    return _exactly(source, _number(source))


def _text(source: BytesIO) -> str:
    return str(_blob(source), "utf-8")


def _flag(source: BytesIO) -> bool:
    found = _exactly(source, 1)
    if found not in (b"\0", b"\1"):
        raise ValueError("a flag that is neither 0 nor 1")
    return found == b"\1"


def _float(source: BytesIO) -> float:
    return float(struct.unpack("<f", _exactly(source, 4))[0])


def _double(source: BytesIO) -> float:
    return float(struct.unpack("<d", _exactly(source, 8))[0])


_READ: dict[str, Any] = {
    "boolean": _flag,
    "int": _small,
    "long": _number,
    "float": _float,
    "double": _double,
    "bytes": _blob,
    "string": _text,
}
"""How each primitive type is read; a null takes no byte."""
