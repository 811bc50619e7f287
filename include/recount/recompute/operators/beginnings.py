"""A sink that was added to a stream at work: only what left the operators above it after some batch is written to it.

When a row left follows from its records' places in the log, from the frontiers that they waited for, and of a window
from when it closed and which records changed it. Where it does not, the sink cannot be added (``untold``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from recount.declare.operators.nodes import (
    WINDOW_END,
    WINDOW_START,
    Filter,
    Node,
    SelectKey,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.stateless import FlatMap, Peek, Repartition, Select, Through
from recount.declare.operators.tables import TableFilter, ToTable
from recount.declare.windows import SessionWindows, TimeWindows
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, named
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.frontiers import BatchEnds
from recount.recompute.operators.log_order import is_ordered, leaves_at_once, leaves_when_read, waits
from recount.recompute.operators.log_rows import ORDER, TIME, Rows, is_place
from recount.recompute.operators.log_stateless import in_range, stateless
from recount.recompute.operators.log_windows import END, START
from recount.recompute.operators.stateful import Stateful
from recount.recompute.rules.time_rules import overdue_ms

ROW_BY_ROW = Filter | WithFields | SelectKey | Select | FlatMap | Peek | Repartition | Through


def untold(node: Node) -> Node | None:
    """The operator, ``node`` or one above it, of whose rows the log does not say which left after a batch."""
    match node:
        case WindowedAggregate(windows=TimeWindows() | SessionWindows()):
            return None if _made_of_records(node.input) else node
        case ToTable() | TableFilter():
            return None if leaves_at_once(node) and _has_an_order(node) else node
        case Filter() | SelectKey() | FlatMap() if _leaves_updates(node.input):
            return node
        case Filter() | WithFields() | SelectKey() | Select() | FlatMap() | Peek() | Repartition() | Through():
            return untold(node.input)
    return None if _waits(node) is not None else node


def _made_of_records(node: Node) -> bool:
    """Whether records of the log, and no results or changes of a table, leave ``node``."""
    above: Node = node
    while isinstance(above, ROW_BY_ROW):
        above = above.input
    return not isinstance(above, ToTable | TableFilter) and _waits(node) is not None


def _leaves_updates(node: Node) -> bool:
    """Whether rows replace each other: of updates the log gives the last ones only, and not what a filter took out."""
    while isinstance(node, ROW_BY_ROW):
        node = node.input
    return isinstance(node, ToTable | TableFilter) or (
        isinstance(node, WindowedAggregate) and node.emission.kind != "final"
    )


def _has_an_order(node: Node) -> bool:
    while isinstance(node, TableFilter):
        node = node.input
    return isinstance(node, ToTable) and (node.versioned or is_ordered(node.input))


def _waits(node: Node) -> list[tuple[Node, int]] | None:
    """The same as ``waits``; what leaves with the last record that it is made of waits for nothing."""
    return [] if leaves_when_read(node) else waits(node)


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Rows that left the ``operators`` of a topology, all of whose ``rows`` are known, after ``done`` batches."""

    operators: Stateful
    rows: Mapping[Node, Rows]
    batches: Sequence[BatchEnds]
    done: int

    def since(self, node: Node) -> Rows:
        """Rows that left ``node`` after them; call ``untold`` before."""
        rows = self.rows[node]
        if not self.done:
            return rows
        if isinstance(node, ROW_BY_ROW):
            return stateless(node, [in_range(node, self.since(node.input))])
        if isinstance(node, WindowedAggregate):
            return rows.with_frame(node, self._windows(node, rows.frame))
        return rows.with_frame(node, rows.frame.where(self._left_later(node)))

    def read_later(self) -> Column:
        """Whether one of the records that made a row was read after them: its offset is not below their ends."""
        if not self.done:
            return F.lit(True)
        ends = {f"{topic}-{partition}": end for (topic, partition), end in self.batches[self.done - 1].ends.items()}
        known = F.map_of(ends)

        def is_later(place: Column) -> Column:
            name = F.concat(place.part("topic"), "-", place.part("partition"))
            return is_place(place) & (place.part("offset") >= F.coalesce(known.value_at(name), F.lit(0)))

        return F.some_hold(F.col(ORDER), is_later)

    def _left_later(self, node: Node) -> Column:
        """Read later, or still waiting then."""
        waiting = [F.col(TIME) + ahead_ms > self._reached_ms(one) for one, ahead_ms in _waits(node) or ()]
        return reduce(or_, waiting, self.read_later())

    def _windows(self, node: WindowedAggregate, results: Frame) -> Frame:
        """Windows that records changed later; of final results those too that closed later, whenever they changed."""
        changed = self.operators.on_time[node].where(self._left_later(node.input))
        windows = changed.select(
            named(node.key).alias("__of"), F.col(START).alias("__from"), F.col(END).alias("__to")
        ).distinct()
        same = (named(node.key) == F.col("__of")) & (F.col(WINDOW_START) == F.col("__from"))
        marked = results.join(windows, same & (F.col(WINDOW_END) == F.col("__to")), "left")
        left_later = F.col("__of").is_not_null()
        if node.emission.kind == "final":
            assert isinstance(node.windows, TimeWindows | SessionWindows), "the others are untold"
            left_later |= overdue_ms(node.windows, F.col(WINDOW_END), F.lit(self._reached_ms(node))) < 0
        return marked.where(left_later).select(*(named(name) for name in results.columns))

    def _reached_ms(self, node: Node) -> int:
        return self.operators.clocks.frontiers_ms(node, self.batches)[self.done - 1]
