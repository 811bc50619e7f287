"""Differences from Kafka Streams that follow from a rule of docs/semantics.md.

A rule excuses a case only if it explains the difference: what it is about is taken out on both sides, and the rest must
agree with the peer. So a case cannot hide a fault behind a rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from tests.conformance.cases import LEFT, RIGHT, Case, Result, value_of
from tests.conformance.outcome import Keep, Outcome, comparable, first_difference, interpreted, place

Input = Mapping[str, Any]

LATE_JOIN = "Joins: each side is judged late by its own partition, and a late record joins nothing"
OWN_TIME_JOIN = "Joins: each side is judged by its own partition; no shared stream time makes a stored record expire"
ALONE = "Joins: the unmatched side is emitted once, when no partner can be on time any more; never a null later matched"
TABLE_TIME = "Joins: with a join grace the event waits for the table's stream time, not for the stream's"
TOMBSTONE = "Joins: a tombstone is emitted only where a result existed"
NO_EXPIRY = "Windows: a final result is due by its window and the frontier alone; state does not expire before that"
CLOSING = "Windows: the final result of an end-inclusive window is due when end < frontier - grace (session: - gap)"
REVISED = (
    "Time: an emitted result that a later record changes is revised; a closed session taken in by another is withdrawn"
)
NO_THROTTLE = "Emission: the frontier decides when a final result is emitted, never a wall clock"
ONCE = "Emission: a record makes one update of each window that it changes, not the same update twice"
ON_TIME = "Windows: a record is in every window it is on time for, also where its own window has closed"
NULL_VALUE = "Time: every record with a key advances stream time, also one whose null value is then dropped"


def rule_for(case: Case, outcome: Outcome) -> str | None:
    """The rule that explains all differences between ``case`` and ``outcome``; None where there is none."""
    return next(_explaining(case, outcome), None)


def _explaining(case: Case, outcome: Outcome) -> Iterator[str]:
    match case.operator:
        case "stream-stream-join":
            yield from _stream_stream(case, outcome)
        case "stream-table-join" if case.config.get("grace_ms") is not None:
            if {comparable(result) for result in (*case.expected_final, *outcome.updates)} <= _looked_up(case):
                yield TABLE_TIME
        case "table-table-join":
            if first_difference(_without_idle_tombstones(case), outcome) is None:
                yield TOMBSTONE
        case "suppress" if case.config["mode"] == "until_window_closes":
            at_rest, open_there = _not_revised(outcome), _not_at_the_boundary(case)
            if first_difference(case, outcome, at_rest) is None:
                yield REVISED
            if first_difference(case, outcome, lambda result: at_rest(result) and open_there(result)) is None:
                yield CLOSING
        case "tumbling" | "hopping" | "sliding" | "session" if case.config.get("emit") == "close":
            if case.config.get("emit_interval_ms") and _contained(case.expected_final, outcome.updates):
                yield NO_THROTTLE
            if first_difference(case, outcome, _not_revised(outcome)) is None:
                yield REVISED
            if first_difference(case, outcome, _not_expired(case, outcome)) is None:
                yield NO_EXPIRY
    if case.operator == "sliding":
        if first_difference(*_said_once(case, outcome)) is None:
            yield ONCE
        if _agrees_without_late_neighbours(case, outcome):
            yield ON_TIME
    if case.operator in ("sliding", "count", "reduce", "aggregate") and _agrees_without_null_values(case):
        yield NULL_VALUE


def _looked_up(case: Case) -> set[tuple[Any, ...]]:
    """Every result that a stream record would make with the table as of its time, as read at one moment or another."""
    stream = [one for one in case.input if one["topic"] == case.config["left"] and one["value"] is not None]
    table = [one for one in case.input if one["topic"] == case.config["right"]]
    rows = []
    for record in stream:
        versions = [one for one in table if one["key"] == record["key"] and one["ts"] <= record["ts"]]
        for read in range(len(versions) + 1):
            latest = max(enumerate(versions[:read]), key=lambda one: (one[1]["ts"], one[0]), default=None)
            rows.append((record, {LEFT: record["value"], RIGHT: latest and latest[1]["value"]}))
    return _results(case, rows)


def _contained(part: Sequence[Result], whole: Sequence[Result]) -> bool:
    return Counter(map(comparable, part)) <= Counter(map(comparable, whole))


def _stream_stream(case: Case, outcome: Outcome) -> Iterator[str]:
    """First without the records that left alone; then also without the pairs that only one side's clock allowed."""
    alone = _alone(case)

    def paired(result: Result) -> bool:
        return comparable(result) not in alone

    if case.config["join_type"] != "inner" and first_difference(case, outcome, paired) is None:
        yield ALONE
    ours, theirs = (
        Counter(comparable(one) for one in results if paired(one)) for results in (outcome.updates, case.expected_final)
    )
    late = {index for index, _, _ in outcome.late_windows}
    of_late = _pairs(case, late.intersection)
    forgotten = _pairs(case, lambda indices: _is_forgotten(case, indices))
    if set(theirs - ours) <= of_late and set(ours - theirs) <= forgotten:
        yield LATE_JOIN if late else OWN_TIME_JOIN


