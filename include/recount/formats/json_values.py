"""JSON values to Arrow columns, record by record through msgspec, with the meaning of ``RecordSchema.decode``.

msgspec decodes straight into typed structs and coerces nothing, so the fast path takes exactly what the reference
takes. A value that it refuses is put to the reference, which decides and words the fault.

A struct's members are called f0, f1, … for the fields, and o0, o1, … for objects that hold fields: a field can have any
name, ``gewicht.kg`` too, and a member cannot.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from types import GenericAlias
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from recount.declare.schema import DOUBLE_DIGITS, STRING, BadRecord, FieldType, RecordSchema
from recount.declare.values import Form, has_too_deep, is_too_deep, of_text

_SCALARS: dict[str, Any] = {"string": str, "long": int, "double": float, "decimal": float | str, "boolean": bool}
_NULL = msgspec.Raw(b"null")
_NO_NAME = re.compile(r'["\\\x00-\x1f]')
"""What no name of msgspec may have."""
_Tree = dict[str, Any]
"""Each field by its name, as its number, and each object, as the tree of its fields."""
_ARROW_TYPES = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
_NUMBERS = frozenset({float, type(None)})
_PLAIN_DECIMAL = r"^-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?$"
"""At most 37 digits, for Arrow does not see that more than 38 do not fit."""
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True)
class JsonShape:
    """``struct`` has every declared field as the member ``f`` and its number; ``objects`` are the members around it."""

    struct: type[msgspec.Struct]
    objects: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Field:
    """A declared field: ``raw`` stays as it is written."""

    name: str
    path: tuple[str, ...]
    kind: FieldType
    is_required: bool
    raw: bool


def json_shape(schema: RecordSchema) -> JsonShape | None:
    """None where msgspec has no type for it: two fields overlap, or a path has a name with quotes."""
    kinds = [kind.element or kind for kind in schema.fields.values()]
    # one of more than 15 digits does not survive as a double: then decimals stay as they are written
    written = any(kind.kind == "decimal" and kind.precision > DOUBLE_DIGITS for kind in kinds)
    return _shape(
        tuple(
            _Field(
                name=name,
                path=schema.path_of(name),
                kind=STRING if schema.form_of(name) else kind,  # a timestamp is a text in JSON
                is_required=name in schema.required,
                raw=written and kind.kind == "decimal",
            )
            for name, kind in schema.fields.items()
        )
    )


@lru_cache(maxsize=64)
def _shape(fields: tuple[_Field, ...]) -> JsonShape | None:
    tree: _Tree = {}
    for index, field in enumerate(fields):
        node = tree
        for step in field.path[:-1]:
            node = node.setdefault(step, {})
            if not isinstance(node, dict):
                return None
        if field.path[-1] in node or any(map(_NO_NAME.search, field.path)):
            return None
        node[field.path[-1]] = index
    objects: dict[str, tuple[str, ...]] = {}
    return JsonShape(_struct(tree, fields, (), objects), objects)


def _struct(
    tree: _Tree, fields: tuple[_Field, ...], around: tuple[str, ...], objects: dict[str, tuple[str, ...]]
) -> type[msgspec.Struct]:
    members: list[Any] = []
    names: dict[str, str] = {}
    for number, (name, node) in enumerate(tree.items()):
        if isinstance(node, dict):
            member = f"o{number}"
            inner = _struct(node, fields, (*around, member), objects)
            members.append((member, inner) if _has_required(node, fields) else (member, inner | None, None))
        else:
            member, field = f"f{node}", fields[node]
            objects[field.name] = around
            members.append((member, *_type_and_default(field)))
        names[member] = name
    return msgspec.defstruct("Value", members, gc=False, kw_only=True, rename=names)


def _has_required(tree: _Tree, fields: tuple[_Field, ...]) -> bool:
    return any(
        _has_required(node, fields) if isinstance(node, dict) else fields[node].is_required for node in tree.values()
    )


def _type_and_default(field: _Field) -> tuple[Any, ...]:
    python_type = msgspec.Raw if field.raw else _python_type(field.kind)
    if field.is_required:
        return (python_type,)
    return (python_type, _NULL) if field.raw else (python_type | None, None)


def _python_type(field_type: FieldType) -> Any:
    return GenericAlias(list, (_python_type(field_type.element),)) if field_type.element else _SCALARS[field_type.kind]


@dataclass(frozen=True)
class Fault:
    """Why the record at ``index`` of the decoded sequence is bad."""

    index: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Decoded:
    """The declared fields as columns, one row per value given; a faulty or null value has nulls in all of them."""

    columns: dict[str, pa.Array]
    faults: list[Fault]


def _refuse(_: bytes) -> Any:
    raise msgspec.DecodeError("only the reference finds the fields")


def arrow_type(field_type: FieldType) -> pa.DataType:
    if field_type.kind == "decimal":
        return pa.decimal128(field_type.precision, field_type.scale)
    if field_type.element is not None:
        return pa.list_(arrow_type(field_type.element))
    return _ARROW_TYPES[field_type.kind]


class ValueDecoder:
    """Decodes the values of one topic; ``columns`` limits what is returned, never what is checked."""

    def __init__(self, schema: RecordSchema, columns: Sequence[str] | None = None) -> None:
        self._schema = schema
        self._columns = list(schema.fields if columns is None else columns)
        shape = json_shape(schema)
        self._decode = msgspec.json.Decoder(shape.struct).decode if shape else _refuse
        self._objects = shape.objects if shape else dict.fromkeys(schema.fields, ())
        self._member = {name: f"f{index}" for index, name in enumerate(schema.fields)}
        self._row = _plain_row(len(schema.fields))

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """All ``values`` as columns. A null value is a tombstone: nulls and no fault."""
        faults: dict[int, Fault] = {}
        rows = self._rows(values, faults)
        columns = {name: self._column(name, rows, values, faults) for name in self._schema.fields}
        if faults:
            blank = pa.array([index in faults for index in range(len(rows))])
            columns = {name: pa.compute.if_else(blank, None, column) for name, column in columns.items()}
        return Decoded(
            columns={name: columns[name] for name in self._columns},
            faults=sorted(faults.values(), key=lambda fault: fault.index),
        )

    def _rows(self, values: Sequence[bytes | None], faults: dict[int, Fault]) -> list[Any]:
        try:
            # msgspec passes over what is not declared without looking at its text; a newline ends no character
            b"\n".join(values).decode()  # type: ignore[arg-type]  # a None raises
            if has_too_deep(values):  # type: ignore[arg-type]
                raise RecursionError
            decode = self._decode
            return [decode(value) for value in values]  # type: ignore[arg-type]
        except (*_REFUSED, TypeError):
            return [self._careful(index, value, faults) for index, value in enumerate(values)]

    def _careful(self, index: int, value: bytes | None, faults: dict[int, Fault]) -> Any:
        if value is None:
            return self._row()
        try:
            value.decode()
            if not is_too_deep(value):
                return self._decode(value)
        except _REFUSED:
            pass
        return self._row(*self._by_reference(index, value, faults).values())

    def _by_reference(self, index: int, value: bytes, faults: dict[int, Fault]) -> Mapping[str, Any]:
        try:
            return self._schema.decode(value)
        except BadRecord as bad:
            faults[index] = Fault(index, bad.reason, bad.detail)
            return dict.fromkeys(self._schema.fields)

    def _column(self, name: str, rows: list[Any], values: Sequence[bytes | None], faults: dict[int, Fault]) -> pa.Array:
        field_type = self._schema.fields[name]
        element = field_type.element or field_type
        form = self._schema.form_of(name)
        if form:
            return self._formed(name, form, rows, values, faults)
        if name not in self._columns and element.kind not in ("decimal", "long"):
            return pa.nulls(len(rows), arrow_type(field_type))  # msgspec has checked all that there is to check
        cells = self._cells(name, rows)
        if field_type.kind == "decimal":
            if set(map(type, cells)) <= _NUMBERS:
                return self._decimals(field_type, cells, values, faults)
            return self._written_decimals(name, cells, values, faults)
        if element.kind == "decimal":
            cells = [
                None if cell is None else self._by_reference(index, values[index] or b"", faults)[name]
                for index, cell in enumerate(cells)
            ]
        try:
            return pa.array(cells, arrow_type(field_type))
        except (OverflowError, pa.ArrowInvalid):
            return self._refuse(cells, field_type, values, faults)

    def _cells(self, name: str, rows: Sequence[Any]) -> list[Any]:
        """Cells of the field ``name``, null where an object around it is; rows of the reference have none around."""
        for into in map(attrgetter, self._objects[name]):
            rows = [row if row is None or type(row) is self._row else into(row) for row in rows]
        cell = attrgetter(self._member[name])
        return [None if row is None else cell(row) for row in rows] if self._objects[name] else list(map(cell, rows))

    def _formed(
        self, name: str, form: Form, rows: list[Any], values: Sequence[bytes | None], faults: dict[int, Fault]
    ) -> pa.Array:
        """From texts, or what the reference made of them."""
        made: list[Any] = []
        for index, given in enumerate(self._cells(name, rows)):
            found = of_text(form, given) if type(given) is str else given
            if given is not None and found is None:
                self._by_reference(index, values[index] or b"", faults)
            made.append(found)
        return pa.array(made, arrow_type(self._schema.fields[name]))

    def _decimals(
        self, field_type: FieldType, cells: list[Any], values: Sequence[bytes | None], faults: dict[int, Fault]
    ) -> pa.Array:
        numbers = np.array(cells, dtype=np.float64)
        factor = 10.0**field_type.scale
        missing = np.isnan(numbers)
        with np.errstate(over="ignore"):  # what overflows is not exact
            scaled = numbers * factor
        unscaled = np.rint(scaled)
        exact = (unscaled / factor == numbers) & (np.abs(scaled) < 10.0**field_type.precision)
        for index in np.flatnonzero(~(exact | missing)).tolist():
            self._by_reference(index, values[index] or b"", faults)
        return _decimal_array(np.where(exact, unscaled, 0).astype(np.int64), exact, field_type)

    def _written_decimals(
        self, name: str, cells: list[Any], values: Sequence[bytes | None], faults: dict[int, Fault]
    ) -> pa.Array:
        """From texts, raw JSON, or what the reference made of a value; what is not plain the reference decides."""
        field_type = self._schema.fields[name]
        kind = arrow_type(field_type)
        texts = pa.array(list(map(_text, cells)), pa.string())
        plain = pa.compute.match_substring_regex(texts, _PLAIN_DECIMAL)
        try:
            made = pa.compute.if_else(plain, texts, None).cast(kind)
        except pa.ArrowInvalid:  # one has more digits
            made, plain = pa.nulls(len(cells), kind), pa.compute.and_(plain, False)
        nulls = texts.null_count if name in self._schema.required else 0
        doubtful = pa.compute.invert(pa.compute.fill_null(plain, nulls == 0))
        if not pa.compute.any(doubtful).as_py():
            return made
        found = made.to_pylist()
        for index in np.flatnonzero(doubtful.to_numpy(zero_copy_only=False)).tolist():
            value = values[index]
            if index not in faults and value is not None:
                found[index] = self._by_reference(index, value, faults)[name]
        return pa.array(found, kind)

    def _refuse(
        self, cells: list[Any], field_type: FieldType, values: Sequence[bytes | None], faults: dict[int, Fault]
    ) -> pa.Array:
        """The column again, cell by cell: what Arrow cannot hold (an integer beyond 64 bits) is a fault."""
        kind = arrow_type(field_type)
        for index, cell in enumerate(cells):
            try:
                pa.scalar(cell, kind)
            except (OverflowError, pa.ArrowInvalid):
                self._by_reference(index, values[index] or b"", faults)
                cells[index] = None
        return pa.array(cells, kind)


def _decimal_array(unscaled: np.ndarray, valid: np.ndarray, field_type: FieldType) -> pa.Array:
    """Decimals from their unscaled integers: 16 bytes each, little-endian two's complement (Arrow's layout)."""
    words = np.empty((len(unscaled), 2), dtype=np.int64)
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    validity = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(arrow_type(field_type), len(unscaled), [validity, pa.py_buffer(words.tobytes())])


def _text(cell: Any) -> str | None:
    """A decimal as it was written, without the quotes of a JSON string."""
    if type(cell) is msgspec.Raw:
        text = str(bytes(cell), "utf-8")
        return text[1:-1] if text.startswith('"') else None if text == "null" else text
    return None if cell is None else cell if type(cell) is str else _plainly(cell)


def _plainly(cell: Any) -> str:
    """A value that is no text: a number of the reference, or a double of up to 15 digits."""
    return format(cell, "f") if isinstance(cell, Decimal) else repr(cell)


@lru_cache(maxsize=64)
def _plain_row(fields: int) -> type[msgspec.Struct]:
    """A row without types, for what the reference decoded."""
    return msgspec.defstruct("Row", [(f"f{index}", Any, None) for index in range(fields)], gc=False)
