"""Mergeable accumulators for all aggregates of an operator, as columns of a frame, and trials of folds.

A record is *lifted* to the accumulators of itself alone; accumulators of a group are *merged*, in any grouping and
order to the same; *results* are read from them. Values count in log order, whatever the order of merging.

A record for which a fold raises is set aside, and the fold passes it over. A record is tried after the values of its
own partition, key and window that are before it, for these have been read whatever the batches were. Values of other
partitions can come between them later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import polars as pl

from recount.declare.aggregates import Aggregate, Fold
from recount.declare.columns import BEYOND
from recount.declare.expression_types import type_of
from recount.declare.operators.event_time import tries_folds
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.declare.schema import FieldType
from recount.declare.windows import SessionWindows
from recount.engine.operators.accumulator_kinds import (
    BEYOND_TOTAL,
    ORDINAL,
    TOTAL,
    Accumulator,
    Averaged,
    Counted,
    Distinct,
    Extreme,
    Given,
    Listed,
    Outermost,
    Sketched,
    Summed,
)
from recount.engine.operators.batch_operator import Output
from recount.engine.operators.batch_rows import OFFSET, ORDER, PARTITION, TOPIC
from recount.engine.operators.folds import Trial, folded, folded_session, frame_of
from recount.engine.operators.set_aside import SetAside
from recount.engine.stage.exact_sums import Carrier, Sum, fitted, grouped
from recount.engine.stage.polars_expressions import compiled, field_column, polars_type

_BOUNDS = frozenset({WINDOW_START, WINDOW_END})
_PLACE = _BOUNDS | {"group"}
"""Columns that tell a result apart from others, beside the fields; bounds are 0 of windows that have none."""
_OFFSET_DIGITS = 19
Value = Mapping[str, Any]


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

    @property
    def are_in_results(self) -> bool:
        """Whether a result says all about the accumulators that it was read from."""
        return all(isinstance(one, Counted | Summed | Extreme) for one in self._kinds.values())

    def of_results(self, results: pl.DataFrame) -> pl.DataFrame:
        """``results`` with the accumulators that they are read from; values have the names of the aggregates.

        What is beyond a sum may be there too (``BEYOND``).
        """
        first = {name: next(iter(accumulator.columns)) for name, accumulator in self._kinds.items()}
        values = {_column(name, part): pl.col(name) for name, part in first.items()}
        beyond = {name: f"{BEYOND}{name}" for name in first}
        values |= {_column(name, BEYOND_TOTAL): pl.col(at) for name, at in beyond.items() if at in results.columns}
        return results.with_columns(
            values.get(column, pl.lit(None)).cast(kind).alias(column) for column, kind in self.schema.items()
        )

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


@dataclass(frozen=True)
class FoldTrials:
    node: WindowedAggregate
    accumulators: Accumulators

    @classmethod
    def of(cls, node: WindowedAggregate, accumulators: Accumulators) -> Self | None:
        """None where there is nothing to try."""
        return cls(node, accumulators) if tries_folds(node) else None

    def passed(self, known: pl.DataFrame, new: pl.DataFrame, by: Sequence[str], output: Output) -> pl.DataFrame:
        """``new`` lifted rows, less the values for which a fold raises after those ``known`` in the group ``by``.

        The records behind these are set aside in ``output``.
        """
        aside = SetAside(self.node)
        left_out = [self._without(name, known, new, by, aside) for name in self.accumulators.folds]
        output.raised = pl.concat([output.raised, aside.rows])
        return new.with_columns(left_out)

    def _without(
        self, name: str, known: pl.DataFrame, new: pl.DataFrame, by: Sequence[str], aside: SetAside
    ) -> pl.Series:
        fold, column = self.accumulators.folds[name]
        windows = self.node.windows
        gap_ms = windows.gap_ms if isinstance(windows, SessionWindows) else None
        before = _values(known, column, by)
        trials: dict[tuple[Any, ...], Trial] = {}
        raised = []
        for number, group, source, value in _in_order(new, new[column].to_list(), by):
            if (*group, *source) not in trials:
                earlier = _of_partition(before.get(group, ()), *source)
                trials[*group, *source] = Trial.after(fold, gap_ms, earlier)
            try:
                trials[*group, *source].take(value)
            except Exception as error:
                aside.add(new.row(number, named=True), error)
                raised.append(number)
        if not raised:
            return new[column]
        # the values stay in their column: to make one of Python's values takes longer than to try them
        is_left = ~pl.int_range(pl.len()).is_in(raised)
        return new.select(pl.when(is_left).then(column).otherwise(pl.lit([], new.schema[column])))[column]


def _values(known: pl.DataFrame, column: str, by: Sequence[str]) -> dict[tuple[Any, ...], list[Value]]:
    found: dict[tuple[Any, ...], list[Value]] = {}
    for *group, values in known.select(*by, column).iter_rows():
        found.setdefault(tuple(group), []).extend(values)
    return found


def _in_order(
    new: pl.DataFrame, values: Sequence[Sequence[Value]], by: Sequence[str]
) -> list[tuple[int, tuple[Any, ...], tuple[str, int], Value]]:
    """Number, group, topic and partition, and value of the rows that lie in the log, in its order."""
    places = new.select(OFFSET, TOPIC, PARTITION, *by).iter_rows()
    found = [
        (number, tuple(group), (topic, partition), value)
        for number, (offset, topic, partition, *group) in enumerate(places)
        if offset is not None
        for value in values[number]
    ]
    return sorted(found, key=lambda one: _turn(one[3]))


def _of_partition(values: Sequence[Value], topic: str, partition: int) -> list[Value]:
    """Values of the partition's own records, in log order, without values of rows that were derived from one."""
    start = f"{topic}\x00{partition:010d}"
    size = len(start) + _OFFSET_DIGITS
    own = [one for one in values if one[ORDER].startswith(start) and len(one[ORDER]) == size]
    return sorted(own, key=_turn)


def _turn(value: Value) -> tuple[str, int]:
    return value[ORDER], value[ORDINAL]
