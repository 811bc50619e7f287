"""Tables: a stream read as changes, and the rows of a table that pass a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from recount.core.changelogs import TableFilter, ToTable
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import IS_NULL, REVISION
from recount.spark.columns import TIMESTAMP
from recount.spark.encoded_sizes import passing
from recount.spark.operators.clock import Batch, Clock
from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.lateness import current
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import META, ORDER, SUPERSEDED, rows_schema
from recount.spark.polars_expressions import field_column, polars_type

_HAPPENED, _PLACE, _IS_NEW = "__happened", "__place", "__new"


def with_latest(rows: pl.DataFrame, known: pl.DataFrame, key: str, name: str) -> pl.DataFrame:
    """``rows`` with the column ``name``: whether the change is then the latest of its key, by (time, order).

    ``known`` are the latest changes so far; of changes equal in both the one that is read later is the latest.
    """
    compared = [key, TIMESTAMP, ORDER]
    earlier = known.select(compared).with_columns(pl.lit(False).alias(_IS_NEW))
    changes = pl.concat([earlier, rows.select(compared).with_columns(pl.lit(True).alias(_IS_NEW))])
    placed = (
        changes.with_row_index(_HAPPENED)
        .sort(TIMESTAMP, ORDER, _HAPPENED)
        .with_row_index(_PLACE)
        .sort(_HAPPENED)
        .with_columns((pl.col(_PLACE) == pl.col(_PLACE).cum_max().over(key)).alias(name))
    )
    return rows.with_columns(placed.filter(_IS_NEW)[name])


@dataclass(kw_only=True)
class ToTableOperator:
    """Numbers the changes of each key, and marks those of a versioned table that came too late to matter now.

    Holds for each key the last number, and the time and order of its latest change.
    """

    node: ToTable
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._key = field_column(self.node.key)
        key_type = polars_type(self.node.fields[self.node.key])
        kept = (TIMESTAMP, ORDER, REVISION)
        self._latest = KeyedRows({self._key: key_type, **{name: META[name] for name in kept}}, [self._key])
        self.states = {"latest": self._latest}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:  # noqa: ARG002 - time does not matter
        """A null key names no row."""
        rows = current(inputs[0])
        keyed = rows.filter(pl.col(self._key).is_not_null())
        known = self._latest.of(keyed, [self._key])
        numbered = self._numbered(keyed, known)
        marked = with_latest(numbered, known, self._key, "__latest")
        if not self.node.versioned:
            marked = marked.with_columns(pl.lit(True).alias("__latest"))
        output = Output(
            marked.with_columns((~pl.col("__latest")).alias(SUPERSEDED)).select(list(rows_schema(self.node.fields)))
        )
        output.note(rows.filter(pl.col(self._key).is_null()), "null_key")
        output.note(keyed, "counted")
        self._remember(pl.concat([known, marked.filter("__latest").select(known.columns)]), numbered)
        return output

    def _numbered(self, rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
        last = known.select(self._key, pl.col(REVISION).alias("__last"))
        counted = rows.join(last, on=self._key, how="left", maintain_order="left").with_columns(
            pl.int_range(pl.len(), dtype=pl.Int32).over(self._key).alias("__nth")
        )
        revision = (pl.col("__last").fill_null(-1) + 1 + pl.col("__nth")).cast(META[REVISION])
        return counted.with_columns(revision.alias(REVISION)).drop("__last", "__nth")

    def _remember(self, latest: pl.DataFrame, numbered: pl.DataFrame) -> None:
        last = numbered.group_by(self._key).agg(pl.col(REVISION).max())
        newest = latest.unique(self._key, keep="last", maintain_order=True).drop(REVISION)
        self._latest.put(newest.join(last, on=self._key, how="inner"))


@dataclass(kw_only=True)
class TableFilterOperator:
    """Passes rows, deletes those that no longer pass; holds the keys whose rows have passed.

    A row that does not pass becomes a deletion; where there is none to delete, it is history at most.
    """

    node: TableFilter
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._key = field_column(self.node.key)
        self._passed = KeyedRows({self._key: polars_type(self.node.fields[self.node.key])}, [self._key])
        self.states = {"passed": self._passed}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:  # noqa: ARG002 - time does not matter
        """A superseded change passes by or not, but changes nothing of what there is now."""
        passed = self._passed.of(inputs[0], [self._key]).with_columns(pl.lit(True).alias("__carried"))
        rows = (
            inputs[0]
            .with_columns((~pl.col(IS_NULL) & passing(self.node, inputs[0])).alias("__passes"))
            .join(passed, on=self._key, how="left", maintain_order="left")
        )
        # the changes that are not superseded, key by key: what passed just before decides whether there is a row
        before = pl.col("__passes").shift().over(self._key, SUPERSEDED)
        existed = pl.coalesce(before, pl.col("__carried"), pl.lit(False))
        in_vain = pl.col(SUPERSEDED) | (~pl.col("__passes") & ~existed)
        judged = rows.with_columns(in_vain.alias("__in_vain"))
        last = judged.filter(~pl.col(SUPERSEDED)).unique(self._key, keep="last", maintain_order=True)
        self._passed.put(last.filter("__passes"))
        self._passed.remove(last.filter(~pl.col("__passes")))
        return Output(self._leaving(judged))

    def _leaving(self, judged: pl.DataFrame) -> pl.DataFrame:
        kept = {self.node.key, WINDOW_START, WINDOW_END}
        columns = [field_column(name) for name in self.node.fields if name not in kept]
        emptied = [pl.when("__passes").then(pl.col(column)).alias(column) for column in columns]
        marks = [(~pl.col("__passes")).alias(IS_NULL), pl.col("__in_vain").alias(SUPERSEDED)]
        return judged.with_columns(*emptied, *marks).select(list(rows_schema(self.node.fields)))
