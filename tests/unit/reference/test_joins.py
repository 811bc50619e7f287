"""Joins: which records meet, when a record leaves alone, what a table lookup sees."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import coalesce, col
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import tumbling
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.errors import InvalidDeclaration

LEFT = Topic(name="left", key="id", value=RecordSchema.of(l=STRING))
RIGHT = Topic(name="right", key="id", value=RecordSchema.of(r=STRING))
OUT = Topic(name="out", key="id")
L, VERSIONED = table(LEFT), table(RIGHT, versioned=True)
Row = tuple[str | None, str | None, int]


def driver_of(flow: RecordStream | Table) -> TopologyDriver:
    return TopologyDriver(Topology(name="joining", sinks=[flow.to(OUT)]))


def send(driver: TopologyDriver, *steps: str) -> list[str]:
    """Pipe ``steps``, like ``left L 100``: topic, value (``-`` is null), time and the key, which is k where none is."""
    fates = []
    for step in steps:
        topic, value, at, *key = step.split()
        document = None if value == "-" else {topic[0]: value}
        fates.append(driver.pipe(topic, key=key[0] if key else "k", value=document, timestamp_ms=int(at)))
    return fates


def rows(driver: TopologyDriver) -> list[Row]:
    return [(out.value["l"], out.value["r"], out.timestamp_ms) for out in driver.read("out") if out.value is not None]


def within(kind: str, before: str, after: str, grace: str) -> RecordStream:
    joined: RecordStream = getattr(stream(LEFT), kind)(stream(RIGHT), before=before, after=after, grace=grace)
    return joined


LOOKED_UP = stream(LEFT).left_join_table(table(RIGHT))
WIDE = ("10 ms", "20 ms")
CASES: dict[str, tuple[RecordStream | Table, list[str], list[Row]]] = {
    "the other side's clock makes nobody late": (
        within("join", *WIDE, "0 ms"),
        ["right R 100", "right x 90000", "left L 100"],
        [("L", "R", 100)],
    ),
    "as of arrival a table answers with what was read last": (
        stream(LEFT).join_table(table(RIGHT), as_of="arrival"),
        ["right new 50", "right old 10", "left L 60"],
        [("L", "old", 60)],
    ),
    "of two versions of one time the later read counts": (
        stream(LEFT).join_table(VERSIONED),
        ["right a 10", "right b 10", "left L 10"],
        [("L", "b", 10)],
    ),
    "only stream records make results": (stream(LEFT).join_table(table(RIGHT)), ["left L 1", "right R 2"], []),
    "a left join keeps a record whose row was deleted": (
        LOOKED_UP,
        ["right R 1", "right - 2", "left L 3"],
        [("L", None, 3)],
    ),
    "a global table is found by any expression": (
        stream(LEFT).join_table(table(RIGHT), by=col("l")),
        ["right R 1 a", "left a 2 whatever"],
        [("a", "R", 2)],
    ),
    "a filtered table does not answer with rows that do not pass": (
        stream(LEFT).left_join_table(table(RIGHT).filter(col("r") != "hidden")),
        ["right R 1", "left L 2", "right hidden 3", "left L 4"],
        [("L", "R", 2), ("L", None, 4)],
    ),
    "a versioned side ignores an older update": (
        table(LEFT, versioned=True).join(table(RIGHT)),
        ["right a 1", "left new 10", "left old 5"],
        [("new", "a", 10)],
    ),
    "the time of a result is the later of both": (L.join(table(RIGHT)), ["left A 10", "right a 3"], [("A", "a", 10)]),
}


@pytest.mark.parametrize("name", CASES)
def test_records_and_rows_meet_by_these_rules(name: str) -> None:
    flow, steps, expected = CASES[name]
    driver = driver_of(flow)
    send(driver, *steps)
    assert rows(driver) == expected


class TestStreamStream:
    #  l at 100, 10 before, 20 after:      90 ═══ 100 ═════ 120

    @pytest.mark.parametrize(("at", "meets"), [(89, False), (90, True), (120, True), (121, False)])
    def test_both_ends_of_the_join_window_are_inclusive(self, at: int, meets: bool) -> None:
        driver = driver_of(within("join", *WIDE, "1 s"))
        send(driver, "left L 100", f"right R {at}")
        assert rows(driver) == ([("L", "R", max(100, at))] if meets else [])

    @pytest.mark.parametrize(("st_left", "fate"), [(125, "counted"), (126, "late")])
    def test_a_left_record_is_late_by_its_own_partition_after_its_window_and_grace(
        self, st_left: int, fate: str
    ) -> None:
        driver = driver_of(within("join", *WIDE, "5 ms"))
        assert send(driver, "right R 9000", f"left x {st_left}", "left L 100")[-1] == fate

    def test_an_unmatched_left_record_leaves_alone_only_when_no_partner_can_come_on_time(self) -> None:
        for partner, expected in (("right y 136 other", [("L", None, 100)]), ("right R 120", [("L", "R", 120)])):
            driver = driver_of(within("left_join", *WIDE, "5 ms"))
            send(driver, "left L 100", "left x 900 other", "right y 135 other")
            assert rows(driver) == []
            assert send(driver, partner) == ["counted"]
            assert rows(driver) == expected

    def test_an_outer_join_lets_both_sides_leave_alone(self) -> None:
        driver = driver_of(within("outer_join", "1 ms", "1 ms", "0 ms"))
        send(driver, "left L 100", "right R 200")
        driver.advance_to(9_000)
        assert rows(driver) == [("L", None, 100), (None, "R", 200)]

    def test_a_null_key_leaves_alone_at_once_on_an_outer_side_and_is_refused_elsewhere(self) -> None:
        driver = driver_of(within("left_join", "1 ms", "1 ms", "0 ms"))
        assert driver.pipe("left", key=None, value={"l": "L"}, timestamp_ms=100) == "counted"
        assert driver.pipe("right", key=None, value={"r": "R"}, timestamp_ms=100) == "dead-lettered"
        assert rows(driver) == [("L", None, 100)]

    def test_a_null_value_is_dropped(self) -> None:
        assert send(driver_of(within("join", "1 ms", "1 ms", "0 ms")), "left - 100") == ["null value"]

    def test_a_window_behind_a_join_waits_for_the_join_too(self) -> None:
        windows = within("left_join", *WIDE, "5 ms").windowed_by(tumbling("100 ms", grace="0 ms"))
        driver = driver_of(windows.aggregate(n=count()).emit_final())
        send(driver, "left L 99")
        driver.advance_to(134)
        assert driver.read("out") == []
        driver.advance_to(135)
        assert [(out.window, out.value and out.value["n"]) for out in driver.read("out")] == [((0, 100), 1)]


@pytest.mark.parametrize(
    ("declare", "field"),
    [
        (lambda: stream(LEFT).join(stream(LEFT), before="1 ms", after="1 ms", grace="0 ms"), "join"),
        (lambda: stream(LEFT).join_table(table(RIGHT).left_join(L), grace="5 ms"), "join grace"),
        (lambda: stream(LEFT).join_table(table(RIGHT), grace="5 ms", as_of="arrival"), "join grace"),
        (lambda: stream(LEFT).join_table(VERSIONED, as_of="arrival"), "as_of of a lookup"),
        (lambda: stream(LEFT).join_table(table(RIGHT), as_of="now"), "as_of of a lookup"),
    ],
    ids=["fields of one name", "a grace for no table of records", "a grace as of arrival", "versions", "as of now"],
)
def test_a_join_that_can_not_be_is_refused(declare: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        declare()
    assert refused.value.field == field


class TestStreamTable:
    @pytest.mark.parametrize("versioned", [False, True])
    @pytest.mark.parametrize(("at", "found"), [(9, None), (10, "a"), (19, "a"), (20, "b")])
    def test_a_table_answers_as_of_the_event(self, at: int, found: str | None, versioned: bool) -> None:
        driver = driver_of(stream(LEFT).left_join_table(table(RIGHT, versioned=versioned)))
        send(driver, "right b 20", "right a 10", f"left L {at}")
        assert rows(driver) == [("L", found, at)]

    def test_with_a_grace_the_record_waits_for_the_tables_time(self) -> None:
        driver = driver_of(stream(LEFT).left_join_table(VERSIONED, grace="5 ms"))
        send(driver, "right a 10", "left L 20", "right b 24")
        assert rows(driver) == []
        send(driver, "right c 18", "right d 25")
        assert rows(driver) == [("L", "c", 20)]


class TestTableTable:
    @pytest.mark.parametrize(
        ("join", "expected"),
        [
            (Table.join, [("A", "a"), None]),
            (Table.left_join, [("A", None), ("A", "a"), None]),
            (Table.outer_join, [("A", None), ("A", "a"), (None, "a"), None]),
        ],
        ids=["the keys of both", "the keys of the left", "the keys of either"],
    )
    def test_a_join_of_tables_has(self, join: Callable[[Table, Table], Table], expected: list[object]) -> None:
        driver = driver_of(join(L, table(RIGHT)))
        send(driver, "left A 1", "right a 2", "left - 3", "right - 4")
        assert [out.value and (out.value["l"], out.value["r"]) for out in driver.read("out")] == expected

    def test_a_tombstone_without_a_result_says_nothing(self) -> None:
        driver = driver_of(L.join(table(RIGHT)))
        send(driver, "right a 1", "left - 2")
        assert driver.read("out") == []

    def test_a_deleted_result_has_no_field_but_its_key(self) -> None:
        #  coalesce would let what is left of a deleted row pass the filter
        driver = driver_of(L.join(table(RIGHT)).to_stream().filter(coalesce(col("l"), "none") == "A"))
        send(driver, "left A 1", "right a 2", "right - 3")
        assert rows(driver) == [("A", "a", 2)]
        assert len(driver.outputs("out")) == 1
