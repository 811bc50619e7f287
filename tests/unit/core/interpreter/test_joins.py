"""Joins: which records meet, when a record leaves alone, what a table lookup sees."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recount.core.aggregates import count
from recount.core.errors import InvalidDeclaration
from recount.core.expressions import coalesce, col
from recount.core.flow import RecordStream, Table
from recount.core.interpreter.driver import TopologyDriver
from recount.core.schema import STRING, RecordSchema
from recount.core.topics import Topic
from recount.core.topology import Topology, stream, table
from recount.core.windows import tumbling

LEFT = Topic(name="left", key="id", value=RecordSchema.of(l=STRING))
RIGHT = Topic(name="right", key="id", value=RecordSchema.of(r=STRING))
OUT = Topic(name="out", key="id")


def driver_of(flow: RecordStream | Table) -> TopologyDriver:
    return TopologyDriver(Topology(name="joining", sinks=[flow.to(OUT)]))


def left(driver: TopologyDriver, value: str | None, at: int, key: str | None = "k", partition: int = 0) -> str:
    document = None if value is None else {"l": value}
    return driver.pipe("left", key=key, value=document, timestamp_ms=at, partition=partition)


def right(driver: TopologyDriver, value: str | None, at: int, key: str | None = "k", partition: int = 0) -> str:
    document = None if value is None else {"r": value}
    return driver.pipe("right", key=key, value=document, timestamp_ms=at, partition=partition)


def rows(driver: TopologyDriver) -> list[tuple[str | None, str | None, int]]:
    return [(out.value["l"], out.value["r"], out.timestamp_ms) for out in driver.read("out") if out.value is not None]


class TestStreamStream:
    #  l at 100, 10 before, 20 after:      90 ═══ 100 ═════ 120

    @pytest.mark.parametrize(("at", "meets"), [(89, False), (90, True), (120, True), (121, False)])
    def test_both_ends_of_the_join_window_are_inclusive(self, at: int, meets: bool) -> None:
        driver = driver_of(stream(LEFT).join(stream(RIGHT), before="10 ms", after="20 ms", grace="1 s"))
        left(driver, "L", 100)
        right(driver, "R", at)
        assert rows(driver) == ([("L", "R", max(100, at))] if meets else [])

    @pytest.mark.parametrize(("st_left", "fate"), [(125, "counted"), (126, "late")])
    def test_a_left_record_is_late_by_its_own_partition_after_its_window_and_grace(
        self, st_left: int, fate: str
    ) -> None:
        driver = driver_of(stream(LEFT).join(stream(RIGHT), before="10 ms", after="20 ms", grace="5 ms"))
        right(driver, "R", 9_000)
        left(driver, "x", st_left)
        assert left(driver, "L", 100) == fate

    def test_the_other_sides_clock_makes_nobody_late(self) -> None:
        driver = driver_of(stream(LEFT).join(stream(RIGHT), before="10 ms", after="20 ms", grace="0 ms"))
        right(driver, "R", 100)
        right(driver, "x", 90_000)
        left(driver, "L", 100)
        assert rows(driver) == [("L", "R", 100)]

    def test_an_unmatched_left_record_leaves_alone_only_when_no_partner_can_come_on_time(self) -> None:
        driver = driver_of(stream(LEFT).left_join(stream(RIGHT), before="10 ms", after="20 ms", grace="5 ms"))
        left(driver, "L", 100)
        left(driver, "x", 900, key="other")
        right(driver, "y", 135, key="other")
        assert rows(driver) == []
        right(driver, "y", 136, key="other")
        assert rows(driver) == [("L", None, 100)]

    def test_the_last_partner_on_time_is_never_too_late_for_the_unmatched(self) -> None:
        driver = driver_of(stream(LEFT).left_join(stream(RIGHT), before="10 ms", after="20 ms", grace="5 ms"))
        left(driver, "L", 100)
        left(driver, "x", 900, key="other")
        right(driver, "y", 135, key="other")
        assert right(driver, "R", 120) == "counted"
        assert rows(driver) == [("L", "R", 120)]

    def test_an_outer_join_lets_both_sides_leave_alone(self) -> None:
        driver = driver_of(stream(LEFT).outer_join(stream(RIGHT), before="1 ms", after="1 ms", grace="0 ms"))
        left(driver, "L", 100)
        right(driver, "R", 200)
        driver.advance_to(9_000)
        assert rows(driver) == [("L", None, 100), (None, "R", 200)]

    def test_a_null_key_leaves_alone_at_once_on_an_outer_side_and_is_refused_elsewhere(self) -> None:
        driver = driver_of(stream(LEFT).left_join(stream(RIGHT), before="1 ms", after="1 ms", grace="0 ms"))
        assert left(driver, "L", 100, key=None) == "counted"
        assert right(driver, "R", 100, key=None) == "dead-lettered"
        assert rows(driver) == [("L", None, 100)]

    def test_a_null_value_is_dropped(self) -> None:
        driver = driver_of(stream(LEFT).join(stream(RIGHT), before="1 ms", after="1 ms", grace="0 ms"))
        assert left(driver, None, 100) == "null value"

    def test_fields_of_one_name_on_both_sides_are_refused(self) -> None:
        with pytest.raises(InvalidDeclaration) as refused:
            stream(LEFT).join(stream(LEFT), before="1 ms", after="1 ms", grace="0 ms")
        assert refused.value.field == "join"

    def test_a_window_behind_a_join_waits_for_the_join_too(self) -> None:
        joined = stream(LEFT).left_join(stream(RIGHT), before="10 ms", after="20 ms", grace="5 ms")
        counted = joined.windowed_by(tumbling("100 ms", grace="0 ms")).aggregate(n=count()).emit_final()
        driver = driver_of(counted)
        left(driver, "L", 99)
        driver.advance_to(134)
        assert driver.read("out") == []
        driver.advance_to(135)
        assert [(out.window, out.value and out.value["n"]) for out in driver.read("out")] == [((0, 100), 1)]


class TestStreamTable:
    def test_as_of_arrival_a_table_answers_with_what_was_read_last(self) -> None:
        driver = driver_of(stream(LEFT).join_table(table(RIGHT), as_of="arrival"))
        right(driver, "new", 50)
        right(driver, "old", 10)
        left(driver, "L", 60)
        assert rows(driver) == [("L", "old", 60)]

    @pytest.mark.parametrize("versioned", [False, True])
    @pytest.mark.parametrize(("at", "found"), [(9, None), (10, "a"), (19, "a"), (20, "b")])
    def test_a_table_answers_as_of_the_event(self, at: int, found: str | None, versioned: bool) -> None:
        driver = driver_of(stream(LEFT).left_join_table(table(RIGHT, versioned=versioned)))
        right(driver, "b", 20)
        right(driver, "a", 10)
        left(driver, "L", at)
        assert rows(driver) == [("L", found, at)]

    def test_of_two_versions_of_one_time_the_later_read_counts(self) -> None:
        driver = driver_of(stream(LEFT).join_table(table(RIGHT, versioned=True)))
        right(driver, "a", 10)
        right(driver, "b", 10)
        left(driver, "L", 10)
        assert rows(driver) == [("L", "b", 10)]

    def test_only_stream_records_make_results(self) -> None:
        driver = driver_of(stream(LEFT).join_table(table(RIGHT)))
        left(driver, "L", 1)
        right(driver, "R", 2)
        assert rows(driver) == []

    def test_a_left_join_keeps_a_record_whose_row_was_deleted(self) -> None:
        driver = driver_of(stream(LEFT).left_join_table(table(RIGHT)))
        right(driver, "R", 1)
        right(driver, None, 2)
        left(driver, "L", 3)
        assert rows(driver) == [("L", None, 3)]

    def test_with_a_grace_the_record_waits_for_the_tables_time(self) -> None:
        driver = driver_of(stream(LEFT).left_join_table(table(RIGHT, versioned=True), grace="5 ms"))
        right(driver, "a", 10)
        left(driver, "L", 20)
        right(driver, "b", 24)
        assert rows(driver) == []
        right(driver, "c", 18)
        right(driver, "d", 25)
        assert rows(driver) == [("L", "c", 20)]

    def test_a_grace_for_what_is_no_table_of_records_is_refused(self) -> None:
        with pytest.raises(InvalidDeclaration) as refused:
            stream(LEFT).join_table(table(RIGHT).left_join(table(LEFT)), grace="5 ms")
        assert refused.value.field == "join grace"

    @pytest.mark.parametrize(
        ("lookup", "field"),
        [
            (lambda: stream(LEFT).join_table(table(RIGHT), grace="5 ms", as_of="arrival"), "join grace"),
            (lambda: stream(LEFT).join_table(table(RIGHT, versioned=True), as_of="arrival"), "as_of of a lookup"),
            (lambda: stream(LEFT).join_table(table(RIGHT), as_of="now"), "as_of of a lookup"),
        ],
    )
    def test_arrival_is_for_the_row_that_was_read_last_only(self, lookup: Callable[[], object], field: str) -> None:
        with pytest.raises(InvalidDeclaration) as refused:
            lookup()
        assert refused.value.field == field

    def test_a_global_table_is_found_by_any_expression(self) -> None:
        driver = driver_of(stream(LEFT).join_table(table(RIGHT), by=col("l")))
        right(driver, "R", 1, key="a")
        left(driver, "a", 2, key="whatever")
        assert rows(driver) == [("a", "R", 2)]

    def test_a_filtered_table_does_not_answer_with_rows_that_do_not_pass(self) -> None:
        driver = driver_of(stream(LEFT).left_join_table(table(RIGHT).filter(col("r") != "hidden")))
        right(driver, "R", 1)
        left(driver, "L", 2)
        right(driver, "hidden", 3)
        left(driver, "L", 4)
        assert rows(driver) == [("L", "R", 2), ("L", None, 4)]


class TestTableTable:
    Outputs = list[tuple[str | None, str | None] | None]

    def played(self, join: Callable[[Table, Table], Table]) -> Outputs:
        driver = driver_of(join(table(LEFT), table(RIGHT)))
        left(driver, "A", 1)
        right(driver, "a", 2)
        left(driver, None, 3)
        right(driver, None, 4)
        return [out.value and (out.value["l"], out.value["r"]) for out in driver.read("out")]

    def test_an_inner_join_has_the_keys_of_both(self) -> None:
        assert self.played(Table.join) == [("A", "a"), None]

    def test_a_left_join_has_the_keys_of_the_left(self) -> None:
        assert self.played(Table.left_join) == [("A", None), ("A", "a"), None]

    def test_an_outer_join_has_the_keys_of_either(self) -> None:
        assert self.played(Table.outer_join) == [("A", None), ("A", "a"), (None, "a"), None]

    def test_a_tombstone_without_a_result_says_nothing(self) -> None:
        driver = driver_of(table(LEFT).join(table(RIGHT)))
        right(driver, "a", 1)
        left(driver, None, 2)
        assert driver.read("out") == []

    def test_a_versioned_side_ignores_an_older_update(self) -> None:
        driver = driver_of(table(LEFT, versioned=True).join(table(RIGHT)))
        right(driver, "a", 1)
        left(driver, "new", 10)
        left(driver, "old", 5)
        assert rows(driver) == [("new", "a", 10)]

    def test_the_time_of_a_result_is_the_later_of_both(self) -> None:
        driver = driver_of(table(LEFT).join(table(RIGHT)))
        left(driver, "A", 10)
        right(driver, "a", 3)
        assert rows(driver) == [("A", "a", 10)]

    def test_a_deleted_result_has_no_field_but_its_key(self) -> None:
        #  coalesce would let what is left of a deleted row pass the filter
        joined = table(LEFT).join(table(RIGHT)).to_stream().filter(coalesce(col("l"), "none") == "A")
        driver = driver_of(joined)
        left(driver, "A", 1)
        right(driver, "a", 2)
        right(driver, None, 3)
        assert rows(driver) == [("A", "a", 2)]
        assert len(driver.outputs("out")) == 1
