"""JSON values to Arrow columns: the meaning of ``rules.value_rules``, for many values at once.

orjson parses each value. One with numbers that it could read otherwise than by their digits goes to Python's parser;
one that either refuses is read by the rules, and so is, column by column, what is not of the plainest types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from recount.declare.schema import FieldType, RecordSchema
from recount.recompute.rules.value_rules import (
    DOUBLE_DIGITS,
    MOST_NESTED,
    NUMBER,
    Amiss,
    Bad,
    fields_of,
    found_at,
    nests_too_deep,
    path_of,
    refused,
    told_as,
)
from recount.recompute.spark_columns import spark_type

_PLAIN: dict[str, set[type]] = {
    "string": {str},
    "long": {int},
    "double": {int, float, Decimal},
    "decimal": {int, float, Decimal, str},
    "boolean": {bool},
    "list": {list},
}
_DOUBLES = {int, float, type(None)}
_NOTHING: dict[str, Any] = {}
_BY_DIGITS = f"[0-9.]{{{DOUBLE_DIGITS + 1}}}|[0-9][eE][+-]?[0-9]{{3}}"
"""Finds all numbers that are not those of the double nearest to them; other text too."""
_EXACT_SCALE = 22
"""Powers of ten up to this one are doubles."""
_LONGEST = 40
"""Characters of a number that Arrow is given as it was written."""
_UNFIT = (OverflowError, ValueError, InvalidOperation)
"""Raised for a number that is too large or has too many digits, or a text that is no number."""


@dataclass(frozen=True)
class Parsed:
    """The wanted fields as columns, null where a value is null or bad, and of bad ones by index reason and detail."""

    columns: dict[str, pa.Array]
    bad: dict[int, tuple[str, str]]


class Parser:
    """Parses the values of one topic; ``wanted`` limits what is returned, never what is checked."""

    def __init__(self, schema: RecordSchema, wanted: Sequence[str]) -> None:
        self._schema, self._wanted = schema, wanted
        kinds = [kind.element or kind for kind in schema.fields.values()]
        self._has_long_decimals = any(kind.kind == "decimal" and kind.precision > DOUBLE_DIGITS for kind in kinds)
        self._by_digits = json.JSONDecoder(parse_float=_number, parse_int=_whole, parse_constant=refused).raw_decode

    def parsed(self, values: Sequence[bytes | None]) -> Parsed:
        """All of ``values``; one that is None is no bad one."""
        documents = self._documents([b"{}" if value is None else value for value in values])
        doubtful = {index for index, found in enumerate(documents) if type(found) is not dict}
        for index in doubtful:
            documents[index] = _NOTHING
        cells = {name: self._cells(name, documents) for name in self._schema.fields}
        for name, column in cells.items():
            doubtful |= self._not_plain(name, column, values)
        bad = self._one_by_one(cells, doubtful, values)
        try:
            return Parsed(self._columns(cells), bad)
        except _UNFIT:
            unfit = {index for name, kind in self._checked() for index in _unfit(cells[name], kind)}
            bad |= self._one_by_one(cells, unfit, values)
            return Parsed(self._columns(cells), bad)

    def _cells(self, name: str, documents: list[dict[str, Any]]) -> list[Any]:
        """The values where the field is read; ``_ODD`` where the rules must decide."""
        reading = self._schema.readings.get(name)
        if reading is None:
            return [found.get(name) for found in documents]
        cells = [_found_at(path_of(name, self._schema), found) for found in documents]
        if reading.form is None:
            return cells
        return [None if cell is None else _of_form(reading.form, cell) for cell in cells]

    def _documents(self, values: Sequence[bytes]) -> list[Any]:
        """The document of each of ``values``, None where the rules must decide."""
        by_digits = set(_found(_BY_DIGITS, values)) if self._has_long_decimals else set()
        if not by_digits and max(map(len, values), default=0) <= 2 * MOST_NESTED:
            try:
                return list(map(orjson.loads, values))
            except orjson.JSONDecodeError:
                pass
        return [self._document(value, by_digits=index in by_digits) for index, value in enumerate(values)]

    def _document(self, value: bytes, *, by_digits: bool) -> Any:
        if nests_too_deep(value):
            return None
        try:
            if not by_digits:
                return orjson.loads(value)
            if b"\\u" in value:  # it may have half a character
                return None
            found, end = self._by_digits(text := str(value, "utf-8"))
            return found if end == len(text) else None
        except (*_UNFIT, RecursionError):
            return None

    def _not_plain(self, name: str, cells: list[Any], values: Sequence[bytes | None]) -> set[int]:
        """The indexes of ``cells`` that are not of the plainest types, and null then."""
        kind = self._schema.fields[name]
        plain = _PLAIN[kind.kind] | (set() if name in self._schema.required else {type(None)})
        found = set()
        if not set(map(type, cells)) <= plain:
            found = {index for index, cell in enumerate(cells) if type(cell) not in plain and values[index] is not None}
        if kind.element is not None:
            items = _PLAIN[kind.element.kind]
            found |= {
                index for index, cell in enumerate(cells) if type(cell) is list and not set(map(type, cell)) <= items
            }
        for index in found:
            cells[index] = None
        return found

    def _one_by_one(
        self, cells: dict[str, list[Any]], indexes: Iterable[int], values: Sequence[bytes | None]
    ) -> dict[int, tuple[str, str]]:
        bad = {}
        for index in indexes:
            row, value = dict.fromkeys(cells), values[index]
            try:
                row = row if value is None else fields_of(value, self._schema)
            except Bad as fault:
                bad[index] = fault.reason, fault.detail
            for name, made in row.items():
                cells[name][index] = made
        return bad

    def _columns(self, cells: dict[str, list[Any]]) -> dict[str, pa.Array]:
        """The wanted columns; raises one of ``_UNFIT`` for a value of any column that no Arrow array can hold."""
        made = {name: _column(cells[name], kind) for name, kind in self._checked()}
        return {name: made[name] for name in self._wanted}

    def _checked(self) -> Iterator[tuple[str, FieldType]]:
        """The wanted columns, and of the others those that Arrow could refuse, for that is a bad value."""
        for name, kind in self._schema.fields.items():
            if name in self._wanted or kind.kind not in ("string", "boolean"):
                yield name, kind


class _Odd:
    """A number that is judged one by one."""


_ODD = _Odd()


def _found_at(path: Sequence[str], document: dict[str, Any]) -> Any:
    try:
        return found_at(path, document)
    except Amiss:
        return _ODD


def _of_form(form: str, cell: Any) -> Any:
    made = told_as(form, cell) if type(cell) is str else None
    return _ODD if made is None else made


def _number(written: str) -> Decimal | _Odd:
    """A number with a point or an exponent, or ``_ODD``.

    Of a decimal with many places Arrow reads beyond its tables, and makes another number or ends the process.
    """
    if len(written) > _LONGEST:
        return _ODD
    number = Decimal(written)
    return number if "e" not in written.lower() or abs(number.adjusted()) < _LONGEST else _ODD


def _whole(written: str) -> int | _Odd:
    return _ODD if len(written) > _LONGEST else int(written)


def _found(pattern: str, values: Sequence[bytes]) -> list[int]:
    """The indexes of the ``values`` in which ``pattern`` is found."""
    is_found = pc.match_substring_regex(pa.array(values, pa.large_binary()), pattern)
    return list(np.flatnonzero(is_found.to_numpy(zero_copy_only=False)).tolist())


def _form(cell: Any, kind: FieldType) -> Any:
    if kind.kind == "double":
        return float(cell)
    if kind.kind == "decimal" and type(cell) in (str, float):
        written = repr(cell) if type(cell) is float else cell
        number = _number(written) if NUMBER.fullmatch(written) else _ODD
        if number is _ODD:
            raise ValueError(cell)
        return number
    return cell


def _column(cells: list[Any], kind: FieldType) -> pa.Array:
    if kind.kind == "decimal" and (numbers := _doubles(cells, kind)) is not None:
        return _decimals(numbers, kind)
    if kind.element is not None:
        item = kind.element
        cells = [cell and [_form(value, item) for value in cell] for cell in cells]
    elif kind.kind in ("double", "decimal"):
        cells = [None if cell is None else _form(cell, kind) for cell in cells]
    column = pa.array(cells, to_arrow_type(spark_type(kind)))
    found = pc.list_flatten(column) if kind.element is not None else column
    if pa.types.is_floating(found.type) and pc.any(pc.is_inf(found)).as_py():
        raise OverflowError("a number beyond every double")
    return column


def _doubles(cells: list[Any], kind: FieldType) -> np.ndarray | None:
    """``cells`` of a decimal as doubles, NaN for null, where these tell the written numbers apart."""
    if kind.scale > _EXACT_SCALE or not set(map(type, cells)) <= _DOUBLES:
        return None
    numbers = np.array(cells, np.float64)
    is_long = kind.precision > DOUBLE_DIGITS and (np.abs(numbers) >= 10.0**DOUBLE_DIGITS).any()
    return None if is_long else numbers


def _decimals(numbers: np.ndarray, kind: FieldType) -> pa.Array:
    """``numbers`` as decimals of 128 bits, in Arrow's layout; raises ``ValueError`` where one stands for no such."""
    is_null = np.isnan(numbers)
    with np.errstate(over="ignore"):
        unscaled = np.rint(np.where(is_null, 0, numbers) * 10.0**kind.scale)
    is_exact = unscaled / 10.0**kind.scale == numbers
    if not (is_null | (is_exact & (np.abs(unscaled) < 10.0 ** min(kind.precision, DOUBLE_DIGITS)))).all():
        raise ValueError("a number with other digits")
    low = unscaled.astype("<i8")
    words = np.column_stack([low, low >> 63])
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.decimal128(kind.precision, kind.scale), len(low), [valid, pa.py_buffer(words)])


def _unfit(cells: list[Any], kind: FieldType, first: int = 0) -> Iterator[int]:
    """The indexes, from ``first`` on, of the ``cells`` that keep the others from being a column."""
    try:
        _column(cells, kind)
    except _UNFIT:
        if len(cells) == 1:
            yield first
            return
        middle = len(cells) // 2
        yield from _unfit(cells[:middle], kind, first)
        yield from _unfit(cells[middle:], kind, first + middle)
