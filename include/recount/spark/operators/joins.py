"""Joins of two streams: which rows meet, and which leave alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from recount.core.joins import StreamStreamJoin
from recount.core.own_columns import IS_NULL
from recount.core.schema import FieldType
from recount.spark.columns import TIMESTAMP
from recount.spark.operators.clock import Batch, Clock
from recount.spark.operators.joined_rows import RIGHT, derived, joined_fields, prefixed
from recount.spark.operators.keyed_rows import ARRIVED, ARRIVED_TYPE, KeyedRows, numbered
from recount.spark.operators.lateness import current, on_time
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import ENTRY, META, ORDER, no_rows, rows_schema
from recount.spark.polars_expressions import field_column

ANSWERED = "answered"
"""The row has left, with a partner or alone, or would not leave alone."""
_KEY, _CODE, _ROW, _PLACE = "__key", "__code", "__row", "__place"


def _held(fields: Mapping[str, FieldType]) -> dict[str, pl.DataType]:
    """The columns of a row of ``fields`` that waits for partners; what it leads to is derived."""
    columns = {name: kind for name, kind in rows_schema(fields).items() if name not in META}
    return {**columns, TIMESTAMP: META[TIMESTAMP], ORDER: META[ORDER], ARRIVED: ARRIVED_TYPE, ANSWERED: pl.Boolean()}


@dataclass(kw_only=True)
class StreamStreamJoinOperator:
    """Holds both streams' rows until no partner can come: ``ts + before + after + grace`` lies behind all partitions.

    The pairs of a batch are the new left rows with all right ones, and the old left rows with the new right ones, so
    that each pair is made once wherever batches are cut.
    """

    node: StreamStreamJoin
    clock: Clock
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        self._keys = (field_column(self.node.left.key), field_column(self.node.right.key))
        self._sides = tuple(KeyedRows(_held(side.fields), [ARRIVED]) for side in self.node.inputs)
        self._lone = (self.node.kind != "inner", self.node.kind == "outer")
        self.states = {"left": self._sides[0], "right": self._sides[1]}
        self.clocks = {"clock": self.clock}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Judge the new rows, pair them, and let those alone that can have no partner any more."""
        output = Output(no_rows(self.node.fields))
        valued = [self._valued(rows, output) for rows in inputs]
        keyless = [rows.filter(pl.col(key).is_null()) for rows, key in zip(valued, self._keys, strict=True)]
        keyed = [rows.filter(pl.col(key).is_not_null()) for rows, key in zip(valued, self._keys, strict=True)]
        self.clock.advance(batch, *(pl.concat([rows.select(ENTRY) for rows in sides]) for sides in (keyless, keyed)))
        parts = [self._keyless(port, keyless[port], output) for port in (0, 1)]
        new = [self._new(port, keyed[port], output) for port in (0, 1)]
        near = [self._near(port, new[1 - port]) for port in (0, 1)]
        pairs = pl.concat([self._pairs(new[0], pl.concat([near[1], new[1]])), self._pairs(near[0], new[1])])
        answered = (pairs.select(ARRIVED), pairs.select(pl.col(RIGHT + ARRIVED).alias(ARRIVED)))
        parts.append(self._both(pairs).sort(TIMESTAMP, ORDER))
        alone = [self._alone(port, self._settle(port, new[port], answered[port])) for port in (1, 0)]
        parts.append(pl.concat(alone).sort(TIMESTAMP, maintain_order=True))
        output.rows = pl.concat(parts)
        return output

    def _valued(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        rows = current(rows)
        output.note(rows.filter(IS_NULL), "null_value")
        return rows.filter(~pl.col(IS_NULL))

    def _keyless(self, port: int, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """A null key has no partner: on an outer side it leaves alone at once."""
        output.note(rows, "counted" if self._lone[port] else "null_key")
        return self._alone(port, rows if self._lone[port] else rows.clear())

    def _new(self, port: int, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        bound_ms = (self.node.after_ms, self.node.before_ms)[port] + self.node.grace_ms
        taken = on_time(rows, self.clock, bound_ms=bound_ms, key=pl.col(self._keys[port]), output=output)
        output.note(taken, "counted")
        side = self._sides[port]
        return (
            numbered(taken, side).with_columns(pl.lit(not self._lone[port]).alias(ANSWERED)).select(list(side.schema))
        )

    def _near(self, port: int, others: pl.DataFrame) -> pl.DataFrame:
        """The rows held of a side that are near enough in time to be partners of one of the ``others``."""
        node, time = self.node, pl.col(TIMESTAMP)
        if others.is_empty():
            return self._sides[port].where(pl.lit(False))
        back_ms, ahead_ms = ((node.after_ms, node.before_ms), (node.before_ms, node.after_ms))[port]
        first_ms, last_ms = others.select(time.min() - back_ms, time.max().alias("last_ms") + ahead_ms).row(0)
        return self._sides[port].where(time.is_between(first_ms, last_ms))

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        node = self.node
        rows = rows_within(left, right, keys=self._keys, before_ms=node.before_ms, after_ms=node.after_ms)
        return pl.concat([left[rows[0]], prefixed(right[rows[1]])], how="horizontal")

    def _settle(self, port: int, new: pl.DataFrame, answered: pl.DataFrame) -> pl.DataFrame:
        """Remember the side as it is after the batch; returns the rows that leave alone now."""
        side, frontier_ms, forgotten_ms = self._sides[port], self.clock.frontier_ms, self.clock.settled_ms
        bound_ms = pl.col(TIMESTAMP) + self.node.delay_ms
        side.put(new)
        is_alone = pl.lit(False) if frontier_ms is None else ~pl.col(ANSWERED) & (bound_ms < frontier_ms)
        alone = side.where(is_alone).join(answered, on=ARRIVED, how="anti")
        left = pl.concat([answered, alone.select(ARRIVED)])
        side.put(side.of(left, [ARRIVED]).filter(~pl.col(ANSWERED)).with_columns(pl.lit(True).alias(ANSWERED)))
        if forgotten_ms is not None:
            side.remove(side.where(bound_ms < forgotten_ms))
        return alone.sort(TIMESTAMP, pl.col(self._keys[port]).cast(pl.String), ARRIVED)

    def _both(self, pairs: pl.DataFrame) -> pl.DataFrame:
        later = pl.max_horizontal(TIMESTAMP, RIGHT + TIMESTAMP)
        return pairs.select(*joined_fields(self.node), *derived(later, pl.col(ORDER) + pl.col(RIGHT + ORDER)))

    def _alone(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        if port == 0:
            fields = joined_fields(self.node, right=False)
            return rows.select(*fields, *derived(pl.col(TIMESTAMP), pl.col(ORDER)))
        fields = joined_fields(self.node, left=False)
        return prefixed(rows).select(*fields, *derived(pl.col(RIGHT + TIMESTAMP), pl.col(RIGHT + ORDER)))


def rows_within(
    left: pl.DataFrame,
    right: pl.DataFrame,
    *,
    keys: tuple[str, str],
    before_ms: int,
    after_ms: int,
    places: int = 2**62,
) -> tuple[pl.Series, pl.Series]:
    """The pairs ``l``, ``r`` of one key with ``l.ts - before_ms <= r.ts <= l.ts + after_ms``, as row numbers.

    Memory follows the rows and the pairs, however many rows a key has. Null keys meet nothing. Each side becomes one
    list of places ``code of its key * span + time``, where ``span`` is so wide that the interval of a left row ends
    before the next key's places begin; a binary search finds the right places of each interval.
    """
    found = list(_found(left, right, keys, before_ms, after_ms, places))
    rows = [np.concatenate(side) for side in zip(*found, strict=True)] or [np.empty(0, np.int64)] * 2
    return pl.Series(rows[0], dtype=pl.Int64), pl.Series(rows[1], dtype=pl.Int64)


def _found(
    left: pl.DataFrame, right: pl.DataFrame, keys: tuple[str, str], before_ms: int, after_ms: int, places: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    sides = [
        rows.select(pl.col(key).alias(_KEY), TIMESTAMP).with_row_index(_ROW)
        for rows, key in zip((left, right), keys, strict=True)
    ]
    codes = min(sides, key=lambda side: side.height).select(_KEY).drop_nulls().unique().with_row_index(_CODE)
    coded = [side.join(codes, on=_KEY, how="inner") for side in sides]
    if any(side.is_empty() for side in coded):
        return
    times = pl.concat([side[TIMESTAMP] for side in coded])
    first_ms = _integer(times.min()) - before_ms
    span = _integer(times.max()) + after_ms - first_ms + 1
    at_once = max(places // span, 1)
    for code in range(0, codes.height, at_once):
        some = [side.filter(pl.col(_CODE).is_between(code, code + at_once, closed="left")) for side in coded]
        place = (pl.col(_CODE).cast(pl.Int64) - code) * span + (pl.col(TIMESTAMP) - first_ms)
        placed, searched = (side.select(_ROW, place.alias(_PLACE)).sort(_PLACE) for side in some)
        begin = searched[_PLACE].search_sorted(placed[_PLACE] - before_ms, "left").to_numpy().astype(np.int64)
        end = searched[_PLACE].search_sorted(placed[_PLACE] + after_ms, "right").to_numpy().astype(np.int64)
        met = end - begin
        stop = met.cumsum()
        there = np.arange(met.sum()) + (begin - stop + met).repeat(met)
        yield placed[_ROW].to_numpy().repeat(met), searched[_ROW].to_numpy()[there]


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value
