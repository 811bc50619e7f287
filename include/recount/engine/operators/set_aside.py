"""Records that an operator sets aside, and the reasons that are written with them.

A function of the topology raised, an expression has a value that its type cannot hold, or the result is too large for
its topic. A row that is out of range goes no further. The filter of a sink itself decides about one that is too large.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import polars as pl

from recount.declare.columns import TIMESTAMP
from recount.declare.evaluation import OutOfRange, evaluate, is_risky, risky_expressions
from recount.declare.expression_types import columns_of
from recount.declare.functions import failed, is_of_the_record, message_of, reason_of
from recount.declare.operators.event_time import is_held_back
from recount.declare.operators.nodes import Node
from recount.declare.output import Fits, TooLarge, fits_of
from recount.declare.schema import FieldType
from recount.engine.commit.output_records import fitting
from recount.engine.operators.batch_rows import ENTRY, META, OFFSET, SUPERSEDED, place_of
from recount.engine.operators.folds import python_rows
from recount.engine.stage.polars_expressions import field_column, out_of_range

RAISED_SCHEMA: dict[str, pl.DataType] = {
    **{name: META[name] for name in (*ENTRY, TIMESTAMP)},
    "reason": pl.String(),
    "detail": pl.String(),
}
_IS_BEYOND = "__is_out_of_range"
NOTHING_RAISED = pl.DataFrame(schema=RAISED_SCHEMA)


@dataclass
class SetAside:
    """The records of a batch for which a function or an expression of ``node`` raised.

    Below an operator that holds records back there are none: what a row is made of was read by an earlier batch.
    """

    node: Node
    found: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._is_below_a_hold = is_held_back(self.node)

    def add(self, about: Mapping[str, Any], error: Exception) -> None:
        """The function raised for the row with the ``META`` in ``about``; raises where that is no record at hand."""
        if about[OFFSET] is None or self._is_below_a_hold or not is_of_the_record(error):
            raise failed(self.node, place_of(about, self.node.inputs[0].key), error) from error
        place = (about[name] for name in (*ENTRY, TIMESTAMP))
        self.found.append((*place, reason_of(self.node, error), message_of(error)))

    @property
    def rows(self) -> pl.DataFrame:
        return pl.DataFrame(self.found, RAISED_SCHEMA, orient="row")


def one_of_each(raised: pl.DataFrame) -> pl.DataFrame:
    """One row for each record of ``raised``: of several the first by reason, however they were called."""
    return raised.sort("reason", "detail").unique(ENTRY, keep="first", maintain_order=True)


class Ranges:
    """The ranges of the expressions of ``node``; ``risky`` is false where each of their values always fits."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._trees = risky_expressions(node)
        self._fits = fits_of(node)

    @property
    def risky(self) -> bool:
        """Whether any row can be beyond what an expression can hold."""
        return bool(self._trees)

    def beyond(self, rows: pl.DataFrame) -> pl.Series:
        """Whether each of ``rows`` is."""
        fields = self._node.inputs[0].fields
        known = _largest(rows, frozenset().union(*map(columns_of, self._trees)), fields)
        trees = [tree for tree in self._trees if is_risky(tree, fields, known)]
        tests = [test for tree in trees if (test := out_of_range(tree, fields)) is not None]
        if not tests:
            return pl.repeat(False, rows.height, dtype=pl.Boolean(), eager=True)
        return rows.with_columns(reduce(or_, tests).alias(_IS_BEYOND))[_IS_BEYOND]

    def error(self, row: Mapping[str, Any]) -> OutOfRange:
        """The error of a ``row`` that is out of range."""
        try:
            for tree in self._trees:
                evaluate(tree, row, self._node.inputs[0].fields)
        except OutOfRange as error:
            return error
        raise AssertionError(f"{self._node} of {row} is in range")

    def checked(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The ``rows`` that can be processed, and the records behind the others (``RAISED_SCHEMA``).

        Raises ``ValueOutOfRange`` for a row that is no record which is read just now.
        """
        if self._fits is not None and not rows.is_empty():
            return rows, self._too_large(self._fits, rows)
        if not self._trees or rows.is_empty():
            return rows, NOTHING_RAISED
        beyond = self.beyond(rows)
        if not beyond.any():
            return rows, NOTHING_RAISED
        raised, bad = SetAside(self._node), rows.filter(beyond)
        fields = self._node.inputs[0].fields
        for about, row in zip(bad.iter_rows(named=True), python_rows(bad, fields), strict=True):
            raised.add(about, self.error(row))
        return rows.filter(~beyond), raised.rows

    def _too_large(self, fits: Fits, rows: pl.DataFrame) -> pl.DataFrame:
        fields = self._node.inputs[0].fields
        bad = rows.filter(~pl.col(SUPERSEDED) & ~pl.lit(fitting(fits, rows, fields)))
        raised = SetAside(self._node)
        for about, row in zip(bad.iter_rows(named=True), python_rows(bad, fields), strict=True):
            raised.add(about, TooLarge(fits, evaluate(fits.measured, row, fields), row[self._node.inputs[0].key]))
        return raised.rows


def _largest(rows: pl.DataFrame, names: Iterable[str], fields: Mapping[str, FieldType]) -> dict[str, int | float]:
    """A bound above the absolute value of each number in the fields ``names`` of ``rows``; a DOUBLE may reach it."""
    numbers = [name for name in names if fields[name].kind in ("long", "double", "decimal")]
    columns = [pl.col(field_column(name)) for name in numbers]
    ends = rows.select(*(one.min().name.prefix("least ") for one in columns), *(one.max() for one in columns)).row(0)
    found = {}
    for name, least, most in zip(numbers, ends[: len(numbers)], ends[len(numbers) :], strict=True):
        largest = 0 if least is None else max(abs(least), abs(most))
        found[name] = largest if isinstance(largest, float) else int(largest) + 1
    return found
