"""Single rules of the windowed operator, each in a log of its own: two partitions, times in milliseconds."""

from __future__ import annotations

import pytest
from tests.unit.engine.operators.windowed_engine import (
    CLOSING,
    Engine,
    Event,
    Interpreted,
    Result,
    emitting,
    keyed_events,
)

from recount.declare.aggregates import count
from recount.declare.flow import RecordStream
from recount.declare.operators.nodes import EmissionKind
from recount.declare.windows import Windows, hopping, session, sliding, tumbling

TUMBLING = tumbling("10 ms", grace="0 ms")
SLIDING = sliding("6 ms", grace="4 ms")
SESSION = session("5 ms", grace="0 ms")
HOPPING = hopping("10 ms", advance="4 ms", grace="0 ms")


def counted(windows: Windows, emission: EmissionKind) -> RecordStream:
    return emitting(keyed_events().windowed_by(windows).aggregate(records=count()), emission)


def at(timestamp_ms: int, partition: int = 0, key: str | None = "a") -> Event:
    return Event(timestamp_ms, key=key, partition=partition)


def brief(batch: list[Result]) -> list[tuple[object, ...]]:
    """(key, window, records, revision); no records where the result was withdrawn."""
    return [
        (key, window, None if value is None else {name: cell for name, _, cell in value}["records"], revision)
        for key, window, _, revision, value in batch
    ]


def test_a_final_session_that_is_bridged_is_withdrawn_in_a_higher_revision() -> None:
    """The gap is 5: [0, 3] is final at 9; a record at 7 is on time, for its session reaches to 12, and joins all."""
    batches = [[at(0), at(3), at(12), at(12, 1)], [at(7)], [at(60), at(60, 1)]]
    engine = Engine(counted(SESSION, "final"), batches, restarts=[1])
    assert [brief(batch) for batch in engine.emitted] == [
        [("a", (0, 3), 2, 0)],
        [("a", (0, 3), None, 1)],
        [("a", (0, 12), 5, 0)],
    ]


def test_a_session_that_was_never_emitted_is_not_withdrawn() -> None:
    engine = Engine(counted(SESSION, "final"), [[at(0)], [at(8)], [at(4)], CLOSING])
    assert [brief(batch) for batch in engine.emitted] == [[], [], [], [("a", (0, 8), 3, 0)]]


def test_a_record_that_a_sliding_window_to_come_can_hold_is_counted_in_its_own_batch() -> None:
    """Difference 6, grace 4: at 20 windows that end before 16 are closed. [11, 17], which 17 defines, holds 12."""
    log = [[at(20), at(12)], [at(17, 1)]]
    alone = Engine(counted(SLIDING, "each batch"), log[:1])
    assert (alone.fates["left", 0, 1], [row[2] for row in alone.late]) == ("counted", [1])
    engine = Engine(counted(SLIDING, "each batch"), log, restarts=[1])
    assert engine.fates["left", 0, 1] == "counted"
    assert ("a", (11, 17), 2, 0) in brief(engine.emitted[1])
    assert [row[2] for row in engine.late] == [1]


def test_a_record_is_late_where_no_sliding_window_that_is_open_can_hold_it() -> None:
    """At 20 the newest window around 10 ends at 16, and is open; that around 9 is closed."""
    log, flow = [[at(20), at(10), at(9)]], counted(SLIDING, "each batch")
    expected = {("left", 0, 0): "counted", ("left", 0, 1): "counted", ("left", 0, 2): "late"}
    assert Engine(flow, log).fates == expected == Interpreted(flow, log).fates


@pytest.mark.parametrize("windows", [TUMBLING, HOPPING, SLIDING], ids=str)
def test_a_window_that_no_partition_can_change_any_more_is_forgotten(windows: Windows) -> None:
    batches = [[at(1), at(2, 1)], [at(100), at(100, 1)], [at(1_000), at(1_000, 1)]]
    held = [Engine(counted(windows, "final"), batches[:number]).remembered for number in (1, 2, 3)]
    assert held[0] > 0
    assert held[1] == held[2], "what the batch before left is gone"


def test_a_window_is_remembered_while_an_idle_partition_may_change_it() -> None:
    batches = [[at(1), at(2, 1)], [at(100)], [at(1_000)]]
    held = [Engine(counted(TUMBLING, "final"), batches[:number], idle=[-1, 1, 1]).remembered for number in (1, 2, 3)]
    assert held == sorted(set(held)), "rows are added and none is dropped"


def test_a_batch_writes_the_sessions_that_it_changes_and_not_all_that_its_keys_ever_had() -> None:
    batches = [[at(100 * number), at(100 * number, partition=1)] for number in range(1, 8)]
    engine = Engine(counted(SESSION, "final"), batches)
    assert engine.remembered > engine.written[-1]
    assert set(engine.written[1:]) == {engine.written[1]}
