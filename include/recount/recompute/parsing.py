"""JSON values to Arrow columns: the meaning of ``rules.json_values``, for many values at once.

The values of a batch are parsed as one JSON array by Python's own parser, between them a word that nobody can know:
where it is not found again at every second place, a value was no single JSON value. What is not of the plainest
types, column by column, is told one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import chain
from secrets import token_hex
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from recount.core.schema import FieldType, RecordSchema
from recount.recompute.columns import spark_type
from recount.recompute.rules.json_values import NUMBER, Bad, fields_of, refused

_PLAIN: dict[str, set[type]] = {
    "string": {str},
    "long": {int},
    "double": {int, float, Decimal},
    "decimal": {int, Decimal, str},
    "boolean": {bool},
    "list": {list},
}
_NOTHING: dict[str, Any] = {}
_FEW = 32
_LONGEST = 40
"""Characters of a number that Arrow is given as it was written."""
_UNFIT = (OverflowError, ValueError, InvalidOperation)
"""Raised for a number that is too large or has too many digits, a text that is no number or has half a character."""


@dataclass(frozen=True)
class Parsed:
    """The wanted fields as columns, null where a value is null or bad, and of bad ones by index reason and detail."""

    columns: dict[str, pa.Array]
    bad: dict[int, tuple[str, str]]


class Parser:
    """Parses the values of one topic; ``wanted`` limits what is returned, never what is checked."""

    def __init__(self, schema: RecordSchema, wanted: Sequence[str]) -> None:
        self._schema, self._wanted = schema, wanted
        has_decimals = any((kind.element or kind).kind == "decimal" for kind in schema.fields.values())
        self._of_float = _number if has_decimals else float
        self._is_plain_text = False

    def parsed(self, values: Sequence[bytes | None]) -> Parsed:
        """All of ``values``; one that is None is no bad one."""
        self._is_plain_text = not any(b"\\u" in value for value in values if value is not None)
        documents = self._documents([b"{}" if value is None else value for value in values])
        doubtful = {index for index, found in enumerate(documents) if type(found) is not dict}
        for index in doubtful:
            documents[index] = _NOTHING
        cells = {name: [found.get(name) for found in documents] for name in self._schema.fields}
        for name, column in cells.items():
            doubtful |= self._not_plain(name, column, values)
        bad = self._one_by_one(cells, doubtful, values)
        try:
            return Parsed(self._columns(cells), bad)
        except _UNFIT:
            unfit = {index for name, kind in self._checked() for index in _unfit(cells[name], kind)}
            bad |= self._one_by_one(cells, unfit, values)
            return Parsed(self._columns(cells), bad)

    def _documents(self, values: Sequence[bytes]) -> list[Any]:
        """What each of ``values`` is, None where it is no JSON or nothing that is read at once."""
        if not values:
            return []
        word = token_hex(16)
        try:
            text = str(b"[" + f',"{word}",'.encode().join(values) + b"]", "utf-8")
            found = json.loads(text, parse_float=self._of_float, parse_constant=refused)
            if len(found) == 2 * len(values) - 1 and found[1::2] == [word] * (len(values) - 1):
                return list(found[::2])
        except (ValueError, RecursionError, InvalidOperation):
            pass
        if len(values) <= 1:
            return [None]
        size = max(1, len(values) // 2 if len(values) > _FEW else 1)
        parts = (values[start : start + size] for start in range(0, len(values), size))
        return list(chain.from_iterable(map(self._documents, parts)))

    def _not_plain(self, name: str, cells: list[Any], values: Sequence[bytes | None]) -> set[int]:
        """The indexes of ``cells`` that are not of the plainest types, and null then."""
        kind = self._schema.fields[name]
        plain = _PLAIN[kind.kind] | (set() if name in self._schema.required else {type(None)})
        found = set()
        if not set(map(type, cells)) <= plain:
            found = {index for index, cell in enumerate(cells) if type(cell) not in plain and values[index] is not None}
            for index in found:
                cells[index] = None
        if kind.element is not None:
            items = _PLAIN[kind.element.kind]
            odd = {index for index, cell in enumerate(cells) if cell and not set(map(type, cell)) <= items}
            for index in odd:
                cells[index] = None
            return found | odd
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
            if name in self._wanted or kind.kind not in ("string", "boolean") or not self._is_plain_text:
                yield name, kind


class _Odd:
    """A number that is told one by one."""


_ODD = _Odd()


def _number(written: str) -> Decimal | _Odd:
    """A number with a point or an exponent, or ``_ODD``.

    Of a decimal with many places Arrow reads beyond its tables, and makes another number or ends the process.
    """
    if len(written) > _LONGEST:
        return _ODD
    number = Decimal(written)
    return number if "e" not in written.lower() or abs(number.adjusted()) < _LONGEST else _ODD


def _form(cell: Any, kind: FieldType) -> Any:
    if kind.kind == "double":
        return float(cell)
    if kind.kind == "decimal" and type(cell) is str:
        number = _number(cell) if NUMBER.fullmatch(cell) else _ODD
        if number is _ODD:
            raise ValueError(cell)
        return number
    return cell


def _column(cells: list[Any], kind: FieldType) -> pa.Array:
    if kind.element is not None:
        item = kind.element
        cells = [cell and [_form(value, item) for value in cell] for cell in cells]
    elif kind.kind in ("double", "decimal"):
        cells = [None if cell is None else _form(cell, kind) for cell in cells]
    column = pa.array(cells, to_arrow_type(spark_type(kind)))
    numbers = pc.list_flatten(column) if kind.element is not None else column
    if pa.types.is_floating(numbers.type) and pc.any(pc.is_inf(numbers)).as_py():
        raise OverflowError("a number beyond every double")
    return column


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
