"""Rows as the Python functions of a topology see them, and frames of what they return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from recount.codec.decoder import arrow_type
from recount.core.errors import Terminal
from recount.core.schema import FieldType
from recount.spark.polars_expressions import field_column, polars_type

PythonRow = Mapping[str, Any]


def python_rows(rows: pl.DataFrame, fields: Mapping[str, FieldType]) -> Iterator[dict[str, Any]]:
    """Each of ``rows`` as its ``fields`` by name."""
    named = rows.select(pl.col(field_column(name)).alias(name) for name in fields)
    return named.iter_rows(named=True)


def frame_of(made: Sequence[PythonRow], fields: Mapping[str, FieldType], maker: object) -> pl.DataFrame:
    """The columns of ``fields``; what a row lacks is null. Raises ``Terminal`` where a value has not its type."""
    return pl.DataFrame([_column(made, name, kind, maker) for name, kind in fields.items()])


def _column(made: Sequence[PythonRow], name: str, kind: FieldType, maker: object) -> pl.Series:
    values = [row.get(name) for row in made]
    try:
        # Polars would round a decimal to its scale, and panic at a NaN; Arrow, which the recompute asks, cuts 1.5 to 1
        taken = pa.array(values, arrow_type(kind))
        given = taken if (kind.element or kind).kind == "decimal" else values
        return pl.Series(field_column(name), given, polars_type(kind), strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise Terminal(
            f"{maker} made a value of another type",
            given=f"{name}: {error}",
            expected=f"{kind} or None, as declared",
            remedy=f"convert the value in the function, or declare another type for {name}",
        ) from error
