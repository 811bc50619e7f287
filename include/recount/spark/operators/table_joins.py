"""Joins of two tables: one row per key from the latest of both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from recount.core.changelogs import is_versioned
from recount.core.joins import TableTableJoin
from recount.core.own_columns import IS_NULL, REVISION
from recount.spark.columns import TIMESTAMP
from recount.spark.operators.clock import Batch, Clock
from recount.spark.operators.joined_rows import RIGHT, derived, joined_fields, prefixed
from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import META, ORDER, SUPERSEDED, rows_schema
from recount.spark.operators.tables import with_latest
from recount.spark.polars_expressions import field_column, polars_type

_KEY, _SIDE, _SEEN, _TURN, _THERE = "__key", "__side", "__seen_ms", "__turn", "__there"
_EXISTS, _EXISTED, _NUMBER = "exists", "__existed", "__number"
_CHANGE = "change "
"""Before the columns that say of a change what it is, beside the rows that it finds on both sides."""


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
            KeyedRows(rows_schema(side.fields), [key]) for side, key in zip(self.node.inputs, self._keys, strict=True)
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
        versions = pl.concat([known.with_columns(pl.lit(0, pl.UInt32).alias(_TURN)), applied]).sort(_TURN)
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
