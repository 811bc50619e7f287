"""Operators that hold rows back: suppressed updates, records that may be duplicates, records put in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from recount.declare.columns import TIMESTAMP
from recount.declare.expression_types import type_of
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.operators.processing import Deduplicate, InOrder
from recount.declare.operators.tables import Suppress
from recount.engine.operators.batch_operator import Batch, Clock, Output, current, held_back, on_time
from recount.engine.operators.batch_rows import META, ORDER, kept_schema, no_rows, rows_schema, time_order, with_reached
from recount.engine.stage.polars_expressions import compiled, field_column, polars_type
from recount.engine.state.keyed_rows import ARRIVED, ARRIVED_TYPE, KeyedRows, numbered

_FIRST = "first_ms"
IDENTITY = "id"
"""The column of a deduplication's state that has the id."""


def let_go(waiting: KeyedRows, new: pl.DataFrame, due_ms: int | None, output: Output) -> pl.DataFrame:
    """The rows of ``waiting`` and ``new`` up to ``due_ms``, by (event time, topic, partition, offset); others wait."""
    is_due = pl.lit(False) if due_ms is None else pl.col(TIMESTAMP) <= due_ms
    held, arrived = waiting.until(TIMESTAMP, due_ms), numbered(new, waiting).select(list(waiting.schema))
    due = pl.concat([held, arrived.filter(is_due)]).sort(TIMESTAMP, ORDER, ARRIVED)
    waiting.remove(held)
    waiting.put(arrived.filter(~is_due))
    output.note(arrived.filter(~is_due), "waiting")
    return with_reached(due.drop(ARRIVED))


