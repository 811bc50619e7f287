"""Joins of two streams, and of a stream with a table.

Between streams: which rows meet, and which leave alone. With a table: each record looks up the table's row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from recount.declare.columns import IS_NULL, STREAM_TIME, TIMESTAMP
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin
from recount.declare.schema import FieldType
from recount.engine.operators.batch_operator import Batch, Clock, Output, current, late_for_all, on_time
from recount.engine.operators.batch_rows import (
    ENTRY,
    JUDGED,
    META,
    OFFSET,
    ORDER,
    RIGHT,
    derived,
    joined_fields,
    kept_schema,
    no_rows,
    prefixed,
    rows_schema,
    with_reached,
)
from recount.engine.stage.polars_expressions import compiled, field_column
from recount.engine.state.keyed_rows import ARRIVED, ARRIVED_TYPE, KeyedRows, numbered

ANSWERED = "answered"
"""The row has left, with a partner or alone, or would not leave alone."""
_KEY, _CODE, _ROW, _PLACE = "__key", "__code", "__row", "__place"
_BY, _FOUND, _ROW_PLACE, _AS_OF = "__by", "__found", "__place", "as_of_ms"
SWEEPS = 16
"""So often versions are forgotten while time passes by a history: each time all that are held are looked at."""


def _held(fields: Mapping[str, FieldType]) -> dict[str, pl.DataType]:
    """The columns of a row of ``fields`` that waits for partners; what it leads to is derived."""
    columns = {name: kind for name, kind in rows_schema(fields).items() if name not in META}
    return {**columns, TIMESTAMP: META[TIMESTAMP], ORDER: META[ORDER], ARRIVED: ARRIVED_TYPE, ANSWERED: pl.Boolean()}


@dataclass(kw_only=True)
class StreamStreamJoinOperator:
    """Holds both streams' rows until no partner can come: all partitions are past ``ts + before + after + grace``.

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
        """The rows held of a side that have a key of the ``others`` and are near enough in time to be partners."""
        node, time, key = self.node, pl.col(TIMESTAMP), self._keys[port]
        held = self._sides[port].of(others.select(pl.col(self._keys[1 - port]).alias(key)), [key])
        if held.is_empty():
            return held
        back_ms, ahead_ms = ((node.after_ms, node.before_ms), (node.before_ms, node.after_ms))[port]
        first_ms, last_ms = others.select(time.min() - back_ms, time.max().alias("last_ms") + ahead_ms).row(0)
        return held.filter(time.is_between(first_ms, last_ms))

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        node = self.node
        rows = rows_within(left, right, keys=self._keys, before_ms=node.before_ms, after_ms=node.after_ms)
        return pl.concat([left[rows[0]], prefixed(right[rows[1]])], how="horizontal")

    def _settle(self, port: int, new: pl.DataFrame, answered: pl.DataFrame) -> pl.DataFrame:
        """Remember the side as it is after the batch; returns the rows that leave alone now."""
        side, frontier_ms, forgotten_ms = self._sides[port], self.clock.frontier_ms, self.clock.settled_ms
        side.put(new)
        due_ms = None if frontier_ms is None else frontier_ms - self.node.delay_ms - 1
        unanswered = side.until(TIMESTAMP, due_ms if self._lone[port] else None, ~pl.col(ANSWERED))
        alone = unanswered.join(answered, on=ARRIVED, how="anti")
        left = pl.concat([answered, alone.select(ARRIVED)])
        side.put(side.of(left, [ARRIVED]).filter(~pl.col(ANSWERED)).with_columns(pl.lit(True).alias(ANSWERED)))
        if forgotten_ms is not None:
            side.remove(side.until(TIMESTAMP, forgotten_ms - self.node.delay_ms - 1))
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


