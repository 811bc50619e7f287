"""A windowed aggregation over one stretch of a log: what is carried to it, what leaves, and what it carries on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from recount.core.nodes import WindowedAggregate
from recount.core.windows import (
    ClosingWindows,
    GlobalWindow,
    LastN,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
)
from recount.recompute.columns import named
from recount.recompute.graph import windows
from recount.recompute.graph.aggregates import BEFORE
from recount.recompute.graph.carrying import IS_NEW, NotIncremental
from recount.recompute.graph.frontiers import NONE_DUE, behind
from recount.recompute.graph.judging import STREAM_TIME, judged
from recount.recompute.graph.rows import TIME, Rows
from recount.recompute.graph.sessions import leads_back, with_reachable
from recount.recompute.graph.trying import tried
from recount.recompute.graph.windows import END, IS_LATE, START, TOUCHED
from recount.recompute.once import once
from recount.recompute.rules.closing import overdue_ms
from recount.recompute.rules.raising import tries_folds
from recount.recompute.rules.starting import newest_start

if TYPE_CHECKING:
    from recount.recompute.graph.stateful import Stateful


@dataclass(kw_only=True)
class Windowing:
    """The aggregation ``node`` among all ``operators``."""

    node: WindowedAggregate
    operators: Stateful

    def rows(self, above: Rows) -> Rows:
        """Records placed in windows, the late ones noted for each, the others aggregated."""
        node, journal = self.node, self.operators.journal
        frame, takes = above.current, windows.takes(node)
        has_key = named(node.key).isNotNull()
        journal.note(frame.where(~takes), F.when(has_key, "null value").otherwise("null key"))
        times = self.operators.clocks.times(node, [(frame, ~has_key, takes)])
        new = judged(frame.where(takes), None if self._closing is None else times)
        if windows.goes_on(node):
            known = new.withColumn(IS_NEW, F.lit(True))
        else:
            known = self.operators.carrying.with_carried(node, "records", new)
        placed = once(windows.placed(node, known))
        late, came = F.col(IS_LATE), placed.where(F.col(IS_NEW))
        if self._closing is None:
            journal.note(new, F.lit("counted"))
        else:
            journal.note(came, F.when(late, "late").otherwise("counted"))
            margin = overdue_ms(self._closing, F.col(END), F.col(STREAM_TIME))
            journal.late_for(came.where(late), named(node.key), margin, F.col(START), F.col(END))
        accepted = placed.where(~late)
        on_time = self._within_reach(accepted)
        self._require_known(on_time)
        if windows.goes_on(node):
            return self._left(self._with_amounts(on_time))
        self.operators.carrying.keep(node, "records", lambda: self._reachable(known, on_time))
        self.operators.on_time[node] = self._tried(on_time)
        return self._left(self.operators.on_time[node], self._windows_before(known), accepted)

    @cached_property
    def _closing(self) -> ClosingWindows | None:
        return None if isinstance(self.node.windows, GlobalWindow | LastN) else self.node.windows

    @cached_property
    def _slack_ms(self) -> int:
        """A record can change where later sessions are cut: those of the longest duration before it are needed too."""
        return (self.node.windows.max_duration_ms or 0) if isinstance(self.node.windows, SessionWindows) else 0

    def _within_reach(self, on_time: DataFrame) -> DataFrame:
        """Without windows that had been closed for longer than the look back, of which records are not carried."""
        if self._closing is None:
            return on_time
        since_ms = self.operators.carrying.since_before_ms(self.node) - self._slack_ms
        if since_ms < NONE_DUE // 2:
            return on_time
        is_gone = overdue_ms(self._closing, F.col(END), F.lit(since_ms)) >= 0
        self.operators.report_beyond(self.node, on_time.where(is_gone & F.col(IS_NEW)))
        return on_time.where(~is_gone)

    def _require_known(self, on_time: DataFrame) -> None:
        """Raise where a session may belong together with one that was not carried (``leads_back``).

        Without lateness such records are reported: their session is told as far as the look back goes.
        """
        carrying, sessions = self.operators.carrying, self.node.windows
        if carrying.carried is None or not isinstance(sessions, SessionWindows) or sessions.max_duration_ms is not None:
            return
        since_ms = carrying.since_before_ms(self.node)
        if since_ms < NONE_DUE // 2:
            return
        session = Window.partitionBy(named(self.node.key), START, END)
        carried_ms = F.min(F.when(~F.col(IS_NEW), F.col(TIME))).over(session)
        leading = on_time.withColumn("__carried_since_ms", carried_ms).where(
            leads_back(sessions, F.col(START), since_ms, F.col("__carried_since_ms"))
        )
        if not self.operators.lateness:
            is_old = overdue_ms(sessions, F.col(TIME), F.lit(since_ms)) >= 0
            self.operators.report_beyond(self.node, leading.where(is_old & F.col(IS_NEW)))
        elif found := leading.select(named(self.node.key), START, END).head():
            key, start_ms, end_ms = found
            raise NotIncremental(
                f"records lead back to sessions that were not carried, in {self.node}",
                given=f"the key {key!r}, whose session from {start_ms} to {end_ms} ms begins with new records that are "
                f"late by themselves at {since_ms} ms",
                expected="sessions that new records join at most a gap before those that were carried",
                remedy="recompute from the beginning of the log",
            )

    def _since_ms(self) -> int:
        return self.operators.clocks.since_ms(self.node)

    def _with_amounts(self, on_time: DataFrame) -> DataFrame:
        """The new rows, and for each window a row with what the rows before them amount to."""
        node, carrying = self.node, self.operators.carrying
        columns = [node.key, START, END, *(BEFORE + name for name in node.aggregates), TIME]
        before = carrying.carried_to(node, "amounts", columns)
        if before is not None and tries_folds(node):
            amounts = before.drop(IS_NEW, TIME)
            seeded = on_time.join(amounts, [node.key, START, END], "left")
            on_time = self._tried(seeded).drop(*(BEFORE + name for name in node.aggregates))
        else:
            on_time = self._tried(on_time)
        self.operators.on_time[node] = on_time
        everything = on_time if before is None else on_time.unionByName(before, allowMissingColumns=True)

        def kept() -> DataFrame:
            amounts = windows.amounts(node, everything)
            return amounts if self._closing is None else amounts.where(self._is_open(self._since_ms()))

        carrying.keep(node, "amounts", kept)
        return everything

    def _is_open(self, clock_ms: int) -> Column:
        assert self._closing is not None
        is_open: Column = overdue_ms(self._closing, F.col(END), F.lit(clock_ms)) < 0
        return is_open

    def _tried(self, placed: DataFrame) -> DataFrame:
        if not tries_folds(self.node):
            return placed
        found = once(tried(self.node, placed, (START, END)))
        self.operators.tried[self.node] = found.where(F.col(IS_NEW))
        return found

    def _reachable(self, known: DataFrame, on_time: DataFrame) -> DataFrame:
        """The records with which those to come can still share a window that is within the look back."""
        match self.node.windows:
            case LastN():
                return on_time
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
                accepted = on_time.withColumn(STREAM_TIME, F.lit(None).cast("long"))
                return with_reachable(self.node.key, sessions, accepted, (START, END), self._since_ms())
        raise AssertionError(self.node.windows)

    def _windows_before(self, known: DataFrame) -> DataFrame | None:
        """The windows that were there at the last cut; None where new records cannot make others of them."""
        if self.operators.carrying.carried is None or not isinstance(
            self.node.windows, SlidingWindows | SessionWindows
        ):
            return None
        placed = windows.placed(self.node, known.where(~F.col(IS_NEW))).where(~F.col(IS_LATE))
        if isinstance(self.node.windows, SlidingWindows):
            placed = placed.where(self._is_open(self.operators.carrying.since_before_ms(self.node)))
        return once(placed.select(named(self.node.key).alias(self.node.key), START, END).distinct())

    def _left(self, rows: DataFrame, before: DataFrame | None = None, accepted: DataFrame | None = None) -> Rows:
        """The results that left, with ``again`` those that may have left before."""
        node, operators = self.node, self.operators
        is_final = node.emission.kind == "final"
        if is_final:
            rows = rows.where(~self._is_open(operators.clocks.frontier_now_ms(node)))
        made = windows.aggregated(node, rows)
        results = made.frame
        is_carried = operators.carrying.carried is not None
        if not is_final and (self._closing is None or windows.is_running(node)):
            left = results.where(TOUCHED) if is_carried else results
        elif not is_final:
            left = results
        else:
            frontier_ms = operators.carrying.frontier_before_ms(node)
            left = results
            if is_carried:
                left = results.where(F.col(TOUCHED) | self._is_open(frontier_ms))
        if before is not None:
            # a session that had been closed for longer than the look back can have gone into another one
            are_sessions = isinstance(node.windows, SessionWindows)
            there = accepted if accepted is not None and are_sessions else rows
            if is_final:
                before = before.where(~self._is_open(operators.carrying.frontier_before_ms(node)))
                left = self._with_added(left, results, before)
            gone = self._gone(before, there)
            results = results.unionByName(gone)
            if not is_final:
                left = left.unionByName(gone)
            elif are_sessions:
                operators.withdrawn[node] = made.with_frame(node, _plain(gone))
        if self._closing is not None and is_carried and made.holds != "latest":
            operators.again[node] = made.with_frame(node, _plain(results))
        return made.with_frame(node, _plain(left))

    def _with_added(self, left: DataFrame, results: DataFrame, before: DataFrame) -> DataFrame:
        """The windows that were not there ``before`` leave now."""
        window = [self.node.key, START, END]
        added = results.join(before, window, "left_anti").select(*map(named, results.columns))
        return left.unionByName(added).dropDuplicates(window)

    def _gone(self, before: DataFrame, there: DataFrame) -> DataFrame:
        """The windows that were there ``before`` and are there no more, as deletions."""
        window = [self.node.key, START, END]
        return windows.withdrawn(self.node, before.join(there.select(*map(named, window)), window, "left_anti"))


def _plain(results: DataFrame) -> DataFrame:
    return results.drop(TOUCHED, START, END)