@dataclass(kw_only=True)
class SuppressOperator:
    """Holds the latest update of each key and window, with the time of the first one held; ``clock`` has no delay.

    Which updates leave depends on batches; the last of each key and window does not.
    """

    node: Suppress
    clock: Clock
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        fields = self.node.fields
        self._about = [field_column(name) for name in (self.node.key, WINDOW_START, WINDOW_END) if name in fields]
        self._held = KeyedRows({**kept_schema(fields), _FIRST: META[TIMESTAMP]}, self._about)
        self.states = {"held": self._held}
        self.clocks = {"clock": self.clock}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Hold the new updates, then let go what is due, and the oldest of what is too much."""
        self.clock.advance(batch)
        rows = batch.held_back(current(inputs[0]))
        known = self._held.of(rows, self._about).select(*self._about, pl.col(_FIRST).alias("__known_ms"))
        first = pl.coalesce("__known_ms", pl.col(TIMESTAMP).first().over(self._about))
        self._held.put(
            rows.join(known, on=self._about, how="left", nulls_equal=True, maintain_order="left").with_columns(
                first.alias(_FIRST)
            )
        )
        key, *bounds = self._about
        most = self.node.max_rows
        is_too_much = most is not None and self._held.height > most
        held = self._held.rows if is_too_much else self._held.until(_FIRST, self._due_ms)
        ordered = held.sort(_FIRST, pl.col(key).cast(pl.String), *bounds)
        leaving = ordered.filter(self._is_due_or_too_much()) if is_too_much else ordered
        self._held.remove(leaving)
        return Output(with_reached(leaving.drop(_FIRST)).select(list(rows_schema(self.node.fields))))

    @property
    def _due_ms(self) -> int | None:
        frontier_ms = self.clock.frontier_ms
        return None if frontier_ms is None else frontier_ms - self.node.limit_ms

    def _is_due_or_too_much(self) -> pl.Expr:
        # the rows are sorted by the time of their first update: as many of the youngest stay as may be held
        is_due = pl.lit(False) if self._due_ms is None else pl.col(_FIRST) <= self._due_ms
        return is_due | (pl.int_range(pl.len()) < pl.len().cast(pl.Int64) - self.node.max_rows)


@dataclass(kw_only=True)
class DeduplicateOperator:
    """Holds the times of the winners of each id; where ids do not determine the partition, also what may still win.

    A winner is forgotten when no record within its horizon can be on time any more.
    """

    node: Deduplicate
    clock: Clock
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        fields = self.node.input.fields
        self._by = compiled(self.node.by, fields).alias(IDENTITY)
        given = type_of(self.node.by, fields)
        assert given is not None, "refused at declaration"
        id_type = polars_type(given)
        self._winners = KeyedRows({IDENTITY: id_type, TIMESTAMP: META[TIMESTAMP]}, [IDENTITY, TIMESTAMP])
        self._waiting = KeyedRows({**kept_schema(fields), IDENTITY: id_type, ARRIVED: ARRIVED_TYPE}, [ARRIVED])
        self.states = {"winners": self._winners, "waiting": self._waiting}
        self.clocks = {"clock": self.clock}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """The first by offset leaves at once; the first by event time when none can come before it on time."""
        identified = current(inputs[0]).with_columns(self._by)
        nameless, named = (
            identified.filter(pl.col(IDENTITY).is_null()),
            identified.filter(pl.col(IDENTITY).is_not_null()),
        )
        self.clock.advance(batch, nameless, named)
        output = Output(no_rows(self.node.fields))
        output.note(nameless, "null_key")
        taken = on_time(named, self.clock, bound_ms=self.node.horizon_ms, key=pl.col(IDENTITY), output=output)
        judged = self._judged(taken if self.node.partitioned else self._decided(held_back(taken), output), output)
        output.rows = judged.select(list(rows_schema(self.node.fields)))
        self._forget()
        return output

    def _decided(self, new: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The rows before which none can come on time, by (event time, partition, offset); the others wait."""
        frontier_ms = self.clock.frontier_ms
        due_ms = None if frontier_ms is None else frontier_ms - self.node.horizon_ms - 1
        return let_go(self._waiting, new, due_ms, output)

    def _judged(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The ``rows`` that win, taken in their order: whether one wins depends on who won before it."""
        known = self._winners.of(rows, [IDENTITY])
        is_alone = (pl.len().over(IDENTITY) == 1) & ~pl.col(IDENTITY).is_in(known[IDENTITY].implode())
        wins = rows.select(is_alone).to_series().to_numpy().copy()
        won: dict[Any, list[int]] = {}
        for identity, winner_ms in known.iter_rows():
            won.setdefault(identity, []).append(winner_ms)
        places = np.flatnonzero(~wins)
        for place, (identity, at_ms) in zip(places, rows[places].select(IDENTITY, TIMESTAMP).iter_rows(), strict=True):
            rivals = won.setdefault(identity, [])
            wins[place] = all(abs(at_ms - winner_ms) > self.node.horizon_ms for winner_ms in rivals)
            if wins[place]:
                rivals.append(at_ms)
        first_of = pl.Series(wins)
        winners = rows.filter(first_of)
        output.note(winners, "counted")
        output.note(rows.filter(~first_of), "deduplicated")
        self._winners.put(winners)
        return winners

    def _forget(self) -> None:
        forgotten_ms = self.clock.settled_ms
        if forgotten_ms is not None:
            self._winners.remove(self._winners.until(TIMESTAMP, forgotten_ms - 2 * self.node.horizon_ms - 1))


@dataclass(kw_only=True)
class InOrderOperator:
    """Holds the records before which an earlier one may still come on time."""

    node: InOrder
    clock: Clock
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = KeyedRows({**kept_schema(self.node.fields), ARRIVED: ARRIVED_TYPE}, [ARRIVED])
        self.states = {"waiting": self._waiting}
        self.clocks = {"clock": self.clock}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Whatever was let go binds: what comes before it now is late."""
        self.clock.advance(batch)
        output = Output(no_rows(self.node.fields))
        taken = on_time(
            current(inputs[0]),
            self.clock,
            bound_ms=self.node.grace_ms,
            key=pl.col(field_column(self.node.key)),
            output=output,
            passed_ms=self.clock.before_ms,
        )
        frontier_ms = self.clock.frontier_ms
        due_ms = None if frontier_ms is None else frontier_ms - self.node.grace_ms - 1
        due = let_go(self._waiting, held_back(taken), due_ms, output)
        output.rows = due.with_columns(time_order().alias(ORDER)).select(list(rows_schema(self.node.fields)))
        return output
