"""Mergeable partial aggregates in Polars: made from records, merged in any grouping and order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from recount.core.aggregates import Aggregate
from recount.core.expression_types import type_of
from recount.core.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.core.own_columns import RESULT_TIME
from recount.core.schema import FieldType
from recount.spark.columns import TIMESTAMP
from recount.spark.exact_sums import OF_LONGS, carrier, exact_sum, fitted, require_room
from recount.spark.polars_expressions import compiled, field_column, polars_type


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
        """The columns of a partial; sums are wider than the results that they make."""
        wide = {name: carrier(one, self.result_schema[name]) for name, one in self.aggregates.items()}
        return {**self.result_schema, **wide}

    @cached_property
    def result_schema(self) -> dict[str, pl.DataType]:
        """The columns of a result."""
        return {**{name: polars_type(kind) for name, kind in self.fields.items()}, RESULT_TIME: pl.Int64()}

    def results(self, partials: pl.DataFrame) -> pl.DataFrame:
        """The results that ``partials`` make; raises ``SumTooLarge`` where a sum does not fit into its type."""
        told = partials.select(*self.group, *self.aggregates)
        columns = [
            fitted(told.select(*self.group, name), name, name, self.result_schema[name], self.fields[name])
            for name, one in self.aggregates.items()
            if one.kind == "sum"
        ]
        return partials.with_columns(columns)

    def empty(self) -> pl.DataFrame:
        """No partials."""
        return pl.DataFrame(schema=self.schema)

    def from_records(self, records: pl.DataFrame) -> pl.DataFrame:
        """One partial per key and window of ``records``, which carry the window's bounds."""
        schema = self.schema
        made = [
            _first(aggregate, self.inputs).cast(schema[name]).alias(name) for name, aggregate in self.aggregates.items()
        ]
        decimals = {
            name: (compiled(one.of, self.inputs), self.fields[name])
            for name, one in self._sums_of_decimals.items()
            if one.of is not None
        }
        require_room(records, [pl.col(field_column(self.key)).alias(self.key), *self.group[1:]], decimals)
        key = pl.col(field_column(self.key)).alias(self.key)
        return self._grouped(records, key, made, pl.col(TIMESTAMP).max().alias(RESULT_TIME))

    def merge(self, partials: pl.DataFrame, *more: pl.Expr) -> pl.DataFrame:
        """One partial per key and window of ``partials``, with the columns that ``more`` makes of its rows."""
        made = [_again(name, aggregate) for name, aggregate in self.aggregates.items()]
        decimals = {name: (pl.col(name), self.fields[name]) for name in self._sums_of_decimals}
        require_room(partials, self.group, decimals)
        return self._grouped(partials, pl.col(self.key), made, pl.col(RESULT_TIME).max(), *more)

    @property
    def _sums_of_decimals(self) -> dict[str, Aggregate]:
        kinds = {name: self.fields[name].kind for name, one in self.aggregates.items() if one.kind == "sum"}
        return {name: self.aggregates[name] for name, kind in kinds.items() if kind == "decimal"}

    def _grouped(self, rows: pl.DataFrame, key: pl.Expr, made: list[pl.Expr], *more: pl.Expr) -> pl.DataFrame:
        grouped = rows.group_by(key, WINDOW_START, WINDOW_END).agg(*made, *more)
        return grouped.select(*self.schema, pl.exclude(list(self.schema)))


def _first(aggregate: Aggregate, inputs: Mapping[str, FieldType]) -> pl.Expr:
    if aggregate.of is None:
        return pl.len()
    given = type_of(aggregate.of, inputs)
    assert given is not None, "refused at declaration"
    return _reduced(aggregate, compiled(aggregate.of, inputs), polars_type(given))


def _again(name: str, aggregate: Aggregate) -> pl.Expr:
    return pl.col(name).sum() if aggregate.kind == "count" else _reduced(aggregate, pl.col(name))


def _reduced(aggregate: Aggregate, values: pl.Expr, given: pl.DataType = OF_LONGS) -> pl.Expr:
    match aggregate.kind:
        case "sum":
            return exact_sum(values, given)
        case "min":
            return values.min()
        case "max":
            return values.max()
    raise AssertionError(aggregate)
