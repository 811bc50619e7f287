"""Mergeable partial aggregates in Polars: made from records, merged in any grouping and order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from recount.core.aggregates import Aggregate
from recount.core.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.core.schema import FieldType
from recount.spark.columns import TIMESTAMP
from recount.spark.polars_expressions import compiled, field_column, polars_type

"""The largest event time of the records behind a partial."""


@dataclass(frozen=True)
class Partials:
    """How the partials of one aggregation are made and merged; a partial has the columns of ``schema``."""

    key: str
    aggregates: Mapping[str, Aggregate]
    inputs: Mapping[str, FieldType]
    fields: Mapping[str, FieldType]

    @classmethod
    def of(cls, node: WindowedAggregate) -> Partials:
        """The partials of ``node``."""
        return cls(node.key, node.aggregates, node.input.fields, node.fields)

    @property
    def group(self) -> list[str]:
        """What identifies a result."""
        return [self.key, WINDOW_START, WINDOW_END]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns of a partial."""
        return {**{name: polars_type(kind) for name, kind in self.fields.items()}, TIMESTAMP: pl.Int64()}

    def empty(self) -> pl.DataFrame:
        """No partials."""
        return pl.DataFrame(schema=self.schema)

    def from_records(self, records: pl.DataFrame) -> pl.DataFrame:
        """One partial per key and window of ``records``, which carry the window's bounds."""
        made = [
            _first(aggregate, self.inputs).cast(self.schema[name]).alias(name)
            for name, aggregate in self.aggregates.items()
        ]
        key = pl.col(field_column(self.key)).alias(self.key)
        return self._grouped(records, key, made)

    def merge(self, partials: pl.DataFrame, *more: pl.Expr) -> pl.DataFrame:
        """One partial per key and window of ``partials``, with the columns that ``more`` makes of its rows."""
        made = [_again(name, aggregate) for name, aggregate in self.aggregates.items()]
        return self._grouped(partials, pl.col(self.key), made, *more)

    def _grouped(self, rows: pl.DataFrame, key: pl.Expr, made: list[pl.Expr], *more: pl.Expr) -> pl.DataFrame:
        grouped = rows.group_by(key, WINDOW_START, WINDOW_END).agg(*made, pl.col(TIMESTAMP).max(), *more)
        return grouped.select(*self.schema, pl.exclude(list(self.schema)))


def _first(aggregate: Aggregate, inputs: Mapping[str, FieldType]) -> pl.Expr:
    if aggregate.of is None:
        return pl.len()
    return _reduced(aggregate, compiled(aggregate.of, inputs))


def _again(name: str, aggregate: Aggregate) -> pl.Expr:
    return pl.col(name).sum() if aggregate.kind == "count" else _reduced(aggregate, pl.col(name))


def _reduced(aggregate: Aggregate, values: pl.Expr) -> pl.Expr:
    match aggregate.kind:
        case "sum":
            return pl.when(values.count() > 0).then(values.sum())
        case "min":
            return values.min()
        case "max":
            return values.max()
    raise AssertionError(aggregate)