def _is_forgotten(case: Case, indices: set[int]) -> bool:
    """Whether the peer's store, by the largest time on its own side, had dropped the record that came first."""
    retention_ms = case.config["before_ms"] + case.config["after_ms"] + case.config["grace_ms"]
    stored = case.input[min(indices)]
    before = [one["ts"] for one in case.input[: max(indices)] if one["topic"] == stored["topic"]]
    return bool(before) and bool(stored["ts"] <= max(before) - retention_ms)


def _alone(case: Case) -> set[tuple[Any, ...]]:
    """Every result that a record of the input would make without a partner."""
    if case.config.get("value_type") == "int-sum":
        return set()
    values = [record for record in case.input if record["value"] is not None]
    sides = [(record, side) for record in values for side in (LEFT, RIGHT) if _is_of(case, record, side)]
    return _results(case, ((record, {LEFT: None, RIGHT: None, side: record["value"]}) for record, side in sides))


def _pairs(case: Case, differ: Callable[[set[int]], object]) -> set[tuple[Any, ...]]:
    """Every result of two input records of one key, of which ``differ`` says that they may be judged otherwise."""
    values = [(index, one) for index, one in enumerate(case.input) if one["value"] is not None]
    pairs = (
        (one if one["ts"] >= other["ts"] else other, {LEFT: one["value"], RIGHT: other["value"]})
        for i, one in values
        for j, other in values
        if _is_of(case, one, LEFT) and _is_of(case, other, RIGHT) and one["key"] == other["key"] and differ({i, j})
    )
    return _results(case, pairs)


def _is_of(case: Case, record: Input, side: str) -> bool:
    """A record of a topic that is joined with itself is of both sides."""
    return bool(record["topic"] == case.config["left" if side == LEFT else "right"])


def _results(case: Case, rows: Iterable[tuple[Input, Mapping[str, Any]]]) -> set[tuple[Any, ...]]:
    """Results as the case may write them: with the time of the record beside the row, and without."""
    made = [({"key": record["key"], "value": value_of(case, row)}, record["ts"]) for record, row in rows]
    return {comparable({**result, **time}) for result, ts in made for time in ({"timestamp": ts}, {})}


def _without_idle_tombstones(case: Case) -> Case:
    """The case without the tombstones of keys that had no result."""
    existing: set[Any] = set()

    def kept(result: Result) -> bool:
        key = place(result)
        existed = key in existing
        (existing.discard if result["value"] is None else existing.add)(key)
        return result["value"] is not None or existed

    updates = None if case.expected_updates is None else [one for one in case.expected_updates if kept(one)]
    existing.clear()
    steps = [(after, [one for one in emitted if kept(one)]) for after, emitted in case.expected_steps]
    return replace(case, expected_updates=updates, expected_steps=steps)


