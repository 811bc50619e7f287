"""Records in the order of event time: every cut of the log, every reading order and the interpreter say the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engine.by_hand import EXACT, LEFT, assert_law, drawn_by_hand, left, right
from tests.unit.engine.random_flows import TOPICS
from tests.unit.engine.random_topology_logs import Cut, Event, closing
from tests.unit.engine.topology_runs import IDLE_AFTER_MS, by_engine

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.operators.processing import KeyState
from recount.declare.schema import LONG
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling
from recount.runtime.errors import InvalidDeclaration

PARTITIONS = {"left": 2}
RIGHT = stream(TOPICS["right"])


def written(flow: RecordStream | Table, *cuts: Cut, partitions: Mapping[str, int] = PARTITIONS) -> list[dict[str, Any]]:
    """What the engine writes before time is closed, once it agrees with the interpreter."""
    drawn = drawn_by_hand(flow, replace(EXACT, has_bounds=False), partitions)
    assert_law(drawn, *cuts)
    rows = by_engine(drawn, [*cuts, closing(drawn.partitions)]).rows["out"]
    return [{name: cell for name, _, cell in cells} for *_, cells in rows if cells]


def numbers(events: list[Event]) -> list[list[Cut]]:
    """The log in one batch, and each record in a batch of its own, with restarts."""
    return [[Cut(events)], [Cut([event], restarts=True) for event in events]]


def totals(flow: RecordStream) -> RecordStream:
    return flow.select_key(word=col("lw")).aggregate(n=count(), sum=total("ln")).to_stream()


# by time: 1, 2 (partition 1), 4, 5 (partition 1), 9; in the log of partition 0: 4, 1, 9
LOG = [
    left(4, n=4),
    left(2, n=2, partition=1),
    left(1, n=1),
    left(5, n=5, partition=1),
    left(9, n=9),
    left(60, "z", n=0),
    left(60, "z", n=0, partition=1),
]


@pytest.mark.parametrize("cuts", numbers(LOG))
def test_running_totals_of_a_key_in_several_partitions_go_by_event_time(cuts: list[Cut]) -> None:
    rows = written(totals(LEFT.in_order(grace="5 ms")), *cuts)
    assert [row["sum"] for row in rows if row["word"] == "a"] == [1, 3, 7, 12, 21]


@pytest.mark.parametrize("cuts", numbers(LOG))
def test_a_filter_of_totals_tells_each_record_after_which_they_are_too_large(cuts: list[Cut]) -> None:
    rows = written(totals(LEFT.in_order(grace="5 ms")).filter(col("sum") > 7), *cuts)
    assert [(row["n"], row["sum"]) for row in rows if row["word"] == "a"] == [(4, 12), (5, 21)]


@pytest.mark.parametrize("cuts", numbers(LOG))
def test_a_processor_sees_the_records_of_all_partitions_by_event_time(cuts: list[Cut]) -> None:
    def remembered(row: Mapping[str, Any], state: KeyState) -> Iterator[dict[str, Any]]:
        yield {"n": row["ln"], "before": state.remembered.get("n", -1)}
        state.remembered["n"] = row["ln"]

    flow = LEFT.in_order(grace="5 ms").select_key(word=col("lw")).process(remembered, n=LONG, before=LONG)
    rows = written(flow, *cuts)
    assert [row["before"] for row in rows if row["word"] == "a"] == [-1, 1, 2, 4, 5]


def test_records_of_one_time_go_by_topic_partition_and_offset() -> None:
    both = LEFT.select(n=col("ln")).merge(RIGHT.select(n=col("rn")))
    log = [right(3), left(3, n=7, partition=1), left(3, n=5), left(3, n=6)]
    ends = [left(60, n=0), left(60, n=0, partition=1), right(60)]
    rows = written(both.in_order(grace="0 ms"), Cut([*log, *ends]), partitions={**PARTITIONS, "right": 1})
    assert [row["n"] for row in rows][:4] == [5, 6, 7, 1]


@pytest.mark.parametrize(("time_ms", "late"), [(55, 0), (54, 1)])
def test_a_record_is_late_when_its_partition_is_further_than_the_grace(time_ms: int, late: int) -> None:
    drawn = drawn_by_hand(LEFT.in_order(grace="5 ms"), replace(EXACT, has_bounds=False), {"left": 1})
    cuts = [Cut([left(60)]), Cut([left(time_ms)])]
    assert_law(drawn, *cuts)
    assert sum(by_engine(drawn, cuts).late.values()) == late


def test_a_record_leaves_once_no_partition_can_bring_an_earlier_one() -> None:
    drawn = drawn_by_hand(LEFT.in_order(grace="5 ms"), replace(EXACT, has_bounds=False), PARTITIONS)
    held = [Cut([left(10), left(15, partition=1)]), Cut([left(15)])]
    assert by_engine(drawn, held).rows["out"] == []
    assert len(by_engine(drawn, [*held, Cut([left(16), left(16, partition=1)])]).rows["out"]) == 1


@pytest.mark.parametrize(("time_ms", "late"), [(55, 0), (54, 1)])
def test_a_partition_that_was_idle_cannot_put_a_record_before_those_that_have_left(time_ms: int, late: int) -> None:
    drawn = drawn_by_hand(LEFT.in_order(grace="5 ms"), replace(EXACT, has_bounds=False), PARTITIONS)
    cuts = [
        Cut([left(1), left(1, partition=1)]),
        Cut([left(40)], later_ms=IDLE_AFTER_MS),
        Cut([left(60)], later_ms=IDLE_AFTER_MS, restarts=True),
        Cut([left(time_ms, partition=1)], restarts=True),
    ]
    assert_law(drawn, *cuts)
    assert sum(by_engine(drawn, cuts).late.values()) == late


def test_windows_below_judge_a_record_by_the_stream_time_of_its_own_partition() -> None:
    per_word = LEFT.in_order(grace="20 ms").select_key(word=col("lw")).windowed_by(tumbling("10 ms", grace="5 ms"))
    log = [left(1), left(14), left(2), left(15), left(3), left(60), left(60, partition=1)]
    rows = written(per_word.aggregate(n=count()).emit_final(), Cut(log[:4]), Cut(log[4:], restarts=True))
    assert [row["n"] for row in rows][:2] == [2, 2]


WINDOWS = LEFT.select_key(word=col("lw")).windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(n=count()).emit_final()


@pytest.mark.parametrize(
    "flow",
    [
        WINDOWS,
        LEFT.join(RIGHT, before="1 ms", after="1 ms", grace="0 ms"),
        LEFT.deduplicate("lw", horizon="1 ms"),
        LEFT.in_order(grace="1 ms"),
        LEFT.left_join_table(table(TOPICS["table"]), grace="1 ms"),
        LEFT.process(lambda _, __: [], on_timer=lambda _, __: [], n=LONG),
    ],
)
def test_rows_without_a_place_in_the_log_are_refused(flow: RecordStream) -> None:
    with pytest.raises(InvalidDeclaration, match="put in_order before that"):
        Topology(name="refused", sinks=[flow.in_order(grace="1 ms").to(Topic(name="out", key="id"))])


def test_timers_below_are_refused() -> None:
    flow = LEFT.in_order(grace="1 ms").filter(col("lb")).process(lambda _, __: [], on_timer=lambda _, __: [], n=LONG)
    with pytest.raises(InvalidDeclaration, match="on_timer"):
        Topology(name="refused", sinks=[flow.to(Topic(name="out", key="id"))])
