"""Rules of Protobuf values: "Protobuf values of a schema registry" of docs/own_streams.md, for one at a time.

The parts of a value are put beside the descriptor of its writer's file, and declared fields are made of the values at
their places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

from recount.declare.schema import FieldType, RecordSchema
from recount.recompute.rules.protobuf_files import DEEPEST, MessageType, ProtobufFile, signed, zigzag
from recount.recompute.rules.protobuf_reading import WHOLE, ProtobufPlace, Unlike, Value, read
from recount.recompute.rules.value_rules import NUMBER, Bad, base64_of, exact, path_of, said_of, text_of_day, told_as

_EXACT = Context(prec=1000)
_LONGS = range(-(2**63), 2**63)
_SECONDS = range(-62_135_596_800, 253_402_300_800)
"""Of the years 1 to 9999."""
_MOST_INDEXES = 100
_MOST_BYTES = 64
"""Of a decimal."""


class WriterFile:
    """A file of the registry, beside what is declared; raises ``Bad`` where it is no file that can be read.

    ``of_sink``: the values are a sink's, in which a DOUBLE may be beyond all numbers, as a sum can be.
    """

    def __init__(self, number: int, text: str, declared: RecordSchema, *, of_sink: bool = False) -> None:
        self._number, self._declared, self._of_sink = number, declared, of_sink
        try:
            self._file = ProtobufFile(text)
        except (ValueError, RecursionError) as error:
            raise self._unreadable(f"it is no Protobuf file: {error}") from error
        self._places: dict[tuple[int, ...], tuple[MessageType, dict[str, ProtobufPlace]] | Bad] = {}

    def fields_of(self, value: bytes) -> dict[str, Any]:
        """The declared fields of a value of this file, without its head; raises ``Bad``."""
        indexes, rest = _indexes(value)
        found = self._places.get(tuple(indexes))
        if found is None:
            try:
                found = self._placed(indexes)
            except Bad as fault:
                found = fault
            self._places[tuple(indexes)] = found
        if isinstance(found, Bad):
            raise found
        message, places = found
        try:
            record = read(message, rest, DEEPEST, {})
        except (ValueError, RecursionError) as error:
            raise Bad("undecodable", f"no value of schema {self._number}: {error}") from error
        return dict(self._typed_fields(record, places))

    def _placed(self, indexes: list[int]) -> tuple[MessageType, dict[str, ProtobufPlace]]:
        message = self._file.at(indexes)
        if message is None:
            raise self._unreadable(f"no message {indexes}")
        places = {}
        for name in self._declared.fields:
            try:
                place = ProtobufPlace.of(message, path_of(name, self._declared))
                if place is not None:
                    place.require(self._declared.fields[name], self._form_of(name))
                    places[name] = place
            except Unlike as fault:
                raise self._unreadable(f"{name}: {fault}, declared {said_of(name, self._declared)}") from fault
            if place is None and name in self._declared.required:
                raise self._unreadable(f"no {name}, which is required")
        return message, places

    def _typed_fields(self, record: Value, places: dict[str, ProtobufPlace]) -> Iterator[tuple[str, Any]]:
        for name, kind in self._declared.fields.items():
            made, place = None, places.get(name)
            given = None if place is None else place.lying_in(record)
            if place is not None and given is not None:
                made = self._read_as(given, place, kind, self._form_of(name))
                if made is None:
                    raise Bad("schema", f"field {name} is no {said_of(name, self._declared)}: {str(given)[:80]}")
            if made is None and name in self._declared.required:
                raise Bad("schema", f"no {name}")
            yield name, made

    def _read_as(self, given: Any, place: ProtobufPlace, kind: FieldType, form: str | None) -> Any:
        if self._of_sink and kind.kind == "double":
            return float(given)
        return _formed(given, place, form) if form else _typed(given, place, kind)

    def _form_of(self, name: str) -> str | None:
        return self._declared.readings[name].form if name in self._declared.readings else None

    def _unreadable(self, why: str) -> Bad:
        fields = "; ".join(f"{name} {said_of(name, self._declared)}" for name in self._declared.fields)
        return Bad("schema", f"schema {self._number} cannot be read as declared ({fields}): {why}")


def _indexes(value: bytes) -> tuple[list[int], bytes]:
    """Which message of the file: how many indexes, and each of them; none stands for the first message."""
    found: list[int] = []
    place, many = 0, None
    while many is None or len(found) < many:
        zigzagged = shift = 0
        while True:
            if place >= len(value) or shift >= 35:
                raise Bad("undecodable", "it does not say which message of its file it is")
            byte = value[place]
            place += 1
            zigzagged += byte % 128 << shift
            shift += 7
            if byte < 128:
                break
        if many is None:
            many = zigzag(zigzagged)
            if many < 0 or many > len(value) - place or many > _MOST_INDEXES:
                raise Bad("undecodable", f"a message in {many} others of its file")
        else:
            found.append(zigzag(zigzagged))
    return found or [0], value[place:]


def _typed(given: Any, place: ProtobufPlace, kind: FieldType) -> Any:
    """``given`` as ``kind`` holds it; None where it cannot be."""
    if kind.element is not None:
        items = [_typed(item, place, kind.element) for item in given]
        return None if None in items else items
    match kind.kind:
        case "string":
            return place.symbols.get(given) if place.kind == "enum" else given if isinstance(given, str) else None
        case "long":
            return given if given in _LONGS else None
        case "double":
            return float(given) if math.isfinite(given) else None
        case "decimal" if place.kind == "string":
            return exact(given, kind) if isinstance(given, str) and NUMBER.fullmatch(given) else None
        case "decimal" if place.kind in WHOLE:
            return _number(given, 0, kind)
        case "decimal":
            written = given.get("value", b"")
            if len(written) > _MOST_BYTES:
                return None
            return _number(signed(int.from_bytes(written), 8 * len(written) or 1), given.get("scale", 0), kind)
    return given


def _number(unscaled: int, scale: int, kind: FieldType) -> Decimal | None:
    """``unscaled`` with ``scale`` decimal places as ``kind`` holds it; zeros behind do not count."""
    if unscaled == 0:
        return Decimal(0)
    digits = str(abs(unscaled)).rstrip("0")
    places = scale - (len(str(abs(unscaled))) - len(digits))
    if places > kind.scale or len(digits) - places > kind.precision - kind.scale:
        return None
    return Decimal(int(digits) if unscaled > 0 else -int(digits)).scaleb(-places, context=_EXACT)


def _formed(given: Any, place: ProtobufPlace, form: str) -> Any:
    """``given`` as rows have a value of ``form``; None where it cannot be."""
    if place.kind == "bytes":
        return base64_of(given)
    if place.kind == "string":
        return told_as(form, given) if isinstance(given, str) else None
    if form == "date":
        return text_of_day(*(given.get(part, 0) for part in ("year", "month", "day")))
    seconds, nanos = given.get("seconds", 0), given.get("nanos", 0)
    if seconds not in _SECONDS or not 0 <= nanos < 10**9:
        return None
    return 1000 * seconds + nanos // 10**6
