"""Boundaries of the rule modules without a mutant: moved, they change nothing that an audit judges."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.mutant import Untried

_REFUSES = "refuses a declaration: there is no stream then"
_UNUSED = "never used: the fluent API always says it"
_TIMER = "a timer that is no time, or one too many: its record is a dead letter, or the stream stops"
_LEAVING = "the order in which updates of one record leave: of updates the audit judges the last"


def untried() -> Iterator[Untried]:
    """All of them, in the order of the files."""
    windows, topology, schema = "declare/windows.py", "declare/topology.py", "declare/schema.py"
    stage = "engine/stage/intake.py"
    yield _one(windows, "TimeWindows.__post_init__", "0 < self.advance_ms <= self.size_ms", _REFUSES)
    yield _one(windows, "SlidingWindows.leaving_order", "timestamp_ms < self.difference_ms", _LEAVING)
    yield _one(windows, "SlidingWindows.leaving_order", "start > timestamp_ms", _LEAVING)
    yield _one(windows, "SlidingWindows.leaving_order", "start <= timestamp_ms < end", _LEAVING)
    yield _one(windows, "LastN.__post_init__", "self.n > 0", _REFUSES)
    yield _one(windows, "_require_positive", "given_ms > 0", _REFUSES)
    yield _one("declare/operators/processing.py", "_time", "0 <= at_ms <= LONG_MAX", _TIMER)
    yield _one("declare/operators/processing.py", "count_timer", "state.fired > MOST_FIRINGS", _TIMER)
    near = '(pl.col(TIMESTAMP) // many - pl.col("record_timestamp_ms")).abs() <= YEAR_MS'
    yield _one(stage, "Intake._unit_ahead", near, "what the error of a dead letter says, for people")
    yield _one("declare/operators/joins.py", "StreamTableJoin", 'as_of: AsOf = "event"', _UNUSED)
    yield _one("declare/operators/tables.py", "ToTable", "versioned: bool = False", _UNUSED)
    yield _one("declare/operators/tables.py", "Suppress.__post_init__", "self.max_rows > 0", _REFUSES)
    too_large = "whether a result that is too large stops the stream, not what it says"
    yield _one("declare/flow.py", "Table.to", '= "stop"', too_large)
    yield _one(topology, "Topology", '= "dead-letter"', "whether a bad record stops the stream, not what it says")
    yield _one(topology, "Topology.__post_init__", "len(self.name) <= LONGEST_STREAM", _REFUSES)
    yield _one(topology, "Topology.__post_init__", "self.idle_after_ms >= 0", _REFUSES)
    yield _one(topology, "Topology.__post_init__", "self.max_future_ms >= 0", _REFUSES)
    yield _one(topology, "Topology.__post_init__", "int(limit) >= self.max_future_ms", _REFUSES)
    yield _one(topology, "Topology", '= "400 d"', "how long rows are kept: removed ones are judged as removed")
    yield _one(topology, "Topology.__post_init__", "self.retention_ms > 0", _REFUSES)
    yield _one(topology, "Topology._require_outputs_of_its_own", "given.count(name) > 1", _REFUSES)
    yield _one(topology, "Topology.forks", "len(readers) > 1", "of one reader it numbers more than it must")
    yield _one(schema, "decimal", "0 <= scale <= precision <= MAX_DECIMAL_PRECISION and precision > 0", _REFUSES)
    yield _one(schema, "_integer", "len(digits) <= 400", "no type takes a number of 400 digits, nor one of 401")
    half = '"\\ud800" <= character <= "\\udfff"'
    yield _one(schema, "is_unicode", half, "Arrow cannot carry half a character: the stream stops")
    only = "only the interpreter asks it of a LONG; the stream's sums are cast, see `fitted`"
    yield _one("declare/aggregates.py", "fits", "LONG_MIN <= total <= LONG_MAX", only)
    subset = "set(map(type, cells)) <= _NUMBERS"
    room = "spares a number of a million digits: no number fits there"
    yield _one("formats/protobuf_resolution.py", "_decimal", "further > MAX_DECIMAL_PRECISION", room)
    yield _one("formats/protobuf_resolution.py", "_decimal", "-further > unscaled.bit_length()", room)
    yield _one("formats/json_values.py", "ValueDecoder._column", subset, "which of two methods decodes")
    merged, order = "engine/operators/merged_windows.py", "MergedWindows._require_order"
    refused = "whether a fold of all time refuses a record: it ends the stream, see tests/field/partitions.py"
    yield _one(merged, order, "pl.col(column).list.len() > 0", refused)
    yield _one(merged, order, "pl.col(ORDER) < pl.col(_BEFORE)", refused)
    parts = "by which of two methods a sum is added up: tests/unit/engine/stage/test_exact_sums.py draws sums of both"
    sums = "engine/stage/exact_sums.py"
    yield _one(sums, "Carrier.of", "given.precision > _ALWAYS_FITS", parts)
    for code in ("most < 10 ** (MAX_SUM_PRECISION - self.carrier.total.scale)", "most < _PLAIN"):
        yield _one(sums, "Sum._is_plain", code, parts)
    yield _one(sums, "Sum._parts", "self.values.abs() >= _LARGE", parts)
    for code in ('pl.col(f"count {self.total}") > 0', "whole.abs() < _PLAIN"):
        yield _one(sums, "Sum._joined", code, parts)
    for code in ("rest < 0", "digits > 0"):
        yield _one(sums, "_digits_of", code, parts)
    sign = "only the interpreter asks it: of an infinite sum nothing but that it is too large is said"
    yield _one("declare/aggregates.py", "sum_of_doubles", "exact > 0", sign)
    at = "engine/operators/"
    first = "the first revision of a result replaces none"
    yield _one(at + "kept_records.py", "", "pl.col(REVISION) > 0", first)
    forgets = "what is forgotten when: tests/unit/engine/operators/test_what_windows_forget.py has before, at and after"
    for code in ("pl.col(TIMESTAMP) - windows.first_start_ms", "pl.col(TIMESTAMP) - into_newest_ms"):
        yield _one(at + "kept_records.py", "KeptRecords.forget", code, forgets)
    for code in ("end_ms + self.gap_ms", "end_ms + self.gap_ms + self.reach_ms"):
        yield _one(windows, "SessionWindows.settles_ms", code, forgets)
    yield _one(at + "batch_operator.py", "Clock._advance_frontier", "one.delay_ms + one.revised_for_ms", forgets)
    yield _one(at + "windowed_state.py", "revised_for_ms", "reach_ms + gap_ms", forgets)
    merged = "settled_ms - self.windows.settles_ms(0)"
    yield _one(at + "merged_windows.py", "MergedSessions.forget", merged, forgets)
    for code in (
        "self._windows.settles_ms(end) > settled_ms",
        "start < begin_ms <= end",
        "start <= min(earlier)",
        "one.timestamp_ms < begin_ms",
    ):
        yield _one(at + "pane_kinds.py", "SessionPane.settled", code, forgets)
    yield _one(at + "kept_records.py", "KeptRecords.forget", "settled_ms - windows.settles_ms(0)", forgets)
    idle = (
        "which closed windows are sought: tests/unit/engine/test_topologies_are_the_interpreter.py has idle partitions"
    )
    for code in ("before_ms - windows.closes_ms(0)", "pl.col(TIMESTAMP) < bound_ms", "pl.col(WINDOW_END) <= bound_ms"):
        yield _one(at + "batch_windows.py", "WindowedOperator._go_on", code, idle)
    yield _one(at + "batch_processing.py", "Made.add", "len(self._rows) >= _ROWS_AT_ONCE", "how much is held at once")
    none = "of nothing the sum is null, and so is its quotient"
    yield _one(at + "accumulator_kinds.py", "Averaged.result", "count > 0", none)
    plain = "set(map(type, values)) <= _PLAIN.get(kind.kind, set())"
    yield _one(at + "folds.py", "_column", plain, "which of two methods checks values")
    whole = "which of two methods cuts a chain"
    yield _one(at + "pane_kinds.py", "Sessions._is_cut", "end_ms - start_ms > longest_ms", whole)
    yield _one(at + "kept_records.py", "_in_parts", "size >= _MEMBERS_AT_ONCE", "how much is aggregated at once")
    drawn = "which records are the last: tests/unit/engine/test_topologies_are_the_interpreter.py draws older ones"
    yield _one(at + "panes.py", "LastPane.add", "place >= len(self._records.all) - self._n", drawn)
    itself = "a record at the end of a window defines it itself"
    yield _one(at + "pane_kinds.py", "SlidingPane._is_held", "one.timestamp_ms > end_ms", itself)
    again = "a window is named once more, with the same in it: of updates the audit judges the last"
    yield _one(at + "pane_kinds.py", "SlidingPane._around", "one.timestamp_ms < at_ms", again)
    yield _one(at + "pane_kinds.py", "SlidingPane._begins_after", "one.timestamp_ms >= at_ms", again)
    tie = "no two records have one number"
    yield _one(at + "pane_kinds.py", "ByTime.add", "bisect_right(self.all, record)", tie)
    held = "the moment of a record is in one session, and no other touches it"
    yield _one(at + "pane_kinds.py", "_holding", "one[0] <= timestamp_ms <= one[1]", held)
    once = "no result comes twice in one revision"
    yield _one(at + "panes.py", "Placing.replace", "one.revision >= record.revision", once)
    yield _one(at + "panes.py", "Placing.replace", "len(kept) < len(held)", "saves work where nothing is replaced")
    early = "which row leaves early for want of room: of updates the audit judges the last"
    room = "pl.int_range(pl.len()) < pl.len().cast(pl.Int64) - self.node.max_rows"
    yield _one(at + "batch_suppression.py", "SuppressOperator._is_due_or_too_much", room, early)
    yield _one(at + "batch_suppression.py", "SuppressOperator.process", "self._held.height > most", early)
    due = "pl.col(_FIRST) <= self._due_ms"
    yield _one(at + "batch_suppression.py", "SuppressOperator._is_due_or_too_much", due, early)
    runs = "in which runs rows are looked for: tests/unit/engine/state/test_keyed_rows.py has before, at and after"
    yield _one("engine/state/keyed_rows.py", "KeyedRows.until", "least <= bound", runs)
    yield _one("engine/state/keyed_rows.py", "KeyedRows._are_later", "first > self.highest(ARRIVED)", runs)
    lookup, forget = at + "batch_joins.py", "StreamTableJoinOperator._forget"
    stays = "what is forgotten later is not asked for"
    yield _one(lookup, forget, "bound_ms - self._forgotten_ms <= history_ms // SWEEPS", stays)
    many = "keys that are searched together: of so many that a scene cannot have them"
    yield _one(at + "batch_joins.py", "_found", "pl.col(_CODE).is_between", many)
    yield _one(at + "batch_joins.py", "_found", "pl.col(TIMESTAMP) - first_ms", "moves the places of both sides alike")
    warned = "decides whether somebody is warned: no result depends on it"
    yield _one(stage, "Intake._in_seconds", "pl.col(TIMESTAMP) < latest - 2 * YEAR_MS", warned)
    seconds = "(pl.col(TIMESTAMP) * 1_000).is_between(YEAR_2000_MS, latest)"
    yield _one(stage, "Intake._in_seconds", seconds, warned)
    yield _one("declare/operators/event_time.py", "newer_tables", "newest[table] > asking_ms", warned)


def _one(file: str, inside: str, code: str, reason: str) -> Untried:
    return Untried(file=file, inside=inside, code=code, reason=reason)
