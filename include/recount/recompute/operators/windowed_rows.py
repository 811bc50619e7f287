"""A windowed aggregation over one interval of a log: what is carried to it, what leaves, and what it carries on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from recount.declare.operators.nodes import WindowedAggregate
from recount.declare.windows import ClosingWindows, GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, named
from recount.recompute.frames.duck_frames import Frame, once
from recount.recompute.operators import log_windows
from recount.recompute.operators.carried import IS_NEW
from recount.recompute.operators.frontiers import NONE_DUE, behind
from recount.recompute.operators.log_aggregates import BEFORE, with_totals
from recount.recompute.operators.log_order import is_running
from recount.recompute.operators.log_rows import ORDER, STREAM_TIME, TIME, Rows, judged
from recount.recompute.operators.log_sessions import is_out_of_reach, with_reachable
from recount.recompute.operators.log_stateless import tried
from recount.recompute.operators.log_windows import END, IS_LATE, START, TOUCHED
from recount.recompute.rules.result_rules import adds_up, tries_folds
from recount.recompute.rules.time_rules import newest_start, overdue_ms, replaced_for_ms

if TYPE_CHECKING:
    from recount.recompute.operators.stateful import Stateful


IS_REPLACED = "__is_replaced"
"""Whether another row stands now for a result from above that was carried, or none."""


@dataclass(kw_only=True)
class Windowing:
    """The aggregation ``node`` among all ``operators``."""

    node: WindowedAggregate
    operators: Stateful

    def rows(self, above: Rows) -> Rows:
        """Records placed in windows, the late ones noted for each, the others aggregated."""
        node, journal = self.node, self.operators.journal
        frame, takes = above.current, log_windows.takes(node)
        has_key = named(node.key).is_not_null()
        journal.note(frame.where(~takes), F.when(has_key, "null value").otherwise("null key"))
        times = self.operators.clocks.times(node, [(frame, ~has_key, takes)])
        new = judged(frame.where(takes), None if self._closing is None else times)
        known = self._with_carried(new)
        placed = log_windows.placed(node, known.where(~F.col(IS_REPLACED)).drop(IS_REPLACED))
        late, came = F.col(IS_LATE), placed.where(F.col(IS_NEW))
        self.operators.came[node] = came
        if self._closing is None:
            journal.note(new, F.lit("counted"))
        else:
            journal.note(came, F.when(late & self._is_late_for_all, "late").otherwise("counted"))
            margin = overdue_ms(self._closing, F.col(END), F.col(STREAM_TIME))
            journal.late_for(came.where(late), named(node.key), margin, F.col(START), F.col(END))
        on_time = self._within_reach(placed.where(~late))
        if log_windows.goes_on(node):
            return self._left(self._with_amounts(on_time))
        self.operators.carrying.keep(node, "records", lambda: self._reachable(known, on_time))
        self.operators.on_time[node] = self._tried(on_time)
        return self._left(self.operators.on_time[node], self._windows_before(known))

    @cached_property
    def _closing(self) -> ClosingWindows | None:
        return None if isinstance(self.node.windows, GlobalWindow | LastN) else self.node.windows

    @property
    def _is_late_for_all(self) -> Column:
        """Whether a late record that is in no window never will be: a later record can define one that slides."""
        if not isinstance(self.node.windows, SlidingWindows):
            return F.lit(True)
        newest_ms = F.col(TIME) + self.node.windows.difference_ms
        overdue: Column = overdue_ms(self.node.windows, newest_ms, F.col(STREAM_TIME))
        return overdue >= 0

    @cached_property
    def _replaced_for_ms(self) -> int | None:
        return replaced_for_ms(self.node.input)

    @property
    def _follows_records(self) -> bool:
        """Whether windows lie where records do, so that a new one can make others of them."""
        return isinstance(self.node.windows, SlidingWindows | SessionWindows)

    def _with_carried(self, new: Frame) -> Frame:
        """``new`` rows, and those that were carried where that is records; those ``IS_REPLACED`` are to be left out."""
        if log_windows.goes_on(self.node):
            return new.with_columns({IS_NEW: F.lit(True), IS_REPLACED: F.lit(False)})
        known = self.operators.carrying.with_carried(self.node, "records", new)
        replaced = self.operators.all_replaced(self.node.input)
        if replaced is None:
            return self._within_reach_of_sessions(known.with_column(IS_REPLACED, F.lit(False)))
        orders = replaced.frame.select(F.col(ORDER).alias("__replaced")).distinct()
        marked = known.join(orders, F.col(ORDER) == F.col("__replaced"), "left")
        is_replaced = ~F.col(IS_NEW) & F.col("__replaced").is_not_null()
        return once(self._within_reach_of_sessions(marked.with_column(IS_REPLACED, is_replaced).drop("__replaced")))

    def _within_reach(self, on_time: Frame) -> Frame:
        """Without windows that had been closed for longer than the look back, of which records are not carried."""
        if self._closing is None or isinstance(self._closing, SessionWindows):
            return on_time
        since_ms = self._since_before_ms()
        if since_ms < NONE_DUE // 2:
            return on_time
        since_ms = self._or_closed_ms(since_ms, self.operators.carrying.look_back_ms)
        is_gone = overdue_ms(self._closing, F.col(END), F.lit(since_ms)) >= 0
        gone = on_time.where(is_gone & F.col(IS_NEW))
        if adds_up(self.node):
            self.operators.added[self.node] = gone
        else:
            self.operators.report_beyond(self.node, gone)
        return on_time.where(~is_gone)

    def _or_closed_ms(self, frontier_ms: int, behind_ms: int = 0) -> int:
        """``frontier_ms``, or what is ``behind_ms`` the frontier that closes what was closed before an upgrade."""
        return max(frontier_ms, behind(self.operators.closed_ms, behind_ms))

    def _within_reach_of_sessions(self, known: Frame) -> Frame:
        """Without new records that were on time and could be in a session that is not carried."""
        windows = self.node.windows
        if not isinstance(windows, SessionWindows):
            return known
        since_ms = self._since_before_ms()
        if since_ms < NONE_DUE // 2:
            return known
        is_late = F.coalesce(is_out_of_reach(windows, F.col(STREAM_TIME)), F.lit(False))
        is_gone = F.col(IS_NEW) & is_out_of_reach(windows, since_ms) & ~is_late
        gone = once(known.where(is_gone))
        self.operators.journal.note(gone, F.lit("counted"))
        self.operators.report_beyond(self.node, gone)
        return known.where(~is_gone)

    def _since_ms(self) -> int:
        return behind(self.operators.clocks.since_ms(self.node), self._replaced_for_ms or 0)

    def _since_before_ms(self) -> int:
        return behind(self.operators.carrying.since_before_ms(self.node), self._replaced_for_ms or 0)

    def _with_amounts(self, on_time: Frame) -> Frame:
        """The new rows, and for each window a row with what the rows before them amount to."""
        node, carrying = self.node, self.operators.carrying
        columns = [node.key, START, END, *(BEFORE + name for name in node.aggregates), TIME]
        before = carrying.carried_to(node, "amounts", columns)
        if before is not None:
            before = with_totals(before, node.aggregates, node.input.fields)
        if before is not None and tries_folds(node):
            amounts = before.drop(IS_NEW, TIME)
            seeded = on_time.join(amounts, [node.key, START, END], "left")
            on_time = self._tried(seeded).drop(*(BEFORE + name for name in node.aggregates))
        else:
            on_time = self._tried(on_time)
        self.operators.on_time[node] = on_time
        everything = on_time if before is None else on_time.union(before)

        def kept() -> Frame:
            amounts = log_windows.amounts(node, everything)
            return amounts if self._closing is None else amounts.where(self._is_open(self._since_ms()))

        carrying.keep(node, "amounts", kept)
        return everything

    def _is_open(self, clock_ms: int) -> Column:
        assert self._closing is not None
        is_open: Column = overdue_ms(self._closing, F.col(END), F.lit(clock_ms)) < 0
        return is_open

    def _tried(self, placed: Frame) -> Frame:
        if not tries_folds(self.node):
            return placed
        found = once(tried(self.node, placed, (START, END)))
        self.operators.tried[self.node] = found.where(F.col(IS_NEW))
        return found

    def _reachable(self, known: Frame, on_time: Frame) -> Frame:
        """The records with which those to come can still share a window that is within the look back."""
        match self.node.windows:
            case GlobalWindow() | LastN():
                return on_time if self._replaced_for_ms is None else known.where(~F.col(IS_REPLACED))
            case TimeWindows() as time_windows:
                newest_end = newest_start(time_windows, F.col(TIME)) + time_windows.size_ms
                is_late = F.coalesce(overdue_ms(time_windows, newest_end, F.col(STREAM_TIME)) >= 0, F.lit(False))
                return known.where(~is_late & (overdue_ms(time_windows, newest_end, F.lit(self._since_ms())) < 0))
            case SlidingWindows(difference_ms=difference_ms, grace_ms=grace_ms) as sliding:
                newest_end = F.col(TIME) + difference_ms
                is_late = F.coalesce(overdue_ms(sliding, newest_end, F.col(STREAM_TIME)) >= 0, F.lit(False))
                # a record defines windows around it, and is late for those that such a window's records define
                first_ms = behind(self._since_ms(), grace_ms + 3 * difference_ms + 2)
                return known.where(~is_late & (F.col(TIME) >= first_ms))
            case SessionWindows() as sessions:
                # accepted is accepted, whatever was carried of the session that it was accepted for
                accepted = on_time.with_column(STREAM_TIME, F.lit(None).cast("long"))
                return with_reachable(self.node.key, sessions, accepted, (START, END), self._since_ms())
        raise AssertionError(self.node.windows)

    def _windows_before(self, known: Frame) -> Frame | None:
        """The windows that were there at the last cut, ``TOUCHED`` where a record in them is replaced.

        None where new records cannot make others of them; of windows that lie elsewhere than records the touched ones.
        """
        if self.operators.carrying.carried is None or not (self._follows_records or self._replaced_for_ms is not None):
            return None
        placed = log_windows.placed(self.node, known.where(~F.col(IS_NEW))).where(~F.col(IS_LATE))
        if isinstance(self.node.windows, SlidingWindows):
            placed = placed.where(self._is_open(self._since_before_ms()))
        key = named(self.node.key).alias(self.node.key)
        found = placed.group_by(key, START, END).agg(F.any_holds(IS_REPLACED).alias(TOUCHED))
        return once(found if self._follows_records else found.where(TOUCHED))

    def _left(self, rows: Frame, before: Frame | None = None) -> Rows:
        """The results that left, with ``again`` those that may have left before."""
        node, operators = self.node, self.operators
        is_final = node.emission.kind == "final"
        if is_final:
            rows = rows.where(~self._is_open(self._or_closed_ms(operators.clocks.frontier_now_ms(node))))
        made = log_windows.aggregated(node, rows)
        results = made.frame
        if before is not None and self._replaced_for_ms is not None:
            results = self._touched(results, before)
        is_carried = operators.carrying.carried is not None
        if is_carried and self._closing is not None:
            # more is carried of sessions, and of what follows them, than is emitted again
            results = results.where(F.col(TOUCHED) | self._is_open(operators.carrying.since_before_ms(node)))
        if not is_final and (self._closing is None or is_running(node)):
            left = results.where(TOUCHED) if is_carried else results
        elif not is_final:
            left = results
        else:
            frontier_ms = self._or_closed_ms(operators.carrying.frontier_before_ms(node))
            left = results
            if is_carried:
                left = results.where(F.col(TOUCHED) | self._is_open(frontier_ms))
        if before is not None:
            if is_final:
                was_due = ~self._is_open(operators.carrying.frontier_before_ms(node))
                before = before.where(was_due)
                if self._follows_records:
                    left = self._with_added(left, results, before)
            gone = self._gone(before, rows)
            if not is_final:
                left = left.union(gone)
            elif replaced_for_ms(node) is not None:
                changed = results.where(F.col(TOUCHED) & was_due).union(gone)
                operators.replaced[node] = made.with_frame(node, _plain(changed))
            results = results.union(gone)
        if self._closing is not None and is_carried and made.holds != "latest":
            operators.again[node] = made.with_frame(node, _plain(results))
        return made.with_frame(node, _plain(left))

    def _touched(self, results: Frame, before: Frame) -> Frame:
        """``results``, ``TOUCHED`` too where a record was replaced."""
        window = [self.node.key, START, END]
        changed = before.select(*map(named, window), F.col(TOUCHED).alias("__changed"))
        joined = results.join(changed, window, "left").select(*map(named, results.columns), "__changed")
        return joined.with_column(TOUCHED, F.col(TOUCHED) | F.coalesce("__changed", F.lit(False))).drop("__changed")

    def _with_added(self, left: Frame, results: Frame, before: Frame) -> Frame:
        """The windows that were not there ``before`` leave now."""
        window = [self.node.key, START, END]
        added = results.join(before, window, "left_anti").select(*map(named, results.columns))
        return left.union(added).one_of_each(window)

    def _gone(self, before: Frame, there: Frame) -> Frame:
        """The windows that were there ``before`` and are there no more, as deletions."""
        window = [self.node.key, START, END]
        return log_windows.withdrawn(
            self.node, before.drop(TOUCHED).join(there.select(*map(named, window)), window, "left_anti")
        )


def _plain(results: Frame) -> Frame:
    return results.drop(TOUCHED, START, END)
