"""Windows over time: what leaves when, what is forgotten once every partition has passed it, and what cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.engine.by_hand import EXACT, LATEST, LEFT, assert_law, drawn_by_hand, fed, held, left, rows, run
from tests.unit.engine.random_topology_logs import IDLE_AFTER_MS, Cut, Event
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.engine.topology_runs import engine_rows, revisions_count_up

from recount.declare.aggregates import Aggregate, average, count, total
from recount.declare.flow import RecordStream
from recount.declare.operators.nodes import EmissionKind
from recount.declare.windows import Windows, hopping, session, sliding, tumbling
from recount.engine.state.graph_state import MANY

KINDS: list[EmissionKind] = ["final", "each batch", "each record"]
SESSION = session("5 ms", grace="0 ms", reach="9 ms")
CUT = session("5 ms", grace="0 ms", max_duration="9 ms")
TUMBLING = tumbling("10 ms", grace="2 ms")
SLIDING = sliding("6 ms", grace="4 ms")


def at(timestamp_ms: int, key: str = "a", partition: int = 0) -> Event:
    return left(timestamp_ms, key=key.encode(), partition=partition)


def everywhere(timestamp_ms: int) -> list[Event]:
    """A record of a key of its own in each partition."""
    return [at(timestamp_ms, "clock", partition) for partition in (0, 1)]


def emitting(flow: RecordStream, windows: Windows, emission: EmissionKind, **aggregates: object) -> RecordStream:
    table = flow.windowed_by(windows).aggregate(**aggregates)  # type: ignore[arg-type]
    emit = {"final": table.emit_final, "each batch": table.emit_each_batch, "each record": table.emit_each_record}
    return emit[emission]()


def counted(windows: Windows, emission: EmissionKind = "final") -> RecordStream:
    return emitting(LEFT, windows, emission, n=count())


def summed(results: RecordStream, windows: Windows, emission: EmissionKind) -> RecordStream:
    return emitting(results, windows, emission, n=total("n"))


def after(flow: RecordStream, *batches: Sequence[Event] | Cut) -> TopologyEngine:
    return run(flow, *batches, left=2)


def results(engine: TopologyEngine) -> list[tuple[object, ...]]:
    """Window, records and revision of each result of the key a; no records where it was withdrawn."""
    names = ("__key", "window_start", "window_end", "n", "recount_revision")
    return [((start, end), n, revision) for key, start, end, n, revision in rows(engine, *names) if key == "a"]


def is_interpreter(flow: RecordStream, *batches: Sequence[Event], exact: bool = False) -> bool:
    """Also where the engine restarts before each batch."""
    drawn = drawn_by_hand(flow, EXACT if exact else LATEST, {"left": 2})
    assert_law(drawn, *(Cut(batch, restarts=True) for batch in batches))
    return True


@pytest.mark.parametrize(("reached_ms", "many"), [(29, 1), (30, 0), (31, 0)])
@pytest.mark.parametrize("windows", [SESSION, CUT], ids=["gap", "cut"])
def test_a_session_is_forgotten_when_no_record_can_reach_it(windows: Windows, reached_ms: int, many: int) -> None:
    """Gap 5, no grace, reach 9: at 29 a record at 15 is on time in [15, 24], and it joins 10; at 30 it is late."""
    batches = [[at(10, partition=1), at(24)], everywhere(reached_ms), [at(20), at(15)], everywhere(100)]
    engine = after(counted(windows), *batches[:2])
    kept, clocks = ("records", 2) if windows is CUT else ("windows", 1)
    assert held(engine)[0]["results"] == 2 + many, "24 and the clock stay"
    assert held(engine)[0][kept] == 1 + clocks + many
    assert is_interpreter(counted(windows), *batches)
    assert (((10, 10), None, 1) in results(fed(engine, *batches[2:]))) is bool(many)


def of_ended_sessions(keys: int, batches: int) -> list[Sequence[Event]]:
    """Every batch many keys speak for the only time, three times each, so that their session grows."""
    return [
        [at(100 * batch + later, f"{batch}:{key}", key % 2) for later in (0, 4, 8) for key in range(keys)]
        for batch in range(batches)
    ]


OVER: dict[str, Windows] = {
    "tumbling": TUMBLING,
    "hopping": hopping("10 ms", advance="4 ms", grace="2 ms"),
    "sliding": SLIDING,
    "session": SESSION,
    "cut": CUT,
}
CLOSING = {
    **{f"{name}, {kind}": counted(windows, kind) for name, windows in OVER.items() for kind in KINDS[:2]},
    **{
        f"{below} over {above}": summed(counted(OVER[above], kind), OVER[below], kind)
        for above, below, kind in [
            *(("tumbling", "session", "each batch"), ("session", "tumbling", "final"), ("hopping", "cut", "final")),
            *(("cut", "hopping", "each batch"), ("sliding", "sliding", "final"), ("session", "cut", "each record")),
        ]
    },
    "three, one over the other": summed(
        summed(counted(SESSION, "each batch"), TUMBLING, "each batch"), TUMBLING, "each batch"
    ),
}


@pytest.mark.parametrize("flow", CLOSING.values(), ids=CLOSING)
def test_windows_that_close_stay_flat_over_a_long_log(flow: RecordStream) -> None:
    engine = after(flow, *of_ended_sessions(3, 10)[:4])
    few = held(engine)
    assert held(fed(engine, *of_ended_sessions(3, 10)[4:])) == few
    assert is_interpreter(flow, *of_ended_sessions(3, 4))


@pytest.mark.parametrize(("aggregate", "grows"), [(count(), False), (average("ln"), True)], ids=["count", "average"])
def test_windows_are_remembered_while_an_idle_partition_may_change_them_unless_their_results_say_all(
    aggregate: Aggregate, grows: bool
) -> None:
    later = [Cut([at(time_ms)], later_ms=IDLE_AFTER_MS) for time_ms in (100, 1_000, 10_000)]
    flow, begun = emitting(LEFT, TUMBLING, "final", n=aggregate), [at(1), at(2, partition=1)]
    many = [sum(held(after(flow, begun, *later[:number]))[0].values()) for number in (2, 3)]
    assert (many[1] > many[0]) is grows
    assert is_interpreter(flow, begun, *(cut.events for cut in later), [at(3, partition=1)])


@pytest.mark.parametrize("partitions", [1, 2])
def test_of_a_session_that_is_cut_again_and_again_the_old_records_go(partitions: int) -> None:
    """A record every 4 ms for ever, in partitions by turns: cut every 9 ms at most, in each partition elsewhere."""
    log = [[at(4 * (10 * batch + step), partition=step % partitions) for step in range(10)] for batch in range(12)]
    log[0].insert(0, at(0, "clock", 1))
    if partitions == 1:
        log = [[*batch, at(batch[-1].record.timestamp_ms, "clock", 1)] for batch in log]
    assert held(after(counted(CUT, "each batch"), *log))[0]["records"] < 30
    assert is_interpreter(counted(CUT, "each batch"), *log)


@pytest.mark.parametrize("emission", KINDS)
def test_a_session_that_grows_keeps_no_row_for_each_update_and_a_batch_writes_what_it_changes(
    emission: EmissionKind,
) -> None:
    engine = after(counted(SESSION, emission), *([at(3 * step, partition=step % 2)] for step in range(30)))
    assert held(engine)[0]["results"] <= 4, "the session, and of final results what is held back until it would be due"
    assert revisions_count_up(engine_rows(engine.topology.sinks[0], engine.emitted("out")))
    written = [one.state[MANY].sum() for one in engine.computed]
    assert max(written[10:]) <= max(written[5:10])


@pytest.mark.parametrize(
    ("above", "reached_ms", "many"),
    [(TUMBLING, 31, 2), (TUMBLING, 32, 1), (TUMBLING, 33, 1), (SESSION, 38, 2), (SESSION, 39, 1), (SESSION, 40, 1)],
)
def test_a_window_over_results_is_forgotten_when_those_above_are_settled(
    above: Windows, reached_ms: int, many: int
) -> None:
    """Above size 10, grace 2; so below the end 20 is settled at 32. Or above gap 5, and a gap and reach 9: at 39."""
    flow = summed(counted(above, "each batch"), tumbling("10 ms", grace="0 ms"), "each batch")
    assert held(after(flow, [at(15)], everywhere(reached_ms)))[1] == {"records": many, "results": many}
