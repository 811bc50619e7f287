"""Aggregation of a table's rows by another key: each group over the rows that are in it now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from recount.core.aggregates import Aggregate
from recount.core.changelogs import TableAggregate
from recount.core.own_columns import IS_NULL, REVISION
from recount.spark.columns import TIMESTAMP
from recount.spark.operators.accumulators import Accumulators
from recount.spark.operators.clock import Batch, Clock
from recount.spark.operators.joined_rows import derived
from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.lateness import current
from recount.spark.operators.operator import Output
from recount.spark.operators.python_rows import frame_of
from recount.spark.operators.rows import META, ORDER, rows_schema
from recount.spark.polars_expressions import compiled, field_column, polars_type

_ROW, _GROUP, _OLD_GROUP, _CHANGE = "row", "group", "__old_group", "__change"


@dataclass(kw_only=True)
class TableAggregateOperator:
    """Holds each row's group and its accumulators alone, and each group's time and revision.

    A batch lets one update of each changed group go: its result after the batch, with the revision that it has when
    every change of a row counts, so that the last update of a group does not depend on batches.
    """

    node: TableAggregate
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        above = self.node.input
        self._accumulators = Accumulators(self.node.aggregates, above.fields)
        group = {_GROUP: polars_type(self.node.fields[self.node.key])}
        row = {_ROW: polars_type(above.fields[above.key]), **group, **self._accumulators.schema}
        self._rows = KeyedRows(row, [_ROW])
        self._groups = KeyedRows({**group, TIMESTAMP: META[TIMESTAMP], REVISION: META[REVISION]}, [_GROUP])
        self.states = {"rows": self._rows, "groups": self._groups}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:  # noqa: ARG002 - time does not matter
        """Move the changed rows to their groups; a deleted row is in none."""
        changed = self._regrouped(current(inputs[0]))
        updates = self._updates(changed)
        last = changed.unique(_ROW, keep="last", maintain_order=True)
        self._rows.remove(last.filter(pl.col(_GROUP).is_null()))
        self._rows.put(self._accumulators.lifted(last.filter(pl.col(_GROUP).is_not_null())))
        self._groups.put(updates)
        return Output(self._results(updates))

    def _regrouped(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The changes, each with the group that its row leaves and the one that it joins; either may be null."""
        above = self.node.input
        by = compiled(self.node.by, above.fields).cast(self._groups.schema[_GROUP])
        grouped = rows.with_columns(
            pl.col(field_column(above.key)).alias(_ROW), pl.when(~pl.col(IS_NULL)).then(by).alias(_GROUP)
        )
        known = self._rows.of(grouped, [_ROW]).select(_ROW, pl.col(_GROUP).alias(_OLD_GROUP))
        is_first = pl.int_range(pl.len()).over(_ROW) == 0
        old = pl.when(is_first).then(_OLD_GROUP).otherwise(pl.col(_GROUP).shift().over(_ROW))
        return grouped.join(known, on=_ROW, how="left", maintain_order="left").with_columns(old.alias(_OLD_GROUP))

    def _updates(self, changed: pl.DataFrame) -> pl.DataFrame:
        """Each changed group with its time, which never goes back, and its revision, in the order of last changes."""
        numbered = changed.with_row_index(_CHANGE)
        moved = numbered.filter(pl.col(_OLD_GROUP).ne_missing(pl.col(_GROUP)))
        touched = pl.concat(
            part.select(_CHANGE, pl.col(group).alias(_GROUP), TIMESTAMP, ORDER)
            for part, group in ((moved, _OLD_GROUP), (numbered, _GROUP))
        ).filter(pl.col(_GROUP).is_not_null())
        counted = (
            touched.sort(_CHANGE, maintain_order=True)
            .group_by(_GROUP, maintain_order=True)
            .agg(pl.col(TIMESTAMP).max(), pl.col(ORDER, _CHANGE).last(), pl.len().alias("__updates"))
        )
        known = self._groups.of(counted, [_GROUP]).rename({TIMESTAMP: "__known_ms", REVISION: "__known"})
        return (
            counted.join(known, on=_GROUP, how="left")
            .with_columns(
                pl.max_horizontal(TIMESTAMP, "__known_ms").alias(TIMESTAMP),
                (pl.col("__known").fill_null(-1) + pl.col("__updates")).cast(META[REVISION]).alias(REVISION),
            )
            .sort(_CHANGE, maintain_order=True)
        )

    def _results(self, updates: pl.DataFrame) -> pl.DataFrame:
        """A group that has lost its last row stays, with the aggregates of nothing."""
        merged = self._accumulators.merged(self._rows.of(updates, [_GROUP]), by=[_GROUP])
        results = self._accumulators.results(merged).drop(*self._accumulators.schema)
        empty = updates.join(results, on=_GROUP, how="anti").select(_GROUP)
        types = {name: self.node.fields[name] for name in self.node.aggregates}
        of_nothing = {name: _of_nothing(aggregate) for name, aggregate in self.node.aggregates.items()}
        nothing = frame_of([of_nothing] * empty.height, types, self.node)
        known = pl.concat([results, pl.concat([empty, nothing], how="horizontal").select(results.columns)])
        meta = derived(pl.col(TIMESTAMP), pl.col(ORDER), revision=pl.col(REVISION))
        values = [pl.col(field_column(name)) for name in self.node.aggregates]
        joined = updates.join(known, on=_GROUP, how="left", maintain_order="left")
        named = joined.select(pl.col(_GROUP).alias(field_column(self.node.key)), *values, *meta)
        return named.select(list(rows_schema(self.node.fields)))


def _of_nothing(aggregate: Aggregate) -> Any:
    if aggregate.fold is not None:
        return None if aggregate.fold.initial is None else aggregate.fold.initial()
    return 0 if aggregate.kind in ("count", "distinct", "distinct sketch") else None
