"""How far back lookups look: by default, as declared, and where that cannot be."""

from __future__ import annotations

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.fingerprint import Declared
from recount.declare.flow import RecordStream, stream, table
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import InOrder
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.errors import InvalidDeclaration

LEFT = Topic(name="left", key="id", value=RecordSchema.of(l=STRING, n=LONG))
OTHER = Topic(name="other", key="id", value=RecordSchema.of(o=STRING))
RIGHT = Topic(name="right", key="id", value=RecordSchema.of(r=STRING))
DAY_MS = 86_400_000
left = stream(LEFT)
windows = left.windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
near = {"before": "1 s", "after": "1 s", "grace": "0 s"}
BOUNDED: dict[str, RecordStream] = {
    "records": left.filter(col("n") > 0),
    "records of two topics": left.select("l").merge(stream(OTHER).select(l=col("o"))),
    "first ones by offset": left.deduplicate(KEY, horizon="1 s"),
    "first ones by event time": left.deduplicate("l", horizon="1 s").select("n"),
    "records in order": left.in_order(grace="1 s").select_key(l=col("l")),
    "pairs": left.join(stream(OTHER), **near).filter(col("n") > 0),
    "looked up": left.left_join_table(table(OTHER)),
    "processed": left.process(lambda row, _: [{"seen": row["n"]}], seen=LONG),
}
UNBOUNDED: dict[str, RecordStream] = {
    "results of windows": windows,
    "totals": left.aggregate(n=count()).to_stream(),
    "pairs of a left join": left.left_join(stream(OTHER), **near),
    "records that wait for a table": left.left_join_table(table(OTHER), grace="1 s"),
    "records held back, and all": left.in_order(grace="1 s").select("n").merge(left.select("n")),
    "first ones of pairs": left.join(stream(OTHER), **near).deduplicate("l", horizon="1 s"),
    "timers": left.process(lambda *_: [], on_timer=lambda *_: [], seen=LONG),
}


def topology_of(flow: RecordStream) -> Topology:
    return Topology(name="looked-up", sinks=[flow.to(Topic(name="out", key="k"))])


def looked_up(rows: RecordStream, **options: str | None) -> RecordStream:
    return rows.select_key(k="a").left_join_table(table(RIGHT), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", BOUNDED)
def test_a_history_is_400_days_unless_it_is_declared(rows: str) -> None:
    def history(**options: str | None) -> int | None:
        node = looked_up(BOUNDED[rows], **options).node
        assert isinstance(node, StreamTableJoin)
        return node.history_ms

    assert history() == 400 * DAY_MS
    assert history(history="9 ms") == 9
    assert history(history=None) is None
    topology_of(looked_up(BOUNDED[rows], history="9 ms"))


@pytest.mark.parametrize("rows", UNBOUNDED)
def test_where_nobody_knows_when_a_row_comes_it_is_unlimited_and_another_is_refused(rows: str) -> None:
    node = looked_up(UNBOUNDED[rows]).node
    assert isinstance(node, StreamTableJoin) and node.history_ms is None
    with pytest.raises(InvalidDeclaration) as refused:
        topology_of(looked_up(UNBOUNDED[rows], history="9 ms"))
    assert refused.value.field.startswith("history of")


def test_as_of_arrival_needs_no_history() -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        left.join_table(table(RIGHT), as_of="arrival", history="1 s")
    assert refused.value.field == "history of a lookup"
    node = left.join_table(table(RIGHT), as_of="arrival").node
    assert isinstance(node, StreamTableJoin) and node.history_ms is None


def test_an_unlimited_history_is_not_in_the_fingerprint_as_it_was_before_there_were_any() -> None:
    by_default, unlimited, declared = (
        Declared.of(topology_of(left.left_join_table(table(RIGHT), **options)))  # type: ignore[arg-type]
        for options in ({}, {"history": None}, {"history": "400 d"})
    )
    assert "history" not in str(unlimited.document)
    assert by_default.fingerprint == declared.fingerprint != unlimited.fingerprint


def driver_of(flow: RecordStream, **partitions: int) -> TopologyDriver:
    driver = TopologyDriver(topology_of(flow), partitions=partitions)
    for at_ms in (10, 20, 30):
        driver.pipe("right", key="a", value={"r": str(at_ms)}, timestamp_ms=at_ms)
    return driver


def pipe(driver: TopologyDriver, at_ms: int, partition: int = 0) -> str:
    return driver.pipe("left", key="a", value={"l": "a", "n": 1}, timestamp_ms=at_ms, partition=partition)


def found(driver: TopologyDriver) -> list[tuple[int, str | None]]:
    return [(out.timestamp_ms, out.value and out.value["r"]) for out in driver.read("out")]


#  right  10 ── 20 ── 30            left  30: with 9 ms nothing before 21 is asked for, with 10 ms nothing before 20
@pytest.mark.parametrize(("history", "row"), [("9 ms", "20"), ("10 ms", "20"), ("11 ms", "10"), ("0 ms", "30")])
def test_a_record_behind_the_history_sees_the_row_at_its_end(history: str, row: str) -> None:
    driver = driver_of(left.left_join_table(table(RIGHT), history=history))
    assert (pipe(driver, 30), pipe(driver, 1)) == ("counted", "counted")
    assert found(driver) == [(30, "30"), (1, row)]
    [late] = driver.late
    assert (late.offset, late.stream_time_ms, late.margin_ms) == (1, 30, 28 - int(history.split()[0]))


def test_a_partition_that_is_behind_the_others_looks_back_from_where_it_is_itself() -> None:
    driver = driver_of(left.left_join_table(table(RIGHT), history="5 ms"), left=2)
    assert (pipe(driver, 1, partition=1), pipe(driver, 100), pipe(driver, 15, partition=1)) == ("counted",) * 3
    assert found(driver) == [(1, None), (100, "30"), (15, "10")] and not driver.late


@pytest.mark.parametrize(
    "rows",
    [left, left.in_order(grace="100 ms"), left.deduplicate("l", horizon="0 ms")],
    ids=["now", "in order", "first"],
)
def test_a_partition_that_was_idle_looks_back_from_where_the_others_are(rows: RecordStream) -> None:
    driver = driver_of(rows.left_join_table(table(RIGHT), history="5 ms"))
    pipe(driver, 1, partition=1)
    driver.idle("left", 1)
    pipe(driver, 35)
    pipe(driver, 12, partition=1)
    pipe(driver, 1_000)
    pipe(driver, 1_000, partition=1)
    in_order = isinstance(rows.node, InOrder)  # it lags by its grace, so that the record is on time
    assert dict(found(driver))[12] == ("10" if in_order else "30")


def test_with_a_grace_a_record_asks_as_of_the_time_at_which_it_came() -> None:
    driver = driver_of(left.left_join_table(table(RIGHT), grace="50 ms", history="5 ms"))
    assert pipe(driver, 25) == "waiting"
    pipe(driver, 500)
    driver.pipe("right", key="b", value={"r": ""}, timestamp_ms=80)
    assert found(driver) == [(25, "20")] and not driver.late
