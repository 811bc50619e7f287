"""Windows with one merged accumulator per key and window: tumbling, hopping, global, and sessions.

A session here has no longest duration and is an interval: sorted by start, a new one begins where more than the gap is
between it and all ends so far. So records and sessions are merged alike, and in any order to the same. gap 5::

    known   0────7      14──16               known and new, by start:   0────7
    new              10                                                      10
                                                                              14──16     one session [0, 16]
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from recount.declare.columns import STREAM_TIME, TIMESTAMP
from recount.declare.operators.keys_and_fields import folds_by_key, out_of_order
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.declare.windows import SessionWindows, TimeWindows
from recount.engine.operators.accumulators import Accumulators, FoldTrials
from recount.engine.operators.batch_operator import Output
from recount.engine.operators.batch_rows import ENTRY, JUDGED, OFFSET, ORDER, PARTITION, TOPIC, origin, rows_schema
from recount.engine.operators.windowed_state import BOUNDS, LATEST, is_late, ledger, result_schema, with_windows
from recount.engine.stage.polars_expressions import field_column
from recount.engine.state.keyed_rows import KeyedRows

_SESSION, _SESSION_ROW, _NEW = "__session", "__row", "__new"
_WAS_HELD = pl.col(STREAM_TIME).is_not_null()
_OUTER_BOUNDS = {WINDOW_START: pl.col(WINDOW_START).min(), WINDOW_END: pl.col(WINDOW_END).max()}
_ROW, _POSITION, _BEFORE = "__row", "__position", "__before"


@dataclass
class MergedSessions:
    """Sessions of all keys, and beside them those of each partition alone, by which lateness is judged.

    Closed sessions are kept until every partition has settled them: a record that is on time can still join them, and
    one that is late can have missed them, which the late ledger says.
    """

    node: WindowedAggregate
    windows: SessionWindows
    accumulators: Accumulators
    states: dict[str, KeyedRows] = field(init=False)

    def __post_init__(self) -> None:
        self._key = field_column(self.node.key)
        self._by = [self._key, *BOUNDS]
        self._own_by = [self._key, TOPIC, PARTITION]
        inputs = rows_schema(self.node.input.fields)
        self._sessions = KeyedRows(result_schema(self._key, inputs, self.accumulators), self._by)
        own: dict[str, pl.DataType] = {name: inputs[name] for name in self._own_by}
        own |= dict.fromkeys(BOUNDS, pl.Int64())
        self._own = KeyedRows(own, [*self._own_by, *BOUNDS])
        self.states = {"windows": self._sessions, "own": self._own}
        self._trials = FoldTrials.of(self.node, self.accumulators)

    def changes(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """Join the accepted rows to the sessions: those that grew or came, and those that were merged away."""
        moments = rows.with_columns(pl.col(TIMESTAMP).alias(bound) for bound in BOUNDS)
        accepted = self.accumulators.lifted(self._accepted(moments, output))
        columns = list(self._sessions.schema)
        before = self._sessions.of(accepted, [self._key]).select(columns)
        places = () if self._trials is None else ENTRY
        both = pl.concat([before, accepted.select(*columns, ORDER, *places)], how="diagonal").with_columns(
            pl.col(ORDER).is_not_null().alias(_NEW)
        )
        marked = self._marked(both, [self._key])
        if self._trials is not None:
            known, new = marked.filter(~pl.col(_NEW)), marked.filter(_NEW)
            marked = pl.concat([known, self._trials.passed(known, new, [self._key, _SESSION], output)])
        after = self.accumulators.merged(
            marked,
            [self._key, _SESSION],
            **LATEST,
            **_OUTER_BOUNDS,
            **{ORDER: pl.col(ORDER).drop_nulls().last(), _NEW: pl.col(_NEW).any()},
        )
        changed = after.filter(_NEW)
        withdrawn = before.join(after, on=self._by, how="anti")
        self._sessions.remove(withdrawn)
        self._sessions.put(changed)
        return pl.concat([withdrawn.select(self._by), changed.select(self._by)])

    def updates(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:  # noqa: ARG002 - it is never called
        """Not from merged sessions: what a record merges away depends on all records before it, one by one."""
        raise AssertionError("sessions that emit for each record keep their records, see windowing")

    def forget(self, settled_ms: int) -> None:
        """Drop sessions that no record can join or miss any more."""
        for state in self.states.values():
            state.remove(state.until(WINDOW_END, settled_ms - self.windows.settles_ms(0)))

    def values(self, wanted: pl.DataFrame) -> pl.DataFrame:
        return self._sessions.of(wanted, self._by)

    def _accepted(self, moments: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The rows that are on time for the session that they would be in among those of their own partition.

        Rows that were held back, and so come in another order than the log's, are judged each by itself.
        """
        numbered = moments.with_row_index(_SESSION_ROW)
        # A row cannot be late unless it is late as a session of its own: only partitions with such rows are looked at
        doubtful = numbered.filter(is_late(self.windows))
        in_order = numbered.filter(~_WAS_HELD)
        late = pl.concat(
            [
                self._late(in_order.join(doubtful, on=self._own_by, how="semi", maintain_order="left")),
                doubtful.filter(_WAS_HELD),
            ],
            how="diagonal",
        )
        accepted = numbered.join(late, on=_SESSION_ROW, how="anti", maintain_order="left")
        output.ledger(ledger(late, self._key, self.windows))
        output.note(late, "late")
        output.note(accepted, "counted")
        entered = accepted.filter(pl.col(OFFSET).is_not_null() & ~_WAS_HELD)
        columns = list(self._own.schema)
        before = self._own.of(entered, self._own_by)
        marked = self._marked(pl.concat([before, entered.select(columns)]), self._own_by)
        after = marked.group_by([*self._own_by, _SESSION], maintain_order=True).agg(**_OUTER_BOUNDS).select(columns)
        # Only what changed, or every batch would write all sessions that its keys ever had to the state table.
        self._own.remove(before.join(after, on=columns, how="anti", nulls_equal=True))
        self._own.put(after.join(before, on=columns, how="anti", nulls_equal=True, maintain_order="left"))
        return accepted

    def _late(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The late ones of ``rows``, all of their partitions and keys, with the session that they missed."""
        sessions: dict[tuple[object, ...], list[tuple[int, int]]] = {}
        for *group, start_ms, end_ms in self._own.of(rows, self._own_by).sort(BOUNDS).iter_rows():
            sessions.setdefault(tuple(group), []).append((start_ms, end_ms))
        found = []
        for row, at_ms, judged_ms, *group in rows.select(_SESSION_ROW, TIMESTAMP, JUDGED, *self._own_by).iter_rows():
            if self.windows.is_closed(at_ms + self.windows.reach_ms, judged_ms):
                found.append((row, at_ms, at_ms))
                continue
            own = sessions.setdefault(tuple(group), [])
            first, last = _reached(own, at_ms, self.windows.gap_ms)
            joined = own[first:last]
            start_ms = min([at_ms, *(start for start, _ in joined)])
            end_ms = max([at_ms, *(end for _, end in joined)])
            if self.windows.is_closed(end_ms, judged_ms):
                found.append((row, start_ms, end_ms))
            else:
                own[first:last] = [(start_ms, end_ms)]
        missed = pl.DataFrame(found, {_SESSION_ROW: pl.UInt32(), **dict.fromkeys(BOUNDS, pl.Int64())}, orient="row")
        return rows.drop(BOUNDS).join(missed, on=_SESSION_ROW, how="inner", maintain_order="left")

    def _marked(self, intervals: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        """The ``intervals`` of each group ``by``, numbered by the session that they are in."""
        ends = pl.col(WINDOW_END).cum_max().shift(1)
        begins = (pl.col(WINDOW_START) > ends + self.windows.gap_ms).fill_null(True)
        return intervals.sort(WINDOW_START, maintain_order=True).with_columns(begins.cum_sum().over(by).alias(_SESSION))


def _reached(sessions: Sequence[tuple[int, int]], timestamp_ms: int, gap_ms: int) -> tuple[int, int]:
    """Which of the ``sessions``, sorted and apart, a record joins: from the first number to before the second."""
    first = bisect_left(sessions, timestamp_ms - gap_ms, key=lambda session: session[1])
    last = bisect_right(sessions, timestamp_ms + gap_ms, key=lambda session: session[0])
    return first, max(first, last)


@dataclass
class MergedWindows:
    """Windows that follow from a record's time alone, or hold everything.

    A closed window is kept until no partition can be on time for it: one that was idle may still have records.
    """

    node: WindowedAggregate
    accumulators: Accumulators
    states: dict[str, KeyedRows] = field(init=False)

    def __post_init__(self) -> None:
        self._key = field_column(self.node.key)
        self._by = [self._key, *BOUNDS]
        schema = result_schema(self._key, rows_schema(self.node.input.fields), self.accumulators)
        self._windows = KeyedRows(schema, self._by)
        self.states = {"windows": self._windows}
        self._trials = FoldTrials.of(self.node, self.accumulators)
        self._is_ordered = folds_by_key(self.node)

    def changes(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """Add the rows to their windows; every window that got one has changed."""
        placed = self._placed(rows, output)
        self.add(placed.select(list(self._windows.schema)))
        return placed.group_by(self._by, maintain_order=True).agg(pl.col(ORDER).last())

    def add(self, made: pl.DataFrame) -> None:
        """Merge accumulators of keys and windows, made of rows that are on time, with the known ones."""
        known = self._windows.of(made, self._by).select(made.columns)
        self._windows.put(self.accumulators.merged(pl.concat([known, made]), self._by, **LATEST))

    def updates(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """A result after each row and window: the known one, with all rows up to this one."""
        placed = self._placed(rows, output).with_row_index(_ROW)
        known = self._windows.of(placed, self._by).with_columns(pl.lit(None, pl.UInt32).alias(_ROW))
        columns = [_ROW, *self._windows.schema]
        runs = pl.concat([known.select(columns), placed.select(columns)]).with_columns(
            pl.int_range(pl.len()).over(self._by).alias(_POSITION)
        )
        run = self.accumulators.running(runs, self._by, _POSITION, **LATEST)
        self._windows.put(run)
        orders = placed.select(_ROW, ORDER)
        return run.join(orders, on=_ROW, how="inner").sort(_ROW).drop(_ROW, _POSITION)

    def forget(self, settled_ms: int) -> None:
        """The windows that are closed by every partition's stream time."""
        if isinstance(self.node.windows, TimeWindows):
            self._windows.remove(self._windows.until(WINDOW_END, settled_ms - self.node.windows.closes_ms(0)))

    def values(self, wanted: pl.DataFrame) -> pl.DataFrame:
        return self._windows.of(wanted, self._by)

    def _placed(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """A lifted row for each row and window that it is on time for."""
        windows = self.node.windows
        lifted = self.accumulators.lifted(rows)
        if not isinstance(windows, TimeWindows):
            output.note(rows, "counted")
            return self._tried(lifted.with_columns(pl.lit(0, pl.Int64).alias(bound) for bound in BOUNDS), output)
        assigned = with_windows(lifted, windows)
        late = assigned.filter(is_late(windows))
        on_time = assigned.filter(~is_late(windows))
        output.ledger(ledger(late, self._key, windows))
        output.note(late, "late")
        output.note(on_time, "counted")
        return self._tried(on_time, output)

    def _require_order(self, placed: pl.DataFrame) -> None:
        """Refuse a value of a fold of all time that would come before one that it has taken."""
        known = self._windows.of(placed, self._by)
        for _, column in self.accumulators.folds.values():
            last = known.select(self._by[0], pl.col(column).list.last().struct.field(ORDER).alias(_BEFORE))
            taken = placed.filter(pl.col(column).list.len() > 0).join(last, on=self._by[0], how="left")
            above = pl.col(ORDER).cum_max().shift().over(self._by[0])
            judged = taken.with_columns(pl.max_horizontal(_BEFORE, above).alias(_BEFORE))
            for row in judged.filter(pl.col(ORDER) < pl.col(_BEFORE)).head(1).iter_rows(named=True):
                before, now = origin(pl.Series([row[_BEFORE], row[ORDER]]))
                raise out_of_order(self.node, row[self._key], before, now)

    def _tried(self, placed: pl.DataFrame, output: Output) -> pl.DataFrame:
        if self._is_ordered:
            self._require_order(placed)
        return (
            placed
            if self._trials is None
            else self._trials.passed(self._windows.of(placed, self._by), placed, self._by, output)
        )
