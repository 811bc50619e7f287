"""Base class of the three kinds of windowed state, and when results leave: whether held back, how often emitted.

``MergedWindows`` and ``MergedSessions`` keep one accumulator per window, which is what most topologies need.
``KeptRecords`` keeps every single record, where a window cannot be had by merging: its records are not consecutive
(sliding, last n), it is cut differently (a longest duration), an update per record is wanted of sessions, or a derived
row may be replaced by a later revision.

The declaration alone says which rows can still come once the stream time of every partition has passed them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from recount.declare.columns import REVISION, STREAM_TIME, TIMESTAMP
from recount.declare.operators.event_time import waits_for
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import (
    WINDOW_END,
    WINDOW_START,
    Filter,
    Node,
    Source,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.processing import Process
from recount.declare.operators.stateless import Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.windows import ClosingWindows, GlobalWindow, LastN, SessionWindows, TimeWindows
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_operator import Output
from recount.engine.operators.batch_rows import JUDGED, META, ORDER
from recount.engine.stage.intake import LATE_SCHEMA
from recount.engine.state.keyed_rows import KeyedRows

BOUNDS = (WINDOW_START, WINDOW_END)
"""A window in a frame, in milliseconds; both are 0 where it has no bounds."""
LATEST = {TIMESTAMP: pl.col(TIMESTAMP).max()}
"""The event time of a result: the largest one behind it."""
HELD = "held"
"""Whether the result has changed since it was last emitted."""
NOT_EMITTED = -1


class Windowing(Protocol):
    """The windows of all keys, and what is in them.

    Rows given have a key and in ``judged_ms`` the stream time by which they are judged. A row of a result has the
    columns of the key, of ``BOUNDS``, ``order`` (of the row that caused it), ``timestamp_ms`` and the accumulators.
    """

    @property
    def states(self) -> Mapping[str, KeyedRows]: ...

    def changes(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """Place ``rows``: windows that they changed or withdrew; without bounds, with the last ``order`` that did."""

    def updates(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """Place ``rows``: a result for each update, as they happen; one that is withdrawn has no time."""

    def forget(self, settled_ms: int) -> None:
        """Drop what no row can change any more: every partition's stream time has reached ``settled_ms``."""

    def values(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """The ``wanted`` keys and windows that hold anything: bounds, time and accumulators."""


def with_windows(rows: pl.DataFrame, windows: TimeWindows) -> pl.DataFrame:
    """One row per row and window that holds it, by start, with the window's bounds."""
    time, first, advance = pl.col(TIMESTAMP), windows.first_start_ms, windows.advance_ms
    newest = time - (time - first) % advance
    if advance == windows.size_ms:
        placed = rows.with_columns(newest.alias(WINDOW_START))
    else:
        reach = (time - windows.size_ms + advance).clip(lower_bound=first)
        starts = pl.int_ranges(reach - (reach - first) % advance, newest + 1, advance)
        placed = rows.with_columns(starts.alias(WINDOW_START)).explode(WINDOW_START)
    return placed.with_columns((pl.col(WINDOW_START) + windows.size_ms).alias(WINDOW_END))


def is_late(windows: ClosingWindows) -> pl.Expr:
    """Whether a row is late for the window in ``BOUNDS``; a derived row never is."""
    return (margin_ms(windows) >= 0).fill_null(False)


def margin_ms(windows: ClosingWindows) -> pl.Expr:
    """How far the stream time had passed the window's closing."""
    return pl.col(JUDGED) - pl.col(WINDOW_END) - windows.closes_ms(0)


def ledger(late: pl.DataFrame, key: str, windows: ClosingWindows) -> pl.DataFrame:
    """``late`` rows, each with the window that it missed in ``BOUNDS``, as the late ledger has them."""
    named = late.with_columns(
        pl.col(key).cast(pl.String).alias("key"),
        pl.col(JUDGED).alias(STREAM_TIME),
        margin_ms(windows).alias("margin_ms"),
    )
    return named.select(list(LATE_SCHEMA))


def result_schema(key: str, inputs: Mapping[str, pl.DataType], accumulators: Accumulators) -> dict[str, pl.DataType]:
    """The columns of a window's state: key, bounds, time, accumulators."""
    bounds: dict[str, pl.DataType] = dict.fromkeys(BOUNDS, pl.Int64())
    return {key: inputs[key], **bounds, TIMESTAMP: pl.Int64(), **accumulators.schema}


@dataclass
class Emissions:
    """One row per key and window that has a result, or had one: its last revision, ``NOT_EMITTED`` before the first.

    Rows of closed windows are kept as long as they can be revised, so that their revisions go on counting. Rows of
    results that were withdrawn are kept unless that was ``for_good``: no such window can be there again. The order of
    the last change is kept where windows have no bounds, from which the order of their results follows.
    """

    key: str
    key_type: pl.DataType
    for_good: bool = False
    has_bounds: bool = True
    state: KeyedRows = field(init=False)

    def __post_init__(self) -> None:
        self._by = [self.key, *BOUNDS]
        bounds: dict[str, pl.DataType] = dict.fromkeys(BOUNDS, pl.Int64())
        meta = {name: META[name] for name in (*([] if self.has_bounds else [ORDER]), REVISION)}
        self.state = KeyedRows({self.key: self.key_type, **bounds, **meta, HELD: pl.Boolean()}, self._by)

    def changed(self, changes: pl.DataFrame) -> pl.DataFrame:
        """The results of changed windows, with their last revisions; the last change counts as the cause."""
        return self._with_revisions(changes.unique(self._by, keep="last", maintain_order=True))

    def hold(self, results: pl.DataFrame) -> None:
        """Hold ``changed`` results back."""
        self.state.put(results.with_columns(pl.lit(True).alias(HELD)))

    def due(self, end_ms: int | None) -> pl.DataFrame:
        """The results held of windows that end by ``end_ms``."""
        return self.state.until(WINDOW_END, end_ms, pl.col(HELD))

    def forget(self, end_ms: int) -> None:
        """Drop the rows of windows that end by ``end_ms`` and have left."""
        self.state.remove(self.state.until(WINDOW_END, end_ms, ~pl.col(HELD)))

    def let_go(self, due: pl.DataFrame) -> pl.DataFrame:
        """``due`` results, with no time where there is none any more: those that leave, each with its new revision.

        A withdrawn result leaves as such only if it was emitted before.
        """
        gone = pl.col(TIMESTAMP).is_null()
        never = due.filter(gone & (pl.col(REVISION) == NOT_EMITTED))
        leaving = due.filter(~gone | (pl.col(REVISION) != NOT_EMITTED)).with_columns(pl.col(REVISION) + 1)
        self.state.remove(never)
        self._remember(leaving)
        return leaving

    def let_all_go(self, updates: pl.DataFrame) -> pl.DataFrame:
        """``updates`` as they happened, each with its revision."""
        count = pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over(self._by)
        leaving = self._with_revisions(updates).with_columns((pl.col(REVISION) + count).alias(REVISION))
        self._remember(leaving)
        return leaving

    def _remember(self, leaving: pl.DataFrame) -> None:
        """Store the last leaving row of each key and window; remove one that is withdrawn for good."""
        last = leaving.unique(self._by, keep="last", maintain_order=True)
        gone = pl.col(TIMESTAMP).is_null() & self.for_good
        self.state.remove(last.filter(gone))
        self.state.put(last.filter(~gone).with_columns(pl.lit(False).alias(HELD)))

    def _with_revisions(self, results: pl.DataFrame) -> pl.DataFrame:
        known = self.state.of(results, self._by).select(*self._by, REVISION)
        joined = results.join(known, on=self._by, how="left", maintain_order="left")
        return joined.with_columns(pl.col(REVISION).fill_null(NOT_EMITTED))


def comes_any_time(node: Node) -> bool:
    """Whether rows can leave ``node`` that are derived, and so never late, and yet older than all partitions.

    The updates of what never closes have the time of its latest record, those of a table the time of any of its rows,
    and a timer may be set in the past. A table that holds updates back waits from the first one on, and the latest can
    be of another partition, which was far behind then.
    """
    match node:
        case Suppress() if WINDOW_START not in node.fields and not _is_of_one_partition(node.input):
            return True
        case WindowedAggregate(windows=GlobalWindow() | LastN()) | TableAggregate() | TableTableJoin():
            return True
        case Process(on_timer=timer) if timer is not None:
            return True
        case Source():
            return False
    return any(comes_any_time(above) for above in waits_for(node))


def _is_of_one_partition(table: Node) -> bool:
    """Whether all changes of a key of ``table`` come from one partition: the key is that of its topic."""
    while isinstance(table, ToTable | TableFilter | Filter | Peek | Repartition | Through | WithFields | Select):
        table = table.input
    return isinstance(table, Source)


def is_revised_any_time(node: Node) -> bool:
    """Whether a row that left ``node`` can be replaced however old it is; never where none can be at all.

    A time or sliding window is revised until its own clock has settled its end. An operator below is settled by the
    window's length and grace less, for so much it is delayed: a result that is replaced is not older than that. Length
    10, grace 2, settled at 50: a result that can be replaced is of [38, 48) or later, and below nothing before 38 is
    settled. So it is with sessions, but for ``revised_for_ms``.
    """
    match node:
        case WindowedAggregate(windows=GlobalWindow() | LastN()):
            return True
        case TableAggregate() | TableTableJoin():
            return True
        case Source() | StreamStreamJoin():
            return False
        case StreamTableJoin(left=left):
            return is_revised_any_time(left)
    return any(is_revised_any_time(above) for above in node.inputs)


def revised_for_ms(node: Node) -> int:
    """How much older than its delay says a row of ``node`` can be when it is replaced.

    A session is withdrawn until it is settled, which is the reach and a gap after it was due.
    """
    match node:
        case WindowedAggregate(windows=SessionWindows(reach_ms=reach_ms, gap_ms=gap_ms)):
            return reach_ms + gap_ms
    return 0
