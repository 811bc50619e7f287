"""Mergeable accumulators for all aggregates of an operator, as columns of a frame.

A record is *lifted* to the accumulators of itself alone; accumulators of a group are *merged*, in any grouping and
order to the same; *results* are read from them. Values count in log order, whatever the order of merging.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from recount.core.aggregates import Aggregate, Fold
from recount.core.expression_types import type_of
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.schema import FieldType
from recount.spark.exact_sums import Carrier, Sum, fitted, grouped
from recount.spark.operators.accumulator_kinds import (
    BEYOND_TOTAL,
    ORDINAL,
    TOTAL,
    Accumulator,
    Averaged,
    Counted,
    Extreme,
    Given,
    Outermost,
    Summed,
)
from recount.spark.operators.accumulator_lists import Distinct, Listed, Sketched
from recount.spark.operators.folds import folded, folded_session
from recount.spark.operators.python_rows import frame_of
from recount.spark.operators.rows import ORDER
from recount.spark.polars_expressions import compiled, field_column, polars_type

_BOUNDS = frozenset({WINDOW_START, WINDOW_END})
_PLACE = _BOUNDS | {"group"}
"""Columns that tell a result apart from others, beside the fields; bounds are 0 of windows that have none."""


class Accumulators:
    """The accumulators of ``aggregates`` over records with the fields ``inputs``.

    With the ``gap_ms`` of a session, folds merge as the session did (see ``folded_session``).
    """

    def __init__(
        self, aggregates: Mapping[str, Aggregate], inputs: Mapping[str, FieldType], gap_ms: int | None = None
    ) -> None:
        self._aggregates = aggregates
        self._inputs = inputs
        self._gap_ms = gap_ms
        self._kinds = {name: _kind(aggregate, inputs) for name, aggregate in aggregates.items()}
        self.schema: dict[str, pl.DataType] = {
            _column(name, part): kind
            for name, accumulator in self._kinds.items()
            for part, kind in accumulator.columns.items()
        }

    @property
    def folds(self) -> dict[str, tuple[Fold, str]]:
        """The functions of each fold or reduce, and the column with its values."""
        return {
            name: (aggregate.fold, _column(name, part))
            for name, aggregate in self._aggregates.items()
            if aggregate.fold is not None
            for part in self._kinds[name].columns
        }

    def lifted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """``rows`` with their accumulators, each of that row alone; rows of one ``order`` count as they follow."""
        # Lazily, because numbering costs more than all the rest, and few accumulators read the number.
        numbered = rows.lazy().with_columns(pl.int_range(pl.len(), dtype=pl.Int32).over(ORDER).alias(ORDINAL))
        columns = [
            made.cast(self.schema[_column(name, part)]).alias(_column(name, part))
            for name, accumulator in self._kinds.items()
            for part, made in accumulator.lifted(self._given(self._aggregates[name])).items()
        ]
        return numbered.with_columns(columns).drop(ORDINAL).collect()

    def merged(self, frame: pl.DataFrame, by: Sequence[str], **further: pl.Expr) -> pl.DataFrame:
        """One row for each value of the columns ``by`` (null is one too), with accumulators and ``further`` columns."""
        columns = [
            made.alias(_column(name, part))
            for name, accumulator in self._kinds.items()
            for part, made in accumulator.merged(_columns(name, accumulator)).items()
        ]
        others = [*columns, *(made.alias(name) for name, made in further.items())]
        made = grouped(frame, [pl.col(name) for name in by], self._sums, *others, in_order=True)
        return made.select(*by, *self.schema, *further)

    @property
    def _sums(self) -> list[Sum]:
        carriers = {
            name: one.carrier if isinstance(one, Summed) else one.sum.carrier
            for name, one in self._kinds.items()
            if isinstance(one, Summed | Averaged)
        }
        return [
            Sum(
                carrier=carrier,
                values=pl.col(_column(name, TOTAL)),
                total=_column(name, TOTAL),
                beyond=_column(name, BEYOND_TOTAL),
                more=None if carrier.beyond is None else pl.col(_column(name, BEYOND_TOTAL)),
            )
            for name, carrier in carriers.items()
        ]

    def running(self, frame: pl.DataFrame, by: Sequence[str], position: str, **further: pl.Expr) -> pl.DataFrame:
        """``frame`` with each row merged with all before it in its group ``by``; ``position`` counts there from 0.

        After each round a row holds the last 1, 2, 4, ... rows up to itself (Hillis and Steele, Data Parallel
        Algorithms, 1986): as many rounds as the longest group has binary digits.
        """
        place = [*by, position]
        held = frame.select(*place, *self.schema, *further)
        longest, span = held[position].max(), 1
        while isinstance(longest, int) and span <= longest:
            handed_on = held.with_columns(pl.col(position) + span).join(held, on=place, how="semi", nulls_equal=True)
            held = self.merged(pl.concat([held, handed_on]), place, **further)
            span *= 2
        others = frame.drop(*self.schema, *further)
        return others.join(held, on=place, how="left", nulls_equal=True, maintain_order="left")

    def results(self, frame: pl.DataFrame) -> pl.DataFrame:
        """``frame`` with the aggregates' values as fields of the declared types."""
        read = frame.with_columns(
            accumulator.result(_columns(name, accumulator)).alias(field_column(name))
            for name, accumulator in self._kinds.items()
        )
        finished = [
            self._summed(name, read) if one.kind == "sum" else self._finished(name, read[field_column(name)])
            for name, one in self._aggregates.items()
        ]
        return read.with_columns(finished)

    def _summed(self, name: str, read: pl.DataFrame) -> pl.Series:
        kind, column = self._aggregates[name].type_over(self._inputs), field_column(name)
        beyond = _column(name, BEYOND_TOTAL)
        made = {field_column(one) for one in self._aggregates}
        keys = [one for one in read.columns if one.startswith(field_column("")) and one not in made]
        place = {one.removeprefix(field_column("")): pl.col(one) for one in keys}
        has_bounds = WINDOW_END in read.columns and bool((read[WINDOW_END] != 0).any())
        place |= {one: pl.col(one) for one in read.columns if one in _PLACE and (has_bounds or one not in _BOUNDS)}
        is_carried = beyond in self.schema
        told = read.select(column, *([beyond] if is_carried else []), **place)
        return fitted(told, column, beyond if is_carried else None, name, kind)

    def _finished(self, name: str, found: pl.Series) -> pl.Series:
        aggregate = self._aggregates[name]
        declared = polars_type(aggregate.type_over(self._inputs))
        fold = aggregate.fold
        if fold is None:
            return found.cast(declared)
        gap_ms = self._gap_ms
        values = (
            None if one is None else folded(fold, one) if gap_ms is None else folded_session(fold, one, gap_ms)
            for one in found.to_list()
        )
        made = [{name: value} for value in values]
        return frame_of(made, {name: aggregate.type_over(self._inputs)}, f"the {aggregate.kind} {name}").to_series()

    def _given(self, aggregate: Aggregate) -> Given:
        where = aggregate.where
        counts = pl.lit(True) if where is None else compiled(where, self._inputs).cast(pl.Boolean).fill_null(False)
        value = pl.lit(None) if aggregate.of is None else compiled(aggregate.of, self._inputs)
        return Given(value=pl.when(counts).then(value), counts=counts)


def _kind(aggregate: Aggregate, inputs: Mapping[str, FieldType]) -> Accumulator:
    if aggregate.of is None:
        return Counted(of_values=False)
    given = type_of(aggregate.of, inputs)
    assert given is not None, "refused at declaration"
    carrier = polars_type(given)
    match aggregate.kind:
        case "count":
            return Counted(of_values=True)
        case "sum":
            return Summed(Carrier.of(carrier))
        case "avg":
            return Averaged(Summed(Carrier.of(carrier)), Counted(of_values=True))
        case "min" | "max" as which:
            return Extreme(which, carrier)
        case "first" | "last" as which:
            return Outermost(which, carrier)
        case "distinct":
            return Distinct(carrier)
        case "distinct sketch":
            return Sketched()
        case "reduce" | "fold":
            return Listed(carrier)


def _columns(name: str, accumulator: Accumulator) -> dict[str, pl.Expr]:
    return {part: pl.col(_column(name, part)) for part in accumulator.columns}


def _column(name: str, part: str) -> str:
    """No field's column and none of the engine's own begins like this."""
    return f"accumulated {part} of {name}"
