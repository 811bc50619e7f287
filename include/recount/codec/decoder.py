"""JSON values to Arrow columns, record by record through msgspec, with the meaning of ``RecordSchema.decode``.

msgspec decodes straight into typed structs and coerces nothing, so the fast path takes exactly what the reference
takes. Whatever it refuses is put to the reference, which decides and words the fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from types import GenericAlias
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from recount.core.schema import BadRecord, FieldType, RecordSchema

_SCALARS: dict[str, Any] = {"string": str, "long": int, "double": float, "decimal": float, "boolean": bool}
_ARROW_TYPES = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


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


def arrow_type(field_type: FieldType) -> pa.DataType:
    """The Arrow type that carries ``field_type``."""
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
        self._decode = msgspec.json.Decoder(_struct(tuple(schema.fields.items()), schema.required)).decode
        self._absent = dict.fromkeys(schema.fields)
        self._row = _plain_row(tuple(schema.fields))

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """All ``values`` as columns. A null value is a tombstone: nulls and no fault."""
        faults: dict[int, Fault] = {}
        try:
            # msgspec passes over what is not declared without looking at its text; a newline ends no character
            b"\n".join(values).decode()  # type: ignore[arg-type]  # a None raises
            decode = self._decode
            rows = [decode(value) for value in values]  # type: ignore[arg-type]
        except (*_REFUSED, TypeError):
            rows = [self._careful(index, value, faults) for index, value in enumerate(values)]
        columns = {name: self._column(name, rows, values, faults) for name in self._schema.fields}
        if faults:
            blank = pa.array([index in faults for index in range(len(rows))])
            columns = {name: pa.compute.if_else(blank, None, column) for name, column in columns.items()}
        return Decoded(
            columns={name: columns[name] for name in self._columns},
            faults=sorted(faults.values(), key=lambda fault: fault.index),
        )

    def _careful(self, index: int, value: bytes | None, faults: dict[int, Fault]) -> Any:
        if value is None:
            return self._row(**self._absent)
        try:
            value.decode()
            return self._decode(value)
        except _REFUSED:
            return self._row(**self._by_reference(index, value, faults))

    def _by_reference(self, index: int, value: bytes, faults: dict[int, Fault]) -> Mapping[str, Any]:
        try:
            return self._schema.decode(value)
        except BadRecord as bad:
            faults[index] = Fault(index, bad.reason, bad.detail)
            return self._absent

    def _column(self, name: str, rows: list[Any], values: Sequence[bytes | None], faults: dict[int, Fault]) -> pa.Array:
        field_type = self._schema.fields[name]
        element = field_type.element or field_type
        if name not in self._columns and element.kind not in ("decimal", "long"):
            return pa.nulls(len(rows), arrow_type(field_type))  # msgspec has checked all that there is to check
        cells = list(map(attrgetter(name), rows))
        if field_type.kind == "decimal":
            return self._decimals(field_type, cells, values, faults)
        if element.kind == "decimal":
            cells = [
                None if cell is None else self._by_reference(index, values[index] or b"", faults)[name]
                for index, cell in enumerate(cells)
            ]
        try:
            return pa.array(cells, arrow_type(field_type))
        except (OverflowError, pa.ArrowInvalid):
            return self._refuse(cells, field_type, values, faults)

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


def _python_type(field_type: FieldType) -> Any:
    return GenericAlias(list, (_python_type(field_type.element),)) if field_type.element else _SCALARS[field_type.kind]


@lru_cache(maxsize=64)
def _struct(fields: tuple[tuple[str, FieldType], ...], required: frozenset[str]) -> type[msgspec.Struct]:
    members: list[Any] = []
    for name, field_type in fields:
        python_type = _python_type(field_type)
        members.append((name, python_type) if name in required else (name, python_type | None, None))
    return msgspec.defstruct("Value", members, gc=False, kw_only=True)


@lru_cache(maxsize=64)
def _plain_row(fields: tuple[str, ...]) -> type[msgspec.Struct]:
    """A row without types, for what the reference decoded."""
    return msgspec.defstruct("Row", [(name, Any) for name in fields], gc=False, kw_only=True)
