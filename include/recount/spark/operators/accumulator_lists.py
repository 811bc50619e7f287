"""The accumulators that need many values: different ones, the hashes of a sketch, all of them for Python functions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from recount.spark.columns import TIMESTAMP
from recount.spark.operators.accumulator_kinds import ORDINAL, VALUE, Given
from recount.spark.operators.rows import ORDER

SKETCH_SIZE = 1_024
_HASH_DIGITS, _HASH_RANGE = 15, 16**15
_LONG = pl.Int64()


@dataclass(frozen=True)
class Distinct:
    """The number of different values, from all of them."""

    carrier: pl.DataType

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The different values, sorted."""
        return {"values": pl.List(self.carrier)}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """The value, if there is one."""
        return {"values": pl.concat_list(given.value.cast(self.carrier)).list.drop_nulls()}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """All that differ."""
        return {"values": column["values"].explode().drop_nulls().unique().sort()}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """How many there are."""
        return column["values"].list.len().cast(_LONG)


@dataclass(frozen=True)
class Sketched:
    """An estimate of the number of different values, from the ``SKETCH_SIZE`` smallest of their hashes.

    A hash is the first 60 bits of the MD5 of the value's text. Exact for fewer than 1,024 values; beyond, the k-th
    smallest of n hashes lies near k / n of their range.
    """

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The smallest hashes, rising."""
        return {"hashes": pl.List(_LONG)}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """The value's hash, if there is a value."""
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
        """The list."""
        return {"values": pl.List(self.element)}

    def lifted(self, given: Given) -> dict[str, pl.Expr]:
        """The value alone, also a null one; nothing where the record is not meant."""
        one = pl.struct(ORDER, ORDINAL, TIMESTAMP, given.value.cast(self.carrier).alias(VALUE))
        return {"values": pl.when(given.counts).then(pl.concat_list(one)).otherwise(pl.lit([], pl.List(self.element)))}

    def merged(self, column: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
        """All lists as one."""
        values = column["values"].explode()
        there = values.struct.field(ORDER).is_not_null()
        place = [values.struct.field(name).filter(there) for name in (ORDER, ORDINAL)]
        return {"values": values.filter(there).sort_by(place)}

    def result(self, column: Mapping[str, pl.Expr]) -> pl.Expr:
        """The list; ``folds`` makes the result of it."""
        return column["values"]


Values = Iterable[Mapping[str, Any]]
"""A ``Listed`` as Python has it."""
