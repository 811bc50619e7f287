"""What windowed operators forget once every partition has passed it, and what they cannot: times in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.engine.operators.windowed_engine import (
    CLOSING,
    Engine,
    Event,
    Interpreted,
    emitting,
    keyed_events,
    revisions_count_up,
    table,
)

from recount.declare.aggregates import count, total
from recount.declare.flow import RecordStream
from recount.declare.operators.nodes import EmissionKind
from recount.declare.windows import Windows, all_time, hopping, last_n, session, sliding, tumbling

KINDS: list[EmissionKind] = ["final", "each batch", "each record"]
SESSION = session("5 ms", grace="0 ms", reach="9 ms")
CUT = session("5 ms", grace="0 ms", max_duration="9 ms")
TUMBLING = tumbling("10 ms", grace="2 ms")


def at(timestamp_ms: int, key: str = "a", partition: int = 0) -> Event:
    return Event(timestamp_ms, key=key, partition=partition)


def everywhere(timestamp_ms: int) -> list[Event]:
    """A record of a key of its own in each partition."""
    return [at(timestamp_ms, "clock", partition) for partition in (0, 1)]


def counted(windows: Windows, emission: EmissionKind) -> RecordStream:
    return emitting(keyed_events().windowed_by(windows).aggregate(n=count()), emission)


def summed(results: RecordStream, windows: Windows, emission: EmissionKind) -> RecordStream:
    return emitting(results.windowed_by(windows).aggregate(n=total("n")), emission)


def told(batch: Sequence[tuple[object, ...]]) -> list[tuple[object, object]]:
    """Windows and revisions of what leaves of the key a."""
    return [(window, revision) for key, window, _, revision, _ in batch if key == "a"]


def a_chain_back(step: int) -> list[Event]:
    """A record on time, and one after another ``step`` before it: the last one near a session of long ago."""
    return [at(timestamp_ms) for timestamp_ms in range(1_000, 0, -step)]


@pytest.mark.parametrize("emission", KINDS)
@pytest.mark.parametrize("windows", [SESSION, CUT], ids=["gap", "cut"])
def test_records_lead_back_no_further_than_their_reach(windows: Windows, emission: EmissionKind) -> None:
    """At 1,000 also 995 and 990 are on time, in a session that has not ended; 985 would be in none."""
    batches = [[at(0)], everywhere(1_000), a_chain_back(5), everywhere(2_000)]
    flow = counted(windows, emission)
    engine, interpreted = Engine(flow, batches, restarts=[3]), Interpreted(flow, batches)
    assert engine.late == interpreted.late
    assert table(engine.emitted) == table(interpreted.emitted)
    assert {("a", (0, 0)), ("a", (990, 1_000 if windows is SESSION else 995))} <= table(engine.emitted).keys()


@pytest.mark.parametrize("windows", [SESSION, CUT], ids=["gap", "cut"])
def test_the_late_ledger_names_the_session_that_a_record_missed_or_its_own_moment(windows: Windows) -> None:
    """Records of 5 are late once time is past 10; at 19 one could have been in a session that ended at 14."""
    for reached_ms, missed in [(11, (2, 5)), (19, (2, 5)), (20, (5, 5))]:
        batches = [[at(2)], everywhere(reached_ms), [at(5)]]
        engine = Engine(counted(windows, "final"), batches, restarts=[2])
        assert engine.late == Interpreted(counted(windows, "final"), batches).late
        assert [row[6:8] for row in engine.late] == [missed]


@pytest.mark.parametrize(("reached_ms", "rows"), [(29, 1), (30, 0), (31, 0)])
@pytest.mark.parametrize("windows", [SESSION, CUT], ids=["gap", "cut"])
def test_a_session_is_forgotten_when_no_record_can_reach_it(windows: Windows, reached_ms: int, rows: int) -> None:
    """Gap 5, no grace, reach 9: at 29 a record at 15 is on time in [15, 24], and it joins 10; at 30 it is late."""
    batches = [[at(10, partition=1), at(24)], everywhere(reached_ms), [at(20), at(15)], everywhere(100)]
    engine = Engine(counted(windows, "final"), batches[:2])
    assert engine.held[0]["results"] == 2 + rows, "24 and the clock stay"
    kept, clocks = ("records", 2) if windows is CUT else ("windows", 1)
    assert engine.held[0][kept] == 1 + clocks + rows
    engine = Engine(counted(windows, "final"), batches, restarts=[2, 3])
    assert table(engine.emitted) == table(Interpreted(counted(windows, "final"), batches).emitted)
    assert revisions_count_up(engine.emitted)
    assert (((10, 10), 1) in told(engine.emitted[2])) is bool(rows)


def of_ended_sessions(keys: int) -> list[Sequence[Event]]:
    """Every batch many keys speak for the only time, three times each, so that their session grows."""
    return [
        [at(100 * batch + after, f"{batch}:{key}", key % 2) for after in (0, 4, 8) for key in range(keys)]
        for batch in range(12)
    ]


@pytest.mark.parametrize("windows", [SESSION, CUT], ids=["gap", "cut"])
@pytest.mark.parametrize("emission", KINDS)
def test_sessions_stay_flat_over_a_long_log(windows: Windows, emission: EmissionKind) -> None:
    log = of_ended_sessions(20)
    few, many = (Engine(counted(windows, emission), log[:batches]).held[0] for batches in (4, 12))
    assert few == many


@pytest.mark.parametrize("partitions", [1, 2])
def test_of_a_session_that_is_cut_again_and_again_the_old_records_go(partitions: int) -> None:
    """A record every 4 ms for ever, in partitions by turns: cut every 9 ms at most, in each partition elsewhere."""
    log = [[at(4 * (10 * batch + step), partition=step % partitions) for step in range(10)] for batch in range(30)]
    log[0].insert(0, at(0, "clock", 1))
    flow = counted(CUT, "each batch")
    if partitions == 1:
        log = [[*batch, at(batch[-1].timestamp_ms, "clock", 1)] for batch in log]
    engine = Engine(flow, log, restarts=[7])
    assert table(engine.emitted) == table(Interpreted(flow, log).emitted)
    assert engine.held[0]["records"] < 30


@pytest.mark.parametrize("emission", KINDS)
def test_of_a_session_that_grows_no_row_stays_for_each_of_its_updates(emission: EmissionKind) -> None:
    batches = [[at(3 * step, partition=step % 2)] for step in range(40)]
    engine = Engine(counted(SESSION, emission), batches, restarts=[7, 23])
    assert engine.held[0]["results"] <= 4, "the session, and of final results what is held back until it would be due"
    assert revisions_count_up(engine.emitted)


def test_a_session_that_is_cut_can_be_there_again_and_counts_its_revisions_on() -> None:
    """Longest 9: a record at 99 moves the cut of [100, 109], and one at 90, with 94 and 99, moves it back."""
    moved = [at(100), at(109), at(104), at(99), at(94), at(90)]
    batches = [[one] for one in moved]
    for emission in KINDS[1:]:
        engine = Engine(counted(CUT, emission), batches, restarts=[2])
        interpreted = Interpreted(counted(CUT, emission), batches)
        assert [sorted(map(str, batch)) for batch in engine.emitted] == [
            sorted(map(str, batch)) for batch in interpreted.emitted
        ]


ABOVE: dict[str, Windows] = {
    "tumbling": TUMBLING,
    "hopping": hopping("10 ms", advance="4 ms", grace="2 ms"),
    "sliding": sliding("6 ms", grace="2 ms"),
    "session": SESSION,
    "cut": CUT,
}
NEVER_SETTLED: dict[str, Windows] = {"all time": all_time(), "last n": last_n(2)}


@pytest.mark.parametrize("below", ABOVE)
@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("emission", KINDS)
def test_windows_over_windows_that_close_stay_flat(above: str, below: str, emission: EmissionKind) -> None:
    flow = summed(counted(ABOVE[above], emission), ABOVE[below], emission)
    log = of_ended_sessions(4)
    few, many = (Engine(flow, log[:batches]) for batches in (4, 12))
    assert few.held == many.held
    assert table(many.emitted) == table(Interpreted(flow, log).emitted)


@pytest.mark.parametrize(
    ("above", "reached_ms", "rows"),
    [(TUMBLING, 31, 2), (TUMBLING, 32, 1), (TUMBLING, 33, 1), (SESSION, 38, 2), (SESSION, 39, 1), (SESSION, 40, 1)],
)
def test_a_window_over_results_is_forgotten_when_those_above_are_settled(
    above: Windows, reached_ms: int, rows: int
) -> None:
    """Above size 10, grace 2; so below the end 20 is settled at 32. Or above gap 5, and a gap and reach 9: at 39."""
    flow = summed(counted(above, "each batch"), tumbling("10 ms", grace="0 ms"), "each batch")
    engine = Engine(flow, [[at(15)], everywhere(reached_ms)])
    assert engine.held[1] == {"records": rows, "results": rows}


@pytest.mark.parametrize("above", NEVER_SETTLED)
def test_windows_over_what_can_be_revised_at_any_time_are_kept(above: str) -> None:
    flow = summed(counted(NEVER_SETTLED[above], "each batch"), TUMBLING, "each batch")
    log = [*of_ended_sessions(2), CLOSING]
    assert Engine(flow, log[:4]).held[1]["records"] < Engine(flow, log[:8]).held[1]["records"]
    assert table(Engine(flow, log).emitted) == table(Interpreted(flow, log).emitted)


def test_a_window_over_a_session_that_had_left_loses_it_when_it_is_withdrawn() -> None:
    """At 17 the window [0, 10) has left with [0, 0], which 12, 8 and 5 still join."""
    flow = summed(counted(SESSION, "final"), TUMBLING, "final")
    batches = [[at(0)], everywhere(17), [], [at(12), at(8), at(5)], everywhere(2_000), everywhere(3_000)]
    engine, interpreted = Engine(flow, batches, restarts=[3]), Interpreted(flow, batches)
    assert table(engine.emitted) == table(interpreted.emitted)
    assert ("a", (0, 10)) in table(engine.emitted[:3]) and ("a", (0, 10)) not in table(engine.emitted)


def test_windows_over_windows_over_sessions_stay_flat() -> None:
    flow = summed(summed(counted(SESSION, "each batch"), TUMBLING, "each batch"), TUMBLING, "each batch")
    few, many = (Engine(flow, of_ended_sessions(2)[:batches]).held for batches in (4, 12))
    assert few == many