@dataclass(kw_only=True)
class StreamTableJoinOperator:
    """Holds the table, and with a grace the rows that wait for it; ``table_clock`` (with a grace) is the table's time.

    A batch's changes of the table are applied before its records look anything up. As of the event's time every change
    is kept as a version, of versions with one time the latest alone. Without a history that is for good; with one, of
    which ``clock`` is the time, until no record can ask for it any more. As of arrival it is the row that was read
    last. With a grace all records count as held back, because whether one had to wait depends on batches.
    """

    node: StreamTableJoin
    clock: Clock | None = None
    table_clock: Clock | None = None
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        assert (self.table_clock is None) == (self.node.grace_ms is None), "a grace waits for the table's clock"
        assert (self.clock is None) == (self.node.history_ms is None), "a history has a clock"
        self._keeps_versions = self.node.as_of == "event"
        self._key = field_column(self.node.right.key)
        identity = [self._key, TIMESTAMP] if self._keeps_versions else [self._key]
        self._table = KeyedRows(kept_schema(self.node.right.fields), identity)
        as_of = {} if self.clock is None else {_AS_OF: META[TIMESTAMP]}
        waiting = {**kept_schema(self.node.left.fields), **as_of, ARRIVED: ARRIVED_TYPE}
        self._waiting = KeyedRows(waiting, [ARRIVED])
        self._forgotten_ms: int | None = None
        self.states = {"table": self._table}
        self.clocks = {} if self.clock is None else {"history": self.clock}
        if self.table_clock is not None:
            self.states["waiting"], self.clocks["table"] = self._waiting, self.table_clock

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Apply the table's changes, then look up every record that has not to wait."""
        records, changes = inputs
        self._apply(changes)
        output = Output(records)
        output.note(records.filter(IS_NULL), "null_value")
        valued = records.filter(~pl.col(IS_NULL))
        asking = valued if self.clock is None else self._asking(batch, self.clock, valued, output)
        due = asking if self.table_clock is None else self._due(batch, self.table_clock, asking, output)
        output.rows = self._looked_up(due, output)
        if self.clock is not None:
            self._forget(self.clock)
        return output

    def _asking(self, batch: Batch, clock: Clock, new: pl.DataFrame, output: Output) -> pl.DataFrame:
        """``new`` rows with the time as of which each asks; those that ask as of a later one than their own are late.

        A row that nobody has held back goes by the stream time of its own partition, a row of a partition that had been
        idle, or that was held back, by the frontier that the batch before had reached.
        """
        clock.advance(batch)
        is_read_now = pl.col(STREAM_TIME).is_null() & pl.col(OFFSET).is_not_null()
        of_partition = pl.when(is_read_now).then(JUDGED)
        reached = pl.max_horizontal(of_partition, pl.lit(clock.before_ms, pl.Int64))
        timed = batch.judged(new).with_columns(reached.alias(JUDGED))
        history_ms = self.node.history_ms or 0
        margin = pl.col(JUDGED) - history_ms - pl.col(TIMESTAMP) - 1
        late = timed.filter((margin >= 0) & pl.col(OFFSET).is_not_null() & self._by.is_not_null())
        output.ledger(late_for_all(late, pl.col(JUDGED), pl.col(field_column(self.node.key)), margin))
        as_of = pl.max_horizontal(TIMESTAMP, pl.col(JUDGED) - history_ms)
        return timed.with_columns(as_of.alias(_AS_OF)).drop(JUDGED)

    def _forget(self, clock: Clock) -> None:
        """Now and then drop, of each key, all versions that the history has left behind except the newest of them.

        A later row asks as of ``frontier - history`` at the earliest, and the rows that wait as of what they hold.
        """
        history_ms = self.node.history_ms
        if history_ms is None or clock.frontier_ms is None:
            return
        bound_ms = clock.frontier_ms - history_ms
        if self._forgotten_ms is not None and bound_ms - self._forgotten_ms <= history_ms // SWEEPS:
            return
        self._forgotten_ms = bound_ms
        waiting = self._waiting.rows.select(pl.col(_AS_OF).min()).item()
        passed = self._table.until(TIMESTAMP, bound_ms if waiting is None else min(bound_ms, waiting))
        newest_ms = pl.col(TIMESTAMP).max().over(self._key)
        self._table.remove(passed.filter(pl.col(TIMESTAMP) < newest_ms))

    def _apply(self, changes: pl.DataFrame) -> None:
        """Apply changes. Unversioned, the last one read holds; of versions with one time, that of the higher order."""
        if self._keeps_versions:
            rivals = self._table.of(changes, self._table.identity)
            new = changes.select(rivals.columns)
            self._table.put(pl.concat([rivals, new]).sort(ORDER, maintain_order=True))
        else:
            self._table.put(changes)
            self._table.remove(self._table.of(changes, [self._key]).filter(IS_NULL))

    def _due(self, batch: Batch, clock: Clock, new: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The records that the table's time has reached, by time; the others wait."""
        clock.advance(batch)
        reached_ms = None if clock.frontier_ms is None else clock.frontier_ms - (self.node.grace_ms or 0)
        is_due = pl.lit(False) if reached_ms is None else pl.col(TIMESTAMP) <= reached_ms
        held = self._waiting.until(TIMESTAMP, reached_ms)
        arrived = numbered(batch.held_back(new), self._waiting).select(held.columns)
        due = pl.concat([held, arrived.filter(is_due)]).sort(TIMESTAMP, ORDER, ARRIVED)
        self._waiting.remove(held)
        self._waiting.put(arrived.filter(~is_due))
        output.note(arrived.filter(~is_due), "waiting")
        return with_reached(due.drop(ARRIVED))

    def _looked_up(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        left = self.node.left
        asked = rows.with_columns(self._by.alias(_BY)).with_row_index(_ROW_PLACE)
        found = self._as_of(asked) if self._keeps_versions else self._current(asked)
        found = found.with_columns(pl.col(RIGHT + IS_NULL).eq(False).fill_null(False).alias(_FOUND)).sort(_ROW_PLACE)
        keyed = found.filter(pl.col(_BY).is_not_null())
        output.asked = keyed.height, keyed.filter(~pl.col(_FOUND)).height
        if self.node.kind == "inner":
            missed = found.filter(~pl.col(_FOUND))
            output.note(missed.filter(pl.col(_BY).is_null()), "null_key")
            output.note(missed.filter(pl.col(_BY).is_not_null()), "filtered")
            found = found.filter(_FOUND)
        output.note(found, "counted")
        added = [field_column(name) for name in self.node.fields if name not in left.fields]
        # a deleted row can still have its window's bounds
        values = [pl.when(_FOUND).then(pl.col(RIGHT + column)).alias(column) for column in added]
        return found.with_columns(values).select(list(rows_schema(self.node.fields)))

    @property
    def _by(self) -> pl.Expr:
        left = self.node.left
        return pl.col(field_column(left.key)) if self.node.by is None else compiled(self.node.by, left.fields)

    def _current(self, asked: pl.DataFrame) -> pl.DataFrame:
        return asked.join(prefixed(self._rows_of(asked)), left_on=_BY, right_on=RIGHT + self._key, how="left")

    def _as_of(self, asked: pl.DataFrame) -> pl.DataFrame:
        as_of = TIMESTAMP if self.clock is None else _AS_OF
        return asked.sort(as_of).join_asof(
            prefixed(self._rows_of(asked)).sort(RIGHT + TIMESTAMP),
            left_on=as_of,
            right_on=RIGHT + TIMESTAMP,
            by_left=_BY,
            by_right=RIGHT + self._key,
            strategy="backward",
            check_sortedness=False,
        )

    def _rows_of(self, asked: pl.DataFrame) -> pl.DataFrame:
        return self._table.of(asked.select(pl.col(_BY).alias(self._key)), [self._key])