def _not_revised(outcome: Outcome) -> Keep:
    """Leaves out the windows of final results that were withdrawn."""
    withdrawn = {place(result) for result in outcome.updates if result["value"] is None}
    return lambda result: place(result) not in withdrawn


def _not_at_the_boundary(case: Case) -> Keep:
    """Leaves out windows that end exactly where the peer's suppression, a millisecond early, lets them go."""
    stream_times = accumulate((record["ts"] for record in case.input), max)
    ends = {stream_time - case.config["wait_ms"] for stream_time in stream_times}
    inclusive = case.config["upstream"]["operator"] in ("sliding", "session")
    return lambda result: not (inclusive and result["window_end"] in ends)


def _not_expired(case: Case, outcome: Outcome) -> Keep:
    """Leaves out windows that the peer's store had dropped by the time at which they were emitted."""
    config = case.config
    size_ms = config.get("size_ms", config.get("gap_ms", 0))
    retention_ms = config.get("retention_ms") or size_ms + config["grace_ms"]
    expected = {place(result) for result in case.expected_final}
    stream_times = accumulate((record["ts"] for record in case.input), max)
    expired = {
        place(result)
        for stream_time, results in zip(stream_times, outcome.emitted, strict=True)
        for result in results
        if result["window_start"] < stream_time - retention_ms and place(result) not in expected
    }
    return lambda result: place(result) not in expired


def _agrees_without_null_values(case: Case) -> bool:
    """Whether the case would agree if the records with null values had never been sent."""
    nulls = {index for index, record in enumerate(case.input) if record["value"] is None}
    without = _without(case, nulls)
    return bool(nulls) and first_difference(without, interpreted(without)) is None


def _agrees_without_late_neighbours(case: Case, outcome: Outcome) -> bool:
    """Whether windows that hold or follow a record which was late for its own window alone make the difference.

    The peer does not store that window, and so does not find the record when another one makes a window around it.
    """
    size_ms, grace_ms = case.config["time_difference_ms"], case.config["grace_ms"]
    stream_times = accumulate((record["ts"] for record in case.input), max)
    closed = [stream_time - grace_ms for stream_time in stream_times]
    late = {index for index, _, _ in outcome.late_windows}
    records = [(index, case.input[index]) for index in late if case.input[index]["ts"] + size_ms >= closed[index]]
    times = [(str(record["key"]), record["ts"]) for _, record in records]

    def elsewhere(result: Result) -> bool:
        start, end, own = result["window_start"], result["window_end"], str(result["key"])
        return not any(key == own and start - 1 <= ts <= end for key, ts in times)

    loses_more = set(outcome.indices("late")) <= set(case.late_dropped or outcome.indices("late"))
    without, changes = _said_once(replace(case, late_dropped=None), outcome)
    return bool(records) and loses_more and first_difference(without, changes, elsewhere) is None


def _without(case: Case, left_out: set[int]) -> Case:
    """The case as if the input records ``left_out`` had never been sent."""
    kept = [index for index in range(len(case.input)) if index not in left_out]
    late = None if case.late_dropped is None else [kept.index(index) for index in case.late_dropped if index in kept]
    return replace(
        case,
        input=[case.input[index] for index in kept],
        expected_steps=[(sum(index < after for index in kept), emitted) for after, emitted in case.expected_steps],
        late_dropped=late,
        late_windows=(),
        null_dropped=(),
    )


def _said_once(case: Case, outcome: Outcome) -> tuple[Case, Outcome]:
    """Both without the updates that only repeat the one before."""
    updates = None if case.expected_updates is None else _changes([case.expected_updates])[0]
    steps = [emitted for _, emitted in case.expected_steps]
    changes = zip((after for after, _ in case.expected_steps), _changes(steps), strict=True)
    return (
        replace(case, expected_updates=updates, expected_steps=list(changes)),
        replace(outcome, emitted=_changes(outcome.emitted)),
    )


def _changes(emitted: Sequence[Sequence[Result]]) -> list[list[Result]]:
    return [
        [one for before, one in pairwise([None, *results]) if one is not None and one != before] for results in emitted
    ]
