"""The accumulators that a few values are enough for; ``accumulator_lists`` has the others.

An accumulator is a few columns, named in ``columns``. ``lifted`` makes them of one record, ``merged`` of the
accumulators in a group, ``result`` reads the value that the aggregate declares. Records count in log order, that is by
``order`` and, for several rows made of one record, by ``ORDINAL``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import polars as pl

from recount.spark.exact_sums import Carrier, mean
from recount.spark.operators.rows import ORDER

ORDINAL = "ordinal"
"""Which of the rows with one ``order`` it is, from 0; a flat-map makes several of one record."""
VALUE = "value"
TOTAL, BEYOND_TOTAL = "sum", "beyond"
_LONG = pl.Int64()


@dataclass(frozen=True, kw_only=True)
class Given:
    """What an accumulator is lifted from: whether the record ``counts``, and its ``value``, null where it does not."""

    value: pl.Expr
    counts: pl.Expr


class Accumulator(Protocol):
    """The accumulator of one aggregate."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """Its columns, by a name that is unique within the aggregate."""

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """Each column, of a single record."""

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """Each column, of all accumulators of a group."""

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The aggregate's value."""


@dataclass(frozen=True)
class Counted:
    """The number of records, or of values; ``of_values`` says which."""

    of_values: bool

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """One number."""
        return {"count": _LONG}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """1 or 0."""
        return {"count": (given.value.is_not_null() if self.of_values else given.counts).cast(_LONG)}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """Counts add up."""
        return {"count": column["count"].sum()}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The count, 0 of nothing."""
        return column["count"]


@dataclass(frozen=True)
class Summed:
    """The sum as it is carried, see ``exact_sums``; null of no values."""

    carrier: Carrier

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The total, and what is beyond it."""
        beyond = {} if self.carrier.beyond is None else {BEYOND_TOTAL: self.carrier.beyond}
        return {TOTAL: self.carrier.total, **beyond}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """The value itself."""
        beyond = {} if self.carrier.beyond is None else {BEYOND_TOTAL: pl.lit(None)}
        return {TOTAL: given.value.cast(self.carrier.total), **beyond}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:  # noqa: ARG002 - see the docstring
        """Nothing: sums are not made of a group by itself, see ``exact_sums.grouped``."""
        return {}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The total, without what is beyond it; ``exact_sums.fitted`` makes the result of both."""
        return column[TOTAL]


@dataclass(frozen=True)
class Averaged:
    """The mean as DOUBLE: the sum, exact for LONG and decimal, over the count; null of no values."""

    sum: Summed
    count: Counted

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """A sum and a count."""
        return {**self.sum.columns, **self.count.columns}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """The value, and 1 if there is one."""
        return {**self.sum.lifted(given), **self.count.lifted(given)}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """The counts add up; as to the sum, see ``Summed``."""
        return self.count.merged(column)

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The sum as a DOUBLE, divided by the count."""
        total, beyond, count = column[TOTAL], column.get(BEYOND_TOTAL), column["count"]
        return pl.when(count > 0).then(mean(total, beyond, count, self.sum.carrier))


@dataclass(frozen=True)
class Extreme:
    """The smallest or the largest value."""

    which: Literal["min", "max"]
    carrier: pl.DataType

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """One value."""
        return {VALUE: self.carrier}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """The value itself."""
        return {VALUE: given.value}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """The extreme one; null of no values."""
        return {VALUE: column[VALUE].min() if self.which == "min" else column[VALUE].max()}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The value."""
        return column[VALUE]


@dataclass(frozen=True)
class Outermost:
    """The first or the last value in log order, with its place."""

    which: Literal["first", "last"]
    carrier: pl.DataType

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The value and its place; all are null of no values."""
        return {ORDER: pl.String(), ORDINAL: pl.Int32(), VALUE: self.carrier}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """The record's own place, if it has a value."""
        there = pl.when(given.value.is_not_null())
        return {ORDER: there.then(pl.col(ORDER)), ORDINAL: there.then(pl.col(ORDINAL)), VALUE: given.value}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """The outermost of all."""
        there = column[ORDER].is_not_null()
        places = [column[ORDER].filter(there), column[ORDINAL].filter(there)]
        last = self.which == "last"
        return {name: found.filter(there).sort_by(places, descending=last).first() for name, found in column.items()}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The value."""
        return column[VALUE]
