"""What windowed operators forget once every partition has passed it, and what they cannot: times in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.spark.operators.windowed_engine import (
    CLOSING,
    Engine,
    Event,
    Interpreted,
    emitting,
    keyed_events,
    revisions_count_up,
    table,
)

from recount.core.aggregates import count, total
from recount.core.flow import RecordStream
from recount.core.nodes import EmissionKind
from recount.core.windows import Windows, all_time, hopping, last_n, session, sliding, tumbling

KINDS: list[EmissionKind] = ["final", "each batch", "each record"]
SESSION = session("5 ms", grace="0 ms")
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
def test_a_session_of_long_ago_is_joined_by_records_that_lead_back_to_it_one_by_one(emission: EmissionKind) -> None:
    """At 1,000 the session [0, 0] has been over for 199 gaps, and no session is near it; yet each record is on time."""
    batches = [[at(0)], everywhere(1_000), everywhere(1_000), a_chain_back(5), everywhere(2_000)]
    engine = Engine(counted(SESSION, emission), batches, restarts=[3])
    interpreted = Interpreted(counted(SESSION, emission), batches)
    assert engine.late == interpreted.late == []
    assert table(engine.emitted) == table(interpreted.emitted)
    assert ("a", (0, 1_000)) in table(engine.emitted) and ("a", (0, 0)) not in table(engine.emitted)
    assert revisions_count_up(engine.emitted)


@pytest.mark.parametrize("step", [5, 6])
def test_sessions_that_are_cut_lead_back_no_further_than_they_last(step: int) -> None:
    batches = [[at(0)], everywhere(1_000), a_chain_back(step)]
    engine = Engine(counted(CUT, "final"), batches)
    on_time = [row for row in engine.fates.items() if row[1] == "counted"]
    assert engine.late == Interpreted(counted(CUT, "final"), batches).late
    assert len(on_time) == 3 + (3 if step == 5 else 1), "1,000, 995 and 990, which is in [990, 995]; or 1,000 alone"


@pytest.mark.parametrize("windows", [SESSION, CUT], ids=["gap", "cut"])
def test_the_late_ledger_names_a_session_however_long_ago(windows: Windows) -> None:
    batches = [[at(2)], everywhere(1_000_000), [at(5)]]
    engine = Engine(counted(windows, "final"), batches, restarts=[2])
    assert engine.late == Interpreted(counted(windows, "final"), batches).late
    assert [row[6:8] for row in engine.late] == [(2, 5)]


@pytest.mark.parametrize(("reached_ms", "rows"), [(29, 1), (30, 0), (31, 0)])
def test_the_result_of_a_session_that_is_cut_is_forgotten_when_no_record_can_reach_it(
    reached_ms: int, rows: int
) -> None:
    """Gap 5, no grace, longest 9: at 29 a record at 15 is on time in [15, 24], and it joins 10; at 30 it is late."""
    batches = [[at(10, partition=1), at(24)], everywhere(reached_ms), [at(20), at(15)], everywhere(100)]
    engine = Engine(counted(CUT, "final"), batches[:2])
    assert engine.held[0]["results"] == 2 + rows, "24 and the clock stay"
    engine = Engine(counted(CUT, "final"), batches, restarts=[2, 3])
    assert table(engine.emitted) == table(Interpreted(counted(CUT, "final"), batches).emitted)
    assert revisions_count_up(engine.emitted)
    assert (((10, 10), 1) in told(engine.emitted[2])) is bool(rows)


def of_ended_sessions(keys: int) -> list[Sequence[Event]]:
    """Every batch many keys speak for the only time, three times each, so that their session grows."""
    return [
        [at(100 * batch + after, f"{batch}:{key}", key % 2) for after in (0, 4, 8) for key in range(keys)]
        for batch in range(12)
    ]


@pytest.mark.parametrize("emission", KINDS)
def test_results_of_sessions_that_are_cut_stay_flat_over_a_long_log(emission: EmissionKind) -> None:
    log = of_ended_sessions(20)
    few, many = (Engine(counted(CUT, emission), log[:batches]).held[0] for batches in (4, 12))
    assert few["results"] == many["results"]


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
}
NEVER_SETTLED: dict[str, Windows] = {"session": SESSION, "cut": CUT, "all time": all_time(), "last n": last_n(2)}


@pytest.mark.parametrize("below", ABOVE)
@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("emission", KINDS)
def test_windows_over_time_and_sliding_windows_stay_flat(above: str, below: str, emission: EmissionKind) -> None:
    flow = summed(counted(ABOVE[above], emission), ABOVE[below], emission)
    log = of_ended_sessions(4)
    few, many = (Engine(flow, log[:batches]) for batches in (4, 12))
    assert few.held == many.held
    assert table(many.emitted) == table(Interpreted(flow, log).emitted)


@pytest.mark.parametrize(("reached_ms", "rows"), [(31, 2), (32, 1), (33, 1)])
def test_a_window_over_results_is_forgotten_when_those_above_are_settled(reached_ms: int, rows: int) -> None:
    """Above size 10, grace 2; so below the end 20 is settled at 32."""
    flow = summed(counted(TUMBLING, "each batch"), tumbling("10 ms", grace="0 ms"), "each batch")
    engine = Engine(flow, [[at(15)], everywhere(reached_ms)])
    assert engine.held[1] == {"records": rows, "results": rows}


@pytest.mark.parametrize("above", NEVER_SETTLED)
def test_windows_over_what_can_be_revised_at_any_time_are_kept(above: str) -> None:
    flow = summed(counted(NEVER_SETTLED[above], "each batch"), TUMBLING, "each batch")
    log = [*of_ended_sessions(2), CLOSING]
    assert Engine(flow, log[:4]).held[1]["records"] < Engine(flow, log[:8]).held[1]["records"]
    assert table(Engine(flow, log).emitted) == table(Interpreted(flow, log).emitted)


def test_a_window_over_a_session_of_long_ago_loses_it_when_it_is_withdrawn() -> None:
    flow = summed(counted(SESSION, "final"), TUMBLING, "final")
    batches = [[at(0)], everywhere(500), everywhere(1_000), a_chain_back(5), everywhere(2_000), everywhere(3_000)]
    engine, interpreted = Engine(flow, batches, restarts=[3]), Interpreted(flow, batches)
    assert table(engine.emitted) == table(interpreted.emitted)
    assert ("a", (0, 10)) in table(engine.emitted[:3]) and ("a", (0, 10)) not in table(engine.emitted)


def test_a_window_over_windows_over_sessions_is_kept_too() -> None:
    flow = summed(summed(counted(SESSION, "each batch"), TUMBLING, "each batch"), TUMBLING, "each batch")
    held = [Engine(flow, of_ended_sessions(2)[:batches]).held[2]["records"] for batches in (4, 8)]
    assert held[0] < held[1]
