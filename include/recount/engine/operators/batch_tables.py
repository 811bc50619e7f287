"""Tables, their filters, joins of two tables, and aggregation of a table's rows by another key.

A join has one row per key from the latest of both sides. An aggregation has each group over the rows in it now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from recount.declare.aggregates import Aggregate
from recount.declare.columns import IS_NULL, REVISION, TIMESTAMP
from recount.declare.operators.joins import TableTableJoin
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.operators.tables import TableAggregate, TableFilter, ToTable, is_versioned
from recount.engine.commit.output_records import passing
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_operator import Batch, Clock, Output, current
from recount.engine.operators.batch_rows import (
    META,
    ORDER,
    RIGHT,
    SUPERSEDED,
    derived,
    joined_fields,
    kept_schema,
    prefixed,
    rows_schema,
)
from recount.engine.operators.folds import frame_of
from recount.engine.stage.polars_expressions import compiled, field_column, polars_type
from recount.engine.state.keyed_rows import KeyedRows

_HAPPENED, _PLACE, _IS_NEW = "__happened", "__place", "__new"
_KEY, _SIDE, _SEEN, _TURN, _THERE = "__key", "__side", "__seen_ms", "__turn", "__there"
_EXISTS, _EXISTED, _NUMBER = "exists", "__existed", "__number"
_CHANGE = "change "
"""Before the columns that say of a change what it is, beside the rows that it finds on both sides."""
_ROW, _GROUP, _OLD_GROUP, _GROUP_CHANGE = "row", "group", "__old_group", "__change"


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


@dataclass(kw_only=True)
class TableTableJoinOperator:
    """Holds the latest change of each key on both sides, and for each key whether it has a result, and its revision.

    Within a batch each side's changes apply in their own order, and the sides take turns by stream time: always the one
    that is behind, the left where they are even. Only the last result of a key does not depend on batches.
    """

    node: TableTableJoin
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._keys = tuple(field_column(side.key) for side in self.node.inputs)
        self._versioned = tuple(is_versioned(side) for side in self.node.inputs)
        self._sides = tuple(
            KeyedRows(kept_schema(side.fields), [key]) for side, key in zip(self.node.inputs, self._keys, strict=True)
        )
        key_type = polars_type(self.node.fields[self.node.key])
        self._results = KeyedRows({_KEY: key_type, _EXISTS: pl.Boolean(), REVISION: META[REVISION]}, [_KEY])
        self.states = {"left": self._sides[0], "right": self._sides[1], "results": self._results}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:  # noqa: ARG002 - time does not matter
        """A change makes a new result, or deletes the one there was; a change older than the latest does nothing."""
        left, right = self._in_turn([self._applied(port, rows) for port, rows in enumerate(inputs)])
        changes = pl.concat([self._changes(0, left), self._changes(1, right)]).sort(_TURN)
        both = self._with_row(0, self._with_row(1, changes, right), left)
        for port, rows in enumerate((left, right)):
            self._remember(port, rows)
        return Output(self._results_of(both))

    def _applied(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        """The changes that are then the latest of their key: of an unversioned table all."""
        if not self._versioned[port]:
            return rows
        key = self._keys[port]
        known = self._sides[port].of(rows, [key])
        return with_latest(rows, known, key, "__latest").filter("__latest").drop("__latest")

    def _in_turn(self, sides: list[pl.DataFrame]) -> list[pl.DataFrame]:
        """Both sides with ``_TURN``, from 1: the place at which each change is applied."""
        seen = [
            rows.select(pl.lit(port).alias(_SIDE), pl.col(TIMESTAMP).cum_max().alias(_SEEN))
            for port, rows in enumerate(sides)
        ]
        turns = pl.concat(seen).sort(_SEEN, _SIDE, maintain_order=True).with_row_index(_TURN, offset=1)
        return [
            rows.with_columns(turns.filter(pl.col(_SIDE) == port).get_column(_TURN)) for port, rows in enumerate(sides)
        ]

    def _changes(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        what = [pl.col(name).alias(_CHANGE + name) for name in (TIMESTAMP, ORDER, SUPERSEDED)]
        return rows.select(pl.col(self._keys[port]).alias(_KEY), _TURN, *what)

    def _with_row(self, port: int, changes: pl.DataFrame, applied: pl.DataFrame) -> pl.DataFrame:
        """Each change with the side's row of its key at that turn; all null where there is none, or it was deleted."""
        key, side = self._keys[port], self._sides[port]
        known = side.of(changes.select(pl.col(_KEY).alias(key)), [key])
        before = known.with_columns(pl.lit(0, pl.UInt32).alias(_TURN))
        versions = pl.concat([before, applied.select(before.columns)]).sort(_TURN)
        there = [pl.when(~pl.col(IS_NULL)).then(pl.col(column)).alias(column) for column in side.schema]
        found = versions.select(pl.col(key).alias(_KEY), _TURN, *there, (~pl.col(IS_NULL)).alias(_THERE))
        named = prefixed(found).rename({RIGHT + _KEY: _KEY, RIGHT + _TURN: _TURN}) if port else found
        return changes.join_asof(named, on=_TURN, by=_KEY, strategy="backward", check_sortedness=False)

    def _remember(self, port: int, rows: pl.DataFrame) -> None:
        """A deletion is of use in a versioned table only: an older change must not undo it."""
        side = self._sides[port]
        side.put(rows)
        if not self._versioned[port]:
            side.remove(side.of(rows, [self._keys[port]]).filter(IS_NULL))

    def _results_of(self, both: pl.DataFrame) -> pl.DataFrame:
        left, right = (pl.col(prefix + _THERE).fill_null(False) for prefix in ("", RIGHT))
        exists = {"inner": left & right, "left": left, "outer": left | right}[self.node.kind]
        known = self._results.of(both, [_KEY]).rename({_EXISTS: _EXISTED, REVISION: "__last"})
        judged = both.join(known, on=_KEY, how="left", maintain_order="left").with_columns(exists.alias(_EXISTS))
        before = pl.coalesce(pl.col(_EXISTS).shift().over(_KEY), pl.col(_EXISTED), pl.lit(False))
        emitted = judged.filter(pl.col(_EXISTS) | before).with_columns(
            (pl.col("__last").fill_null(-1) + pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over(_KEY)).alias(_NUMBER)
        )
        self._results.put(emitted.select(_KEY, _EXISTS, pl.col(_NUMBER).alias(REVISION)))
        return self._leaving(emitted, left)

    def _leaving(self, emitted: pl.DataFrame, left: pl.Expr) -> pl.DataFrame:
        """A deleted result has no field but its key."""
        both, right_only = joined_fields(self.node), joined_fields(self.node, left=False)
        fields: dict[str, pl.Expr] = {
            field_column(name): pl.when(_EXISTS).then(pl.when(left).then(one).otherwise(other))
            for name, one, other in zip(self.node.fields, both, right_only, strict=True)
        }
        fields[field_column(self.node.key)] = pl.col(_KEY)
        meta = derived(
            pl.max_horizontal(_CHANGE + TIMESTAMP, TIMESTAMP, RIGHT + TIMESTAMP),
            pl.col(_CHANGE + ORDER),
            is_null=~pl.col(_EXISTS),
            revision=pl.col(_NUMBER),
            superseded=pl.col(_CHANGE + SUPERSEDED),
        )
        return emitted.select(*(tree.alias(column) for column, tree in fields.items()), *meta)


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
        numbered = changed.with_row_index(_GROUP_CHANGE)
        moved = numbered.filter(pl.col(_OLD_GROUP).ne_missing(pl.col(_GROUP)))
        touched = pl.concat(
            part.select(_GROUP_CHANGE, pl.col(group).alias(_GROUP), TIMESTAMP, ORDER)
            for part, group in ((moved, _OLD_GROUP), (numbered, _GROUP))
        ).filter(pl.col(_GROUP).is_not_null())
        counted = (
            touched.sort(_GROUP_CHANGE, maintain_order=True)
            .group_by(_GROUP, maintain_order=True)
            .agg(pl.col(TIMESTAMP).max(), pl.col(ORDER, _GROUP_CHANGE).last(), pl.len().alias("__updates"))
        )
        known = self._groups.of(counted, [_GROUP]).rename({TIMESTAMP: "__known_ms", REVISION: "__known"})
        return (
            counted.join(known, on=_GROUP, how="left")
            .with_columns(
                pl.max_horizontal(TIMESTAMP, "__known_ms").alias(TIMESTAMP),
                (pl.col("__known").fill_null(-1) + pl.col("__updates")).cast(META[REVISION]).alias(REVISION),
            )
            .sort(_GROUP_CHANGE, maintain_order=True)
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
