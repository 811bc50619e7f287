"""Which results fit into their topic, column by column: what ``recount.core.size_limits`` says of one row."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from recount.core.changelogs import TableFilter
from recount.core.expressions import JSON_SIZE, Column
from recount.core.nodes import Filter
from recount.core.schema import FieldType
from recount.core.size_limits import Fits, fits_of
from recount.spark.output_records import json_object, plain_text
from recount.spark.polars_expressions import compiled, field_column

_MOST_OF_A_NUMBER, _MOST_OF_A_CHARACTER = 48, 6
"""Bytes in JSON: of a decimal of 38 digits, with room to spare, and of a byte of a text that has to be escaped."""
_MOST_OF_A_NAME = 12
"""Bytes of a character of a field's name: JSON writes those beyond ASCII as two escapes at most."""


def passing(node: Filter | TableFilter, rows: pl.DataFrame) -> pl.Expr:
    """Whether each of the ``rows`` that reach ``node`` passes it."""
    fits = fits_of(node)
    if fits is not None:
        return pl.lit(fitting(fits, rows, node.input.fields))
    return compiled(node.predicate, node.input.fields).cast(pl.Boolean).fill_null(False)


def fitting(fits: Fits, rows: pl.DataFrame, fields: Mapping[str, FieldType]) -> pl.Series:
    """Whether the result that is made of each of the ``rows`` of ``fields`` fits."""
    key, *value = (argument.name for argument in fits.measured.arguments if isinstance(argument, Column))
    cells = rows.select(pl.col(field_column(name)).alias(name) for name in dict.fromkeys([key, *value]))
    if _most(cells, fields) <= fits.limit:
        return pl.repeat(True, cells.height, dtype=pl.Boolean(), eager=True)
    if fits.measured.operator == JSON_SIZE:
        text = json_object(cells, {name: fields[name] for name in value})
    else:
        text = plain_text(cells[value[0]], fields[value[0]])
    sizes = [part.str.len_bytes().cast(pl.Int64).fill_null(0) for part in (pl.col(key).cast(pl.String), text)]
    return cells.select(fits=sizes[0] + sizes[1] <= fits.limit)["fits"]


def _most(cells: pl.DataFrame, fields: Mapping[str, FieldType]) -> float:
    """A number of bytes that no result of ``cells`` comes to, from the longest text of each column."""
    most = 2.0 * _MOST_OF_A_NUMBER
    for name in cells.columns:
        kind = fields[name]
        if kind.element is not None:
            return float("inf")
        longest = cells[name].str.len_bytes().max() if kind.kind == "string" else None
        text = _MOST_OF_A_CHARACTER * longest if isinstance(longest, int) else 0
        # a key lies in the record's key and in the value
        most += 2 * (_MOST_OF_A_NUMBER + text) + _MOST_OF_A_NAME * len(name)
    return most
