"""Rules of the stream's operators made wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.mutant import Mutant, bound, comparison, other

AT = "engine/operators/"


def operator_mutants() -> Iterator[Mutant]:
    """Of every kind of operator."""
    yield from _of_windows()
    yield from _of_joins()
    yield from _of_what_is_held()
    yield from _of_timers_and_panes()
    yield from _of_functions()
    yield from _of_the_rest()


def _of_windows() -> Iterator[Mutant]:
    due = "frontier_ms - windows.closes_ms(0)"
    yield from bound(AT + "batch_windows.py", "WindowedOperator._due_ms", "a result is due", due)
    held = "pl.col(column) <= bound"
    yield from comparison("engine/state/keyed_rows.py", "KeyedRows.until", "what is due at its very time", held)
    yield from comparison(AT + "windowed_state.py", "is_late", "a row is late for its window", ">= 0")
    yield from bound(AT + "windowed_state.py", "margin_ms", "a row is late for its window", "windows.closes_ms(0)")
    gone = "settled_ms - settles_ms"
    yield from other(
        AT + "batch_windows.py", "WindowedOperator._forget", "when a result is forgotten", gone, f"{gone} + 1"
    )
    session = AT + "merged_windows.py"
    yield from comparison(session, "MergedSessions._marked", "sessions are apart", "pl.col(WINDOW_START) > ends")
    yield from bound(session, "MergedSessions._marked", "sessions are apart", "self.windows.gap_ms")
    yield from bound(session, "_reached", "the session before is joined", "timestamp_ms - gap_ms")
    yield from bound(session, "_reached", "the session after is joined", "timestamp_ms + gap_ms")
    reach = "at_ms + self.windows.reach_ms"
    yield from bound(session, "MergedSessions._late", "how far before its end a record may join", reach)
    reach = "record.timestamp_ms + self._windows.reach_ms"
    yield from bound(AT + "pane_kinds.py", "SessionPane.add", "how far before the end of a cut one", reach)
    follows = "passes | (pl.col(REVISION) > 0)"
    yield from other(AT + "batch_stateless.py", "_filtered", "a filter follows what is withdrawn", follows, "passes")
    yield from comparison(AT + "batch_operator.py", "on_time", "a row is late for its operator", "margin >= 0")
    yield from bound(AT + "batch_operator.py", "on_time", "a row is late for its operator", "bound_ms - 1")
    yield from other(
        AT + "batch_operator.py", "on_time", "a derived row is never late", "fill_null(False)", "fill_null(True)"
    )


def _of_joins() -> Iterator[Mutant]:
    join = AT + "batch_joins.py"
    alone = "frontier_ms - self.node.delay_ms - 1"
    yield from bound(join, "StreamStreamJoinOperator._settle", "a record leaves alone", alone)
    bounds = "(self.node.after_ms, self.node.before_ms)"
    yield from other(
        join,
        "StreamStreamJoinOperator._new",
        "which bound is whose",
        bounds,
        "(self.node.before_ms, self.node.after_ms)",
    )
    near = "StreamStreamJoinOperator._near"
    first, last = "time.min() - back_ms", 'time.max().alias("last_ms") + ahead_ms'
    yield from other(join, near, "how old a partner can be", first, f"({first} + 1)")
    yield from other(join, near, "how young a partner can be", last, f"({last} - 1)")
    both = "time.is_between(first_ms, last_ms"
    yield from other(join, near, "how old a partner can be", both, f'{both}, closed="right"')
    yield from other(join, near, "how young a partner can be", both, f'{both}, closed="left"')
    yield from bound(join, "_found", "a partner may come before", "placed[_PLACE] - before_ms")
    yield from bound(join, "_found", "a partner may come after", "placed[_PLACE] + after_ms")
    least, most = "_integer(times.min()) - before_ms", "+ after_ms - first_ms + 1"
    yield from other(join, "_found", "where a key's places begin", least, f"({least} + 1)")
    yield from other(join, "_found", "where a key's places end", most, "+ after_ms - first_ms")
    yield from other(join, "_found", "the earliest partner counts", '"left").to_numpy', '"right").to_numpy')
    yield from other(join, "_found", "the latest partner counts", '"right").to_numpy', '"left").to_numpy')


def _of_what_is_held() -> Iterator[Mutant]:
    first = AT + "batch_suppression.py"
    due = "frontier_ms - self.node.horizon_ms - 1"
    yield from bound(first, "DeduplicateOperator._decided", "a first leaves", due)
    yield from comparison(first, "let_go", "a row leaves at its very time", "pl.col(TIMESTAMP) <= due_ms")
    rival = "abs(at_ms - winner_ms) > self.node.horizon_ms"
    yield from comparison(first, "DeduplicateOperator._judged", "a rival is within the horizon", rival)
    yield from bound(first, "DeduplicateOperator._judged", "a rival is within the horizon", rival)
    limit = "frontier_ms - self.node.limit_ms"
    late = f"({limit} - 1)"  # one that leaves too soon is followed by the update that counts
    yield from other(first, "SuppressOperator._due_ms", "an update leaves after its limit", limit, late)
    forget = "forgotten_ms - 2 * self.node.horizon_ms - 1"
    yield from other(first, "DeduplicateOperator._forget", "when a winner is forgotten", forget, f"{forget} + 1")
    turn = "frontier_ms - self.node.grace_ms - 1"
    yield from bound(first, "InOrderOperator.process", "a record leaves in its turn", turn)
    passed = "passed_ms=self.clock.before_ms"
    yield from other(first, "InOrderOperator.process", "what has left makes late", passed, "passed_ms=None")
    yield from other(
        AT + "batch_rows.py",
        "time_order",
        "records go by event time",
        "pl.col(TIMESTAMP), pl.lit(0)",
        "pl.lit(0), pl.lit(0)",
    )
    lookup = AT + "batch_joins.py"
    waiting = "pl.col(TIMESTAMP) <= reached_ms"
    yield from comparison(lookup, "StreamTableJoinOperator._due", "a lookup waits", waiting)
    yield from bound(lookup, "StreamTableJoinOperator._due", "a lookup waits", waiting)
    graced = "clock.frontier_ms - (self.node.grace_ms or 0)"
    yield from bound(lookup, "StreamTableJoinOperator._due", "a lookup waits", graced)
    backward = 'strategy="backward"'
    exact = f"{backward}, allow_exact_matches=False"
    yield from other(lookup, "StreamTableJoinOperator._as_of", "a change counts from its own time on", backward, exact)
    event = 'self.node.as_of == "event"'
    yield from other(
        lookup, "StreamTableJoinOperator.__post_init__", "as of when a lookup is", event, event.replace("==", "!=")
    )
    yield from _of_histories(lookup)
    joined = AT + "batch_tables.py"
    yield from other(joined, "TableTableJoinOperator._with_row", "tables change in turn", backward, exact)


def _of_histories(lookup: str) -> Iterator[Mutant]:
    asking, forget = "StreamTableJoinOperator._asking", "StreamTableJoinOperator._forget"
    late, idle = "what asks behind a history is late", "what had been idle has the others' history"
    yield from comparison(lookup, asking, late, "margin >= 0")
    yield from bound(lookup, asking, late, "history_ms - pl.col(TIMESTAMP) - 1")
    end = "pl.max_horizontal(TIMESTAMP, pl.col(JUDGED) - history_ms"
    yield from other(lookup, asking, "where a history ends", end, f"{end} + 1", f"{end} - 1")
    yield from other(lookup, asking, "where a history ends", ".then(JUDGED)", ".then(TIMESTAMP)")
    yield from other(lookup, asking, idle, "pl.lit(clock.before_ms, pl.Int64)", "pl.lit(None, pl.Int64)")
    reached, gone = "clock.frontier_ms - history_ms", "pl.col(TIMESTAMP) < newest_ms"
    yield from other(lookup, forget, "when a version is forgotten", reached, f"{reached} + 1")
    yield from comparison(lookup, forget, "when a version is forgotten", gone)
    asked = "bound_ms if waiting is None else min(bound_ms, waiting)"
    yield from other(lookup, forget, "what waits is not forgotten", asked, "bound_ms", asked.replace("min(", "max("))


def _of_timers_and_panes() -> Iterator[Mutant]:
    timer = "kept.next_timer_ms <= about[_BEFORE]"
    before = "ProcessOperator._fire_before"
    yield from comparison(AT + "batch_processing.py", before, "a timer goes off before a record", timer)
    yield from bound(AT + "batch_processing.py", before, "a timer goes off before a record", timer)
    fired = "kept.next_timer_ms <= frontier_ms"
    yield from comparison(AT + "batch_processing.py", "ProcessOperator._fire_reached", "a timer sets a timer", fired)
    for code in ("list.min() <= until_ms", "kept.next_timer_ms <= until_ms"):
        yield from comparison(
            "engine/operators/batch_processing.py", "KeyStates.with_timers", "a timer goes off at the frontier", code
        )
    panes = AT + "pane_kinds.py"
    yield from bound(panes, "SlidingPane.add", "a record is late for all", "windows.difference_ms")
    held = "start_ms <= at_ms <= end_ms"
    yield from other(panes, "SlidingPane._around", "who is in a window", held, held.replace("<=", "<", 1))
    begins = "one.timestamp_ms >= start_ms"
    for inside in ("SlidingPane._is_held", "SlidingPane._begins_after"):
        yield from comparison(panes, inside, "who is beside a record", begins)
    defined = "inside[-1].timestamp_ms == end_ms or start_ms == 0"
    yield from other(panes, "SlidingPane.members", "who defines a window", defined, *defined.split(" or "))
    before = "start_ms - 1, start_ms - 1"
    yield from other(panes, "SlidingPane.members", "who defines a window", before, "start_ms, start_ms")
    reach = "self._windows.difference_ms + 1"
    yield from other(panes, "SlidingPane._near", "who defines a window", reach, reach.replace("+", "-"))
    yield from other(
        panes, "SlidingPane._near", "who defines a window", "timestamp_ms - reach_ms", "timestamp_ms - reach_ms + 2"
    )
    yield from other(
        panes, "SlidingPane._near", "who defines a window", "timestamp_ms + reach_ms", "timestamp_ms + reach_ms - 2"
    )
    yield from bound(
        AT + "panes.py", "TimePane.add", "a window of what may be revised ends", "start + self._windows.size_ms"
    )
    before = "bisect_left(self._times, start_ms"
    yield from other(panes, "ByTime.between", "who is in a window", before, before.replace("left", "right"))
    yield from other(panes, "ByTime.between", "who is in a window", "bisect_right(self", "bisect_left(self")
    for reached in ("timestamp_ms - self._windows.gap_ms", "timestamp_ms + self._windows.gap_ms"):
        yield from bound(panes, "Sessions._reached", "whom a record joins", reached)
    kept = "closes_ms <= settled_ms"
    yield from other(AT + "kept_records.py", "KeptRecords.forget", "when a record is forgotten", kept, f"{kept} + 1")
    last = "1 + windows.difference_ms"
    yield from other(AT + "kept_records.py", "KeptRecords.forget", "when a record is forgotten", last, last[4:])


def _of_functions() -> Iterator[Mutant]:
    letter, changed = "who raised is a dead letter", "who raised has changed nothing"
    yield from other(
        AT + "batch_stateless.py", "_flat_mapped", letter, "raised.add(rows.row(index, named=True), error)", "0"
    )
    yield from other(AT + "batch_processing.py", "ProcessOperator._replay", letter, "raised.add(about, error)", "0")
    yield from other("engine/exchange/graph_part.py", "GraphPart._fates", letter, '"anti"', '"semi"')
    tried = "aside.add(new.row(number, named=True), error)"
    yield from other(AT + "accumulators.py", "FoldTrials._without", letter, tried, "0")
    yield from other(AT + "folds.py", "Trial.take", changed, "if not self._is_unchanging()", "if False")
    known = "deepcopy(kept.known) if kept.known else self._keys.before_the_batch(kept.state.key)"
    undo = "ProcessOperator._undo"
    yield from other(AT + "batch_processing.py", undo, changed, known, "kept.state", known.split(" else ")[1])
    yield from other(AT + "batch_processing.py", undo, changed, "self._fire_before(about, kept, nothing)", "0")
    yield from other(AT + "batch_processing.py", undo, changed, "deepcopy(kept.state)", "kept.state")


def _of_the_rest() -> Iterator[Mutant]:
    null = "pl.col(field_column(plain)).is_null()"
    yield from other(AT + "batch_rows.py", "as_written", "a plain value that is null deletes", f" | {null}", "")
    settled = "settled_ms - self.node.windows.closes_ms(0)"
    earlier, later = "known.start_ms - gap_ms", "known.end_ms + gap_ms"
    yield from bound(AT + "folds.py", "_grown", "which sessions a fold merges", earlier)
    yield from bound(AT + "folds.py", "_grown", "which sessions a fold merges", later)
    yield from other(
        AT + "merged_windows.py", "MergedWindows.forget", "when a window is forgotten", settled, f"{settled} + 1"
    )
    yield from other(
        AT + "batch_joins.py",
        "StreamStreamJoinOperator._settle",
        "when a row is forgotten",
        "forgotten_ms - self.node.delay_ms - 1",
        "forgotten_ms - self.node.delay_ms",
    )
    yield from other(AT + "batch_operator.py", "Clock._slowest", "the slowest partition counts", "self.delay_ms", "0")
    yield from other(
        AT + "batch_operator.py",
        "Clock.advance",
        "whose records are no clock",
        "if not self.holds_back",
        "if self.holds_back",
    )
    yield from other(
        AT + "batch_operator.py", "held_back", "by what a held record is judged", "pl.col(JUDGED)", "pl.col(TIMESTAMP)"
    )
    delayed = "ms - delay_ms"
    yield from bound(AT + "batch_operator.py", "_delayed", "no frontier runs ahead of one above", delayed)
    yield from other(AT + "batch_operator.py", "_least", "the slowest partition counts", "min(known)", "max(known)")
    never = "max(reached, self.before_ms)"
    yield from other(
        AT + "batch_operator.py", "Clock._advance_frontier", "an operator's frontier never falls back", never, "reached"
    )
    sketch = "found < SKETCH_SIZE"
    yield from comparison(AT + "accumulator_kinds.py", "Sketched.result", "when a count is an estimate", sketch)
    longest = "span <= longest"
    yield from comparison(AT + "accumulators.py", "Accumulators.running", "totals up to each record", longest)
