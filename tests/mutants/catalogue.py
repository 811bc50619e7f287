"""The rules of the stream, each made wrong: a bound a millisecond off, ``<`` for ``<=``, a default swapped.

A site is a piece of code that occurs once in a function. One that only makes the stream remember longer than it must is
not here: its results are the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.rules import SCENES_OF

Written = tuple[str, ...]
_SWAPPED = {"<=": "<", ">=": ">", " < ": " <= ", " > ": " >= "}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """``code`` in the function ``inside`` of the module ``file``, replaced; ``scenes`` come to that rule's boundary."""

    rule: str
    scenes: tuple[str, ...]
    file: str
    inside: str
    code: str
    replacement: str

    def apply(self, source: str) -> str:
        """``source`` with the mutant; raises ``LookupError`` where the code is not there, or not once."""
        first, last = _lines(ast.parse(source), self.inside.split("."))
        lines = source.splitlines(keepends=True)
        text = "".join(lines[first - 1 : last])
        if text.count(self.code) != 1:
            raise LookupError(f"{text.count(self.code)} times in {self.file}, {self.inside}: {self.code}")
        changed = text.replace(self.code, self.replacement)
        return "".join([*lines[: first - 1], changed, *lines[last:]])

    @property
    def in_core(self) -> bool:
        """Whether interpreter and stream have it both."""
        return self.file.startswith("core/")


def _lines(tree: ast.AST, names: list[str]) -> tuple[int, int]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == names[0]:
            return (node.lineno, node.end_lineno or 0) if len(names) == 1 else _lines(node, names[1:])
    raise LookupError(".".join(names))


def off(code: str) -> Written:
    """A bound one millisecond too late and too early."""
    return f"({code} + 1)", f"({code} - 1)"


def swapped(code: str) -> Written:
    """The comparison in ``code`` with the bound itself on the other side."""
    [(sign, other)] = [(sign, other) for sign, other in _SWAPPED.items() if code.count(sign) == 1]
    return (code.replace(sign, other),)


def _of(file: str, inside: str, rule: str, code: str, *replacements: str) -> Iterator[Mutant]:
    scenes = SCENES_OF[rule]
    for replacement in replacements:
        yield Mutant(rule=rule, scenes=scenes, file=file, inside=inside, code=code, replacement=replacement)


def _bound(file: str, inside: str, rule: str, code: str) -> Iterator[Mutant]:
    return _of(file, inside, rule, code, *off(code))


def _comparison(file: str, inside: str, rule: str, code: str) -> Iterator[Mutant]:
    return _of(file, inside, rule, code, *swapped(code))


def mutants(root: Path) -> list[Mutant]:
    """All of them, in the order of the files; ``root`` holds the package."""
    found = [*_core(), *_engine()]
    for mutant in found:
        mutant.apply((root / mutant.file).read_text())
    return found


def _core() -> Iterator[Mutant]:
    windows, times, keys = "core/windows.py", "core/event_time.py", "core/record_keys.py"
    yield from _bound(windows, "TimeWindows.closes_ms", "a time window closes", "self.grace_ms")
    yield from _bound(windows, "SlidingWindows.closes_ms", "a sliding window closes", "self.grace_ms")
    yield from _bound(windows, "SessionWindows.closes_ms", "a session closes", "self.grace_ms")
    yield from _of(windows, "SessionWindows.closes_ms", "a session waits for its gap", "self.gap_ms + ", "")
    yield from _comparison(windows, "SlidingWindows.is_closed", "a sliding window is closed", "<= clock_ms")
    yield from _comparison(windows, "SessionWindows.is_closed", "a session is closed", "<= clock_ms")
    yield from _bound(windows, "SlidingWindows.left_of", "the left window begins", "timestamp_ms - self.difference_ms")
    yield from _of(windows, "SlidingWindows.left_of", "none begins before 0", "max(0, ", "max(-9, ")
    yield from _of(
        windows, "SlidingWindows.right_of", "the right window begins", "return timestamp_ms + 1", "return timestamp_ms"
    )
    yield from _bound(windows, "SlidingWindows.right_of", "the right window ends", "1 + self.difference_ms")
    cut, gap = "timestamp_ms - start_ms <= self.max_duration_ms", "timestamp_ms - end_ms <= self.gap_ms"
    yield from _comparison(windows, "SessionWindows.continues", "a session is cut", cut)
    yield from _bound(windows, "SessionWindows.continues", "a session is cut", cut)
    yield from _comparison(windows, "SessionWindows.continues", "a session goes on", gap)
    for kind in ("TimeWindows", "SlidingWindows", "SessionWindows"):
        yield from _bound(windows, f"{kind}.delay_ms", "how long windows below wait", "self.grace_ms")
    yield from _bound("core/joins.py", "StreamStreamJoin.delay_ms", "a record leaves a join alone", "self.grace_ms")
    yield from _of("core/joins.py", "StreamTableJoin.delay_ms", "what waits for a table", "self.grace_ms or 0", "0")
    yield from _of("core/processing.py", "Deduplicate.delay_ms", "what waits for a first", "self.horizon_ms", "0")
    yield from _bound("core/processing.py", "Deduplicate.delay_ms", "what waits for a first", "self.horizon_ms")
    yield from _of("core/processing.py", "KeyState.schedule", "when a timer goes off", "add(at_ms)", "add(at_ms + 1)")
    yield from _of(
        "core/changelogs.py",
        "is_versioned",
        "which tables have versions",
        "and table.versioned",
        "and not table.versioned",
    )
    yield from _of(
        "core/flow.py",
        "RecordStream.deduplicate",
        "by what the first is told",
        "<= _partition_keys",
        "> _partition_keys",
    )
    yield from _of(times, "delay_above_ms", "the longest wait counts", "max((", "min((")
    yield from _of(times, "judges_above", "waits add up", "delay_ms + further_ms", "further_ms")
    yield from _of(times, "holds_back", "who holds back: a lookup", "is not None", "is None")
    yield from _of(times, "holds_back", "who holds back: a first", "not node.partitioned", "node.partitioned")
    yield from _of(times, "is_held_back", "who is held back", "any(", "not any(")
    yield from _of(
        times, "topics_of", "whose time counts", "for above in waits_for(node)", "for above in waits_for(node)[:1]"
    )
    yield from _of(keys, "_keyed_inputs", "aggregations need keys", "WindowedAggregate() | ", "")
    yield from _of(keys, "_keyed_inputs", "inner joins need keys", 'kind="inner"):', 'kind="outer"):')
    yield from _of(keys, "_keyed_inputs", "a left join needs keys on the right", "(node.right,)", "(node.left,)")


