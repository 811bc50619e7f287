"""The accumulator of each aggregate: columns for a few values, lists for many (distinct, sketches, Python).

An accumulator is a few columns, named in ``columns``. ``lifted`` makes them of one record, ``merged`` of the
accumulators in a group, ``result`` reads the value that the aggregate declares. Records count in log order, that is by
``order`` and, for several rows made of one record, by ``ORDINAL``.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import polars as pl

from recount.declare.columns import TIMESTAMP
from recount.engine.operators.batch_rows import ORDER
from recount.engine.stage.exact_sums import Carrier, mean

ORDINAL = "ordinal"
"""Which of the rows with one ``order`` it is, from 0; a flat-map makes several of one record."""
VALUE = "value"
TOTAL, BEYOND_TOTAL = "sum", "beyond"
_LONG = pl.Int64()
SKETCH_SIZE = 1_024
_HASH_DIGITS, _HASH_RANGE = 15, 16**15
Values = Iterable[Mapping[str, Any]]
"""A ``Listed`` as Python has it."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """The input of an accumulator: whether the record ``counts``, and its ``value``, null where it does not."""

    value: pl.Expr
    counts: pl.Expr


class Accumulator(Protocol):
    @property
    def columns(self) -> dict[str, pl.DataType]: ...

    def lifted(self, given: Given) -> dict[str, pl.Expr]: ...

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """Each column, of all accumulators of a group."""

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr: ...


@dataclass(frozen=True)
class Counted:
    """The number of records, or of values; ``of_values`` says which."""

    of_values: bool

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"count": _LONG}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        return {"count": (given.value.is_not_null() if self.of_values else given.counts).cast(_LONG)}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"count": column["count"].sum()}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        return column["count"]


@dataclass(frozen=True)
class Summed:
    """The sum as it is carried, see ``exact_sums``; null of no values."""

    carrier: Carrier

    @property
    def columns(self) -> dict[str, pl.DataType]:
        beyond = {} if self.carrier.beyond is None else {BEYOND_TOTAL: self.carrier.beyond}
        return {TOTAL: self.carrier.total, **beyond}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
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
        return {**self.sum.columns, **self.count.columns}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
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
        return {VALUE: self.carrier}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        return {VALUE: given.value}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """The extreme one; null of no values."""
        return {VALUE: column[VALUE].min() if self.which == "min" else column[VALUE].max()}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        return column[VALUE]


@dataclass(frozen=True)
class Outermost:
    """The first or the last value in log order, with its place."""

    which: Literal["first", "last"]
    carrier: pl.DataType

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {ORDER: pl.String(), ORDINAL: pl.Int32(), VALUE: self.carrier}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        there = pl.when(given.value.is_not_null())
        return {ORDER: there.then(pl.col(ORDER)), ORDINAL: there.then(pl.col(ORDINAL)), VALUE: given.value}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        there = column[ORDER].is_not_null()
        places = [column[ORDER].filter(there), column[ORDINAL].filter(there)]
        last = self.which == "last"
        return {name: found.filter(there).sort_by(places, descending=last).first() for name, found in column.items()}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        return column[VALUE]


@dataclass(frozen=True)
class Distinct:
    """The number of different values, from all of them."""

    carrier: pl.DataType

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"values": pl.List(self.carrier)}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        return {"values": pl.concat_list(given.value.cast(self.carrier)).list.drop_nulls()}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {"values": column["values"].explode().drop_nulls().unique().sort()}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        return column["values"].list.len().cast(_LONG)


@dataclass(frozen=True)
class Sketched:
    """An estimate of the number of different values, from the ``SKETCH_SIZE`` smallest of their hashes.

    A hash is the first 60 bits of the MD5 of the value's text. Exact for fewer than 1,024 values; beyond, the k-th
    smallest of n hashes is near k / n of their range.
    """

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"hashes": pl.List(_LONG)}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        hashed = given.value.map_batches(_hashes, return_dtype=_LONG)
        return {"hashes": pl.concat_list(hashed).list.drop_nulls()}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """The smallest of all: a hash that is not among those of its part is not among those of the whole."""
        return {"hashes": column["hashes"].explode().drop_nulls().unique().sort().head(SKETCH_SIZE)}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The count where it is small, else the estimate."""
        found = column["hashes"].list.len().cast(_LONG)
        return (
            pl.when(found < SKETCH_SIZE)
            .then(found)
            .otherwise(column["hashes"].list.max().map_elements(_estimate, _LONG))
        )


def _hashes(values: pl.Series) -> pl.Series:
    return pl.Series([None if value is None else _hash(value) for value in values.to_list()], dtype=_LONG)


def _hash(value: Any) -> int:
    return int(hashlib.md5(str(value).encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS], 16)


def _estimate(largest_hash: int) -> int:
    """In whole numbers of Python, which do not overflow, and with its one rounding."""
    return round((SKETCH_SIZE - 1) * _HASH_RANGE / largest_hash)


@dataclass(frozen=True)
class Listed:
    """All values, nulls among them, in log order: for functions in Python, which take them one by one."""

    carrier: pl.DataType

    @property
    def element(self) -> pl.Struct:
        """A value with its place and time."""
        places = {ORDER: pl.String(), ORDINAL: pl.Int32(), TIMESTAMP: _LONG}
        return pl.Struct({**places, VALUE: self.carrier})

    @property
    def columns(self) -> dict[str, pl.DataType]:
        return {"values": pl.List(self.element)}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """The value alone, also a null one; nothing where the record is not meant."""
        one = pl.struct(ORDER, ORDINAL, TIMESTAMP, given.value.cast(self.carrier).alias(VALUE))
        return {"values": pl.when(given.counts).then(pl.concat_list(one)).otherwise(pl.lit([], pl.List(self.element)))}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        values = column["values"].explode()
        there = values.struct.field(ORDER).is_not_null()
        place = [values.struct.field(name).filter(there) for name in (ORDER, ORDINAL)]
        return {"values": values.filter(there).sort_by(place)}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The list; ``folds`` makes the result of it."""
        return column["values"]
