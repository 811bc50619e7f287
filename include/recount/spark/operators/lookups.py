"""Joins of a stream with a table: each record looks up the table's row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from recount.core.joins import StreamTableJoin
from recount.core.own_columns import IS_NULL
from recount.spark.columns import STREAM_TIME, TIMESTAMP
from recount.spark.operators.clock import Batch, Clock, with_judged
from recount.spark.operators.joined_rows import RIGHT, prefixed
from recount.spark.operators.keyed_rows import ARRIVED, ARRIVED_TYPE, KeyedRows, numbered
from recount.spark.operators.lateness import late_for_all
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import JUDGED, META, OFFSET, ORDER, rows_schema
from recount.spark.polars_expressions import compiled, field_column

_BY, _FOUND, _PLACE, _AS_OF = "__by", "__found", "__place", "as_of_ms"
SWEEPS = 16
"""So often versions are forgotten while time passes by a history: each time all that are held are looked at."""


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
        self._table = KeyedRows(rows_schema(self.node.right.fields), identity)
        as_of = {} if self.clock is None else {_AS_OF: META[TIMESTAMP]}
        waiting = {**rows_schema(self.node.left.fields), **as_of, ARRIVED: ARRIVED_TYPE}
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
        timed = with_judged(new, batch.read).with_columns(reached.alias(JUDGED))
        history_ms = self.node.history_ms or 0
        margin = pl.col(JUDGED) - history_ms - pl.col(TIMESTAMP) - 1
        late = timed.filter((margin >= 0) & pl.col(OFFSET).is_not_null() & self._by.is_not_null())
        output.ledger(late_for_all(late, pl.col(JUDGED), pl.col(field_column(self.node.key)), margin))
        as_of = pl.max_horizontal(TIMESTAMP, pl.col(JUDGED) - history_ms)
        return timed.with_columns(as_of.alias(_AS_OF)).drop(JUDGED)

    def _forget(self, clock: Clock) -> None:
        """Of each key all versions but the newest that the history has left behind, now and then.

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
        passed = self._table.where(pl.col(TIMESTAMP) <= (bound_ms if waiting is None else min(bound_ms, waiting)))
        newest_ms = pl.col(TIMESTAMP).max().over(self._key)
        self._table.remove(passed.filter(pl.col(TIMESTAMP) < newest_ms))

    def _apply(self, changes: pl.DataFrame) -> None:
        """As of arrival the change that is read last holds; of versions with one time the one of the higher order."""
        if self._keeps_versions:
            rivals = self._table.of(changes, self._table.identity)
            self._table.put(pl.concat([rivals, changes]).sort(ORDER, maintain_order=True))
        else:
            self._table.put(changes)
            self._table.remove(self._table.of(changes, [self._key]).filter(IS_NULL))

    def _due(self, batch: Batch, clock: Clock, new: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The records that the table's time has reached, by time; the others wait."""
        clock.advance(batch)
        reached_ms = None if clock.frontier_ms is None else clock.frontier_ms - (self.node.grace_ms or 0)
        is_due = pl.lit(False) if reached_ms is None else pl.col(TIMESTAMP) <= reached_ms
        held, arrived = self._waiting.where(is_due), numbered(batch.held_back(new), self._waiting)
        due = pl.concat([held, arrived.filter(is_due)]).sort(TIMESTAMP, ORDER, ARRIVED)
        self._waiting.remove(held)
        self._waiting.put(arrived.filter(~is_due))
        output.note(arrived.filter(~is_due), "waiting")
        return due.drop(ARRIVED)

    def _looked_up(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        left = self.node.left
        asked = rows.with_columns(self._by.alias(_BY)).with_row_index(_PLACE)
        found = self._as_of(asked) if self._keeps_versions else self._current(asked)
        found = found.with_columns(pl.col(RIGHT + IS_NULL).eq(False).fill_null(False).alias(_FOUND)).sort(_PLACE)
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
        """The table's rows of the keys that are asked for."""
        return self._table.of(asked.select(pl.col(_BY).alias(self._key)), [self._key])
