"""Rows as the Python functions of a topology see them, and frames of what they return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from recount.codec.decoder import arrow_type
from recount.core.returned_values import as_declared, of_another_type
from recount.core.schema import FieldType
from recount.spark.polars_expressions import field_column, polars_type
from recount.spark.signs_of_work import worked

_NULL = type(None)
_PLAIN: Mapping[str, set[type]] = {
    "string": {str, _NULL},
    "long": {int, _NULL},
    "double": {float, int, _NULL},
    "boolean": {bool, _NULL},
}
"""The types whose values Polars and Arrow take or refuse as ``require_returned`` does. Of others Polars makes a list of
the characters of a text, or panics; Arrow makes 0 of a decimal with very many places."""
PythonRow = Mapping[str, Any]


def python_rows(rows: pl.DataFrame, fields: Mapping[str, FieldType]) -> Iterator[dict[str, Any]]:
    """Each of ``rows`` as its ``fields`` by name; each is a sign of work."""
    named = rows.select(pl.col(field_column(name)).alias(name) for name in fields)
    for row in named.iter_rows(named=True):
        worked()
        yield row


def frame_of(made: Sequence[PythonRow], fields: Mapping[str, FieldType], maker: object) -> pl.DataFrame:
    """The columns of ``fields``; what a row lacks is null. Raises ``Terminal`` where a value has not its type."""
    return pl.DataFrame([_column(made, name, kind, maker) for name, kind in fields.items()])


def _column(made: Sequence[PythonRow], name: str, kind: FieldType, maker: object) -> pl.Series:
    returned = values = [row.get(name) for row in made]
    if not set(map(type, values)) <= _PLAIN.get(kind.kind, set()):
        values = [as_declared(row, {name: kind}, maker)[name] for row in made]
    try:
        # Polars would round a decimal to its scale, and panic at a NaN; Arrow, which the recompute asks, cuts 1.5 to 1
        taken = pa.array(returned, arrow_type(kind))
        given = taken if (kind.element or kind).kind == "decimal" else values
        column = pl.Series(field_column(name), given, polars_type(kind), strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise of_another_type(f"{name}: {error}", kind, name, maker) from error
    if column.dtype.is_float() and not column.is_finite().all():
        raise of_another_type(f"{name}: {column.filter(~column.is_finite())[0]}", kind, name, maker)
    return column
