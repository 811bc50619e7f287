"""Rules of docs/semantics.md that its examples do not show, each by a few records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from recount.declare.aggregates import count, total
from recount.declare.expressions import coalesce, col
from recount.declare.flow import RecordStream, Table
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState, Row
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import Windows, session, sliding, tumbling
from recount.reference.record_clock import Above, Clock, Output
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.errors import InvalidDeclaration

LEFT = Topic(name="left", key="id", value=RecordSchema.of(l=STRING, n=LONG))
RIGHT = Topic(name="right", key="id", value=RecordSchema.of(r=STRING))
OUT = Topic(name="out", key="id")
left, right, rows = stream(LEFT), stream(RIGHT), table(RIGHT)
texts, versions = left.select("l"), table(RIGHT, versioned=True)


@dataclass(frozen=True)
class Case:
    """A flow, the records that come, and what is written, each result as ``shown``; fates and late records, if said.

    ``steps``: topic, value (``-`` is null, a number is the field n, ``.`` no field at all), time, then a key (k where
    none is, ``none`` for a null one) and a partition; or ``until`` a time, ``idle`` a topic and a partition, or ``|``,
    which is a mark in what is written.
    """

    flow: RecordStream | Table
    steps: str
    written: Sequence[str] | None
    fates: str = ""
    late: Sequence[tuple[int, int, int]] | None = None
    """Offset, stream time and margin of each."""


def shown(out: Output) -> str:
    """Key, window and the other fields, or that it is deleted."""
    value = {"deleted": True} if out.value is None else out.value
    cells = [f"{name}={value[name]}" for name in sorted(value) if not name.startswith("window_")]
    return " ".join([str(out.key), *([f"[{out.window[0]}, {out.window[1]}]"] if out.window else []), *cells])


def played(case: Case) -> tuple[TopologyDriver, list[str], list[str]]:
    """The driver after all steps, what it wrote, and the fate of each record as it came."""
    driver = TopologyDriver(Topology(name="by-hand", sinks=[case.flow.to(OUT)]))
    written, fates = [], []
    for step in case.steps.split("; "):
        match step.split():
            case ["|"]:
                written += [*map(shown, driver.read("out")), "|"]
            case ["until", at]:
                driver.advance_to(int(at))
            case ["idle", topic, partition]:
                driver.idle(topic, int(partition))
            case [topic, value, at, *more]:
                key, partition = [*more, "k", "0"][:1] + [*more[1:], "0"][:1]
                fields = {} if value == "." else {"n": int(value)} if value.isdigit() else {topic[0]: value}
                sent = None if value == "-" else fields
                name = None if key == "none" else key
                fates.append(driver.pipe(topic, key=name, value=sent, timestamp_ms=int(at), partition=int(partition)))
    return driver, [*written, *map(shown, driver.read("out"))], fates


def counted(windows: Windows, flow: RecordStream = left) -> RecordStream:
    return flow.windowed_by(windows).aggregate(n=count()).emit_final()


def slid(*times_ms: int) -> str:
    """Records at these times; a mark stands before the last one."""
    return "; ".join([*(f"left . {at}" for at in times_ms[:-1]), "|", f"left . {times_ms[-1]}"])


def remind(_: Row, state: KeyState) -> Iterable[Row]:
    """Asks for a timer 10 ms after the first record of a key."""
    if not state.remembered:
        state.schedule(state.timestamp_ms + 10)
    state.remembered["n"] = state.remembered.get("n", 0) + 1
    return ()


REMINDED = left.process(remind, on_timer=lambda _, state: [{"n": state.remembered.pop("n")}], n=LONG)
SESSION = session("5 s", grace="0 s")
SLIDING = left.windowed_by(sliding("10 ms", grace="1 s")).aggregate(n=count()).emit_each_record()
PER_SECOND = counted(tumbling("1 s", grace="0 s"))
GROUPS = rows.group_by(tier=col("r")).aggregate(customers=count())

WINDOWS: Mapping[str, Case] = {
    "only records of its own partition keep a session open for a late one": Case(
        counted(SESSION),
        "left . 30000 k 1; left . 10000; left . 8000 k 1; left . 8000",
        None,
        "counted counted late counted",
    ),
    "results that are due together leave by window end, then key": Case(
        counted(tumbling("10 s", grace="0 s")),
        "left . 12000 zoe 1; left . 1000 zoe 1; left . 1000 ann; left . 60000 ann; left . 60000 zoe 1",
        ["ann [0, 10000] n=1", "zoe [10000, 20000] n=1"],
    ),
    "updates of two groups by one change of a table are two records": Case(
        GROUPS.to_stream()
        .select("customers")
        .windowed_by(tumbling("100 ms", grace="0 ms"))
        .aggregate(updates=count())
        .emit_each_record(),
        "right gold 1 a; right gold 2 b; right silver 3 c; |; right gold 4 c",
        [
            *(f"gold [0, 100] tier=gold updates={n}" for n in (1, 2)),
            "silver [0, 100] tier=silver updates=1",
            "|",
            "silver [0, 100] tier=silver updates=2",
            "gold [0, 100] tier=gold updates=3",
        ],
    ),
    "a revised result stands in place of the one before": Case(
        PER_SECOND.aggregate(seconds=count(), n=total("n")),
        "left . 100 k 1; left . 5000 other; idle left 1; |; left . 200 k 1; until 5000",
        ["k n=1 seconds=1", "|", "k deleted=True", "k n=2 seconds=1"],
    ),
    "what leaves at the end of a batch reaches the windows below at once": Case(
        PER_SECOND.windowed_by(tumbling("1 min", grace="0 s")).aggregate(n=total("n")).emit_each_batch(),
        "left . 100; until 1000",
        ["k [0, 60000] n=1"],
    ),
}
ORDER_OF_SLIDING: Mapping[str, tuple[Sequence[int], Sequence[int]]] = {
    "of new windows the one after the record before, then the one that ends with the record": ((15, 22), (16, 12)),
    "those that were there before new ones, the latest of them first": ((15, 22, 18), (16, 12, 8, 19)),
    "the one that ends with the record last of those that were there": ((15, 26, 26), (16,)),
    "also of three": ((15, 20, 25, 25), (21, 16, 15)),
    "before the first difference the shared window last": ((3, 6), (4, 0)),
    "also of two that were there": ((3, 6, 5), (4, 6, 0)),
}
JOINS: Mapping[str, Case] = {
    "as of arrival a table answers with what was read last": Case(
        texts.join_table(rows, as_of="arrival"), "right new 50; right old 10; left L 60", ["k l=L r=old"]
    ),
    "of two versions of one time the later read counts": Case(
        texts.join_table(versions), "right a 10; right b 10; left L 10", ["k l=L r=b"]
    ),
    "a filtered table does not answer with rows that do not pass": Case(
        texts.left_join_table(rows.filter(col("r") != "hidden")),
        "right R 1; left L 2; right hidden 3; left L 4",
        ["k l=L r=R", "k l=L r=None"],
    ),
    "a versioned side of joined tables ignores an older update": Case(
        table(LEFT, versioned=True).select("l").join(rows), "right a 1; left new 10; left old 5", ["k l=new r=a"]
    ),
    # coalesce would let what is left of a deleted row pass the filter
    "a deleted result has no field but its key": Case(
        table(LEFT).select("l").join(rows).to_stream().filter(coalesce(col("l"), "none") == "A"),
        "left A 1; right a 2; right - 3",
        ["k l=A r=a"],
    ),
}
OTHERS: Mapping[str, Case] = {
    "a merge has null for the fields of the other stream": Case(
        texts.merge(right), "left L 1; right R 2", ["k l=L r=None", "k l=None r=R"]
    ),
    "a row that changes leaves its group before it joins the new one": Case(
        GROUPS,
        "right gold 1; right basic 2; right - 3",
        [
            *("gold customers=1 tier=gold", "gold customers=0 tier=gold"),
            *(f"basic customers={n} tier=basic" for n in (1, 0)),
        ],
    ),
    "a row that no longer passes leaves without its fields": Case(
        table(LEFT).filter(col("n") > 5).to_stream().filter(col("n").is_null()),
        "left 9 1; left 1 2",
        ["k deleted=True"],
    ),
    "a record behind the horizon of a deduplication is late": Case(
        left.deduplicate(KEY, horizon="10 ms").select("l"),
        "left L 100 a; left L 90 b; left L 89 c",
        ["a l=L", "b l=L"],
        "counted counted late",
        [(2, 100, 0)],
    ),
    # partition 0    0: set for 10 ── 12 (of another key) ── 13        partition 1 is at 0, and so is the frontier
    "a timer goes off before its key's next record where its own partition had reached it": Case(
        REMINDED, "left . 0 far 1; left . 0; left . 12 other; |; left . 13", ["|", "k n=1"]
    ),
    "a record does not reach a timer before itself": Case(
        REMINDED, "left . 0 far 1; left . 0; left . 13; |; until 13", ["|", "far n=1", "k n=2"]
    ),
}


@pytest.mark.parametrize(
    "case", [*WINDOWS.values(), *JOINS.values(), *OTHERS.values()], ids=[*WINDOWS, *JOINS, *OTHERS]
)
def test_the_interpreter_goes_by_this_rule(case: Case) -> None:
    driver, written, fates = played(case)
    assert case.written is None or written == case.written
    assert not case.fates or " ".join(fates) == case.fates
    if case.late is not None:
        assert [(one.offset, one.stream_time_ms, one.margin_ms) for one in driver.late] == case.late


@pytest.mark.parametrize(("times_ms", "starts"), ORDER_OF_SLIDING.values(), ids=ORDER_OF_SLIDING)
def test_updates_of_sliding_windows_leave_in_the_order_of_kafka_streams(
    times_ms: Sequence[int], starts: Sequence[int]
) -> None:
    _, written, _ = played(Case(SLIDING, slid(*times_ms), []))
    updates = written[written.index("|") + 1 :]
    assert [int(one.split("[")[1].split(",")[0]) for one in updates] == list(starts)


def test_the_frontier_waits_for_those_of_the_operators_above_unless_all_of_theirs_are_idle() -> None:
    above = Clock({"t"})
    below = Clock({"t", "other"}, delay_ms=3, above=[Above(above, 3)])
    below.advance(("other", 0), 80)
    below.advance(("t", 0), 90)
    assert below.frontier_ms is None
    above.advance(("t", 0), 50)
    assert below.frontier_ms == 47
    above.declare_idle("t", None)
    assert below.frontier_ms == 77


@pytest.mark.parametrize(
    ("declare", "field"),
    [
        (lambda: left.join(left, before="1 ms", after="1 ms", grace="0 ms"), "join"),
        (lambda: left.join_table(rows.left_join(table(LEFT)), grace="5 ms"), "join grace"),
        (lambda: left.join_table(rows, grace="5 ms", as_of="arrival"), "join grace"),
        (lambda: left.join_table(versions, as_of="arrival"), "as_of of a lookup"),
        (lambda: left.join_table(rows, as_of="now"), "as_of of a lookup"),
    ],
    ids=["fields of one name", "a grace for no table of records", "a grace as of arrival", "versions", "as of now"],
)
def test_a_join_that_can_not_be_is_refused(declare: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        declare()
    assert refused.value.field == field