def _engine() -> Iterator[Mutant]:
    at = "spark/operators/"
    yield from _bound("spark/stage.py", "PartitionPass.feed", "a record is late", "self._plan.windows.grace_ms")
    late, in_time = "closes_ms <= pl.col(STREAM_TIME)", "closes_ms > pl.col(STREAM_TIME)"
    yield from _comparison("spark/stage.py", "PartitionPass.feed", "a late record is told", late)
    yield from _comparison("spark/stage.py", "PartitionPass.feed", "a record on time is counted", in_time)
    oldest, newest = "pl.col(TIMESTAMP) - size_ms + advance_ms", "newest + 1"
    yield from _bound("spark/stage.py", "_assigned", "the oldest window of a record", oldest)
    yield from _of("spark/stage.py", "_assigned", "the newest window of a record", newest, "newest", "newest + 2")
    yield from _of(
        "spark/stage.py",
        "PartitionPass._timed",
        "a record without a key is no clock",
        "pl.when(~keyless)",
        "pl.when(pl.lit(True))",
    )
    yield from _of("spark/intake.py", "Intake._tests", "no time before the epoch", "time < 0", "time <= 0", "time < -1")
    yield from _comparison("spark/intake.py", "Intake._tests", "no absurd time", "time > self._latest_ms")
    yield from _bound("spark/intake.py", "Intake._tests", "no absurd time", "            time > self._latest_ms")
    due = "pl.col(WINDOW_END) <= frontier_ms - self.grace_ms"
    yield from _comparison("spark/open_windows.py", "OpenWindows._closed", "a result is due", due)
    yield from _bound("spark/open_windows.py", "OpenWindows._closed", "a result is due", due)
    due = "pl.col(WINDOW_END) + windows.closes_ms(0) <= frontier_ms"
    yield from _comparison(at + "windowed.py", "WindowedOperator._is_due", "a result is due", due)
    yield from _bound(at + "windowed.py", "WindowedOperator._is_due", "a result is due", due)
    yield from _comparison(at + "windowing.py", "is_late", "a row is late for its window", ">= 0")
    yield from _bound(at + "windowing.py", "margin_ms", "a row is late for its window", "windows.closes_ms(0)")
    yield from _bound(
        at + "merged_windows.py", "_assigned", "the oldest window of a row", "time - size_ms + advance_ms"
    )
    yield from _of(at + "merged_windows.py", "_assigned", "the newest window of a row", newest, "newest", "newest + 2")
    session = at + "merged_sessions.py"
    yield from _comparison(session, "MergedSessions._marked", "sessions are apart", "pl.col(WINDOW_START) > ends")
    yield from _bound(session, "MergedSessions._marked", "sessions are apart", "self.windows.gap_ms")
    yield from _bound(session, "_reached", "the session before is joined", "timestamp_ms - gap_ms")
    yield from _bound(session, "_reached", "the session after is joined", "timestamp_ms + gap_ms")
    yield from _comparison(at + "lateness.py", "on_time", "a row is late for its operator", "margin >= 0")
    yield from _bound(at + "lateness.py", "on_time", "a row is late for its operator", "bound_ms - 1")
    yield from _of(at + "lateness.py", "on_time", "a derived row is never late", "fill_null(False)", "fill_null(True)")
    join = at + "joins.py"
    alone = "bound_ms < frontier_ms"
    yield from _comparison(join, "StreamStreamJoinOperator._settle", "a record leaves alone", alone)
    yield from _bound(join, "StreamStreamJoinOperator._settle", "a record leaves alone", alone)
    bounds = "(self.node.after_ms, self.node.before_ms)"
    yield from _of(
        join,
        "StreamStreamJoinOperator._new",
        "which bound is whose",
        bounds,
        "(self.node.before_ms, self.node.after_ms)",
    )
    pairs = at + "time_join.py"
    yield from _bound(pairs, "_found", "a partner may come before", "placed[_PLACE] - before_ms")
    yield from _bound(pairs, "_found", "a partner may come after", "placed[_PLACE] + after_ms")
    yield from _of(pairs, "_found", "the earliest partner counts", '"left").to_numpy', '"right").to_numpy')
    yield from _of(pairs, "_found", "the latest partner counts", '"right").to_numpy', '"left").to_numpy')
    first = at + "remembering.py"
    due = "pl.col(TIMESTAMP) + self.node.horizon_ms < frontier_ms"
    yield from _comparison(first, "DeduplicateOperator._decided", "a first leaves", due)
    yield from _bound(first, "DeduplicateOperator._decided", "a first leaves", due)
    rival = "abs(timestamp_ms - winner_ms) > self.node.horizon_ms"
    yield from _comparison(first, "DeduplicateOperator._judged", "a rival is within the horizon", rival)
    yield from _bound(first, "DeduplicateOperator._judged", "a rival is within the horizon", rival)
    limit = "pl.col(_FIRST) <= frontier_ms - self.node.limit_ms"
    yield from _comparison(first, "SuppressOperator._is_due", "an update leaves after its limit", limit)
    yield from _of(first, "SuppressOperator._is_due", "an update leaves after its limit", limit, f"{limit} - 1")
    forget = "2 * self.node.horizon_ms < forgotten_ms"
    yield from _comparison(first, "DeduplicateOperator._forget", "when a winner is forgotten", forget)
    lookup = at + "lookups.py"
    waiting = "pl.col(TIMESTAMP) <= reached_ms"
    yield from _comparison(lookup, "StreamTableJoinOperator._due", "a lookup waits", waiting)
    yield from _bound(lookup, "StreamTableJoinOperator._due", "a lookup waits", waiting)
    timer = "kept.next_timer_ms <= about[_BEFORE]"
    yield from _comparison(at + "processing.py", "ProcessOperator._replay", "a timer goes off before a record", timer)
    yield from _bound(at + "processing.py", "ProcessOperator._replay", "a timer goes off before a record", timer)
    for code in ("list.min() <= until_ms", "kept.next_timer_ms <= until_ms"):
        yield from _comparison(at + "key_states.py", "KeyStates.with_timers", "a timer goes off at the frontier", code)
    yield from _bound(
        at + "sliding_panes.py", "SlidingPane.add", "a record is late for all", "self._windows.difference_ms"
    )
    yield from _comparison(at + "sliding_panes.py", "SlidingPane.members", "who is in a window", ">= start_ms")
    yield from _of(at + "placed.py", "ByTime.between", "who is in a window", "bisect_right", "bisect_left")
    chained = "self.all[first - 1].timestamp_ms <= gap_ms"
    yield from _comparison(at + "placed.py", "ByTime.chain", "whom a record joins", chained)
    yield from _comparison(at + "placed.py", "ByTime.chain", "whom a record joins", "timestamp_ms - at_ms <= gap_ms")
    kept = "windows.closes_ms(1 + windows.difference_ms)"
    yield from _of(at + "kept_records.py", "KeptRecords.forget", "when a record is forgotten", kept, f"({kept} - 1)")
    earlier, later = "known.start_ms - gap_ms", "known.end_ms + gap_ms"
    yield from _bound(at + "folds.py", "_grown", "which sessions a fold merges", earlier)
    yield from _bound(at + "folds.py", "_grown", "which sessions a fold merges", later)
    forget = "pl.col(WINDOW_END) + self.node.windows.closes_ms(0)"
    yield from _of(
        at + "merged_windows.py", "MergedWindows.forget", "when a window is forgotten", forget, f"({forget} - 1)"
    )
    yield from _of(
        at + "joins.py",
        "StreamStreamJoinOperator._settle",
        "when a row is forgotten",
        "bound_ms < forgotten_ms",
        "bound_ms <= forgotten_ms",
    )
    yield from _of(at + "clock.py", "Clock._slowest", "the slowest partition counts", "self.delay_ms", "0")
    yield from _of(
        at + "clock.py", "Clock.advance", "whose records are no clock", "if not self.holds_back", "if self.holds_back"
    )
    yield from _of(
        at + "clock.py", "held_back", "by what a held record is judged", "pl.col(JUDGED)", "pl.col(TIMESTAMP)"
    )
