"""By how much a grace was too short, which longer ones are looked at, and which of them is recommended."""

from __future__ import annotations

import polars as pl
import pytest
from tests.unit.advise.grace.planted import late_rows, shortfalls_of

from recount.advise.grace_advice import recommended, rounded_up, steps_of_grace
from recount.advise.grace_judges import JUDGE, attributed, judges_of
from recount.declare.aggregates import count
from recount.declare.flow import RecordStream
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import TimeWindows, hopping, tumbling
from recount.reference.topology_driver import TopologyDriver

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))


def topology_of(*flows: RecordStream) -> Topology:
    sinks = [flow.to(Topic(name=f"out-{number}", key="user")) for number, flow in enumerate(flows)]
    return Topology(name="example", sinks=sinks)


def counted(windows: TimeWindows) -> RecordStream:
    return stream(CLICKS).windowed_by(windows).aggregate(n=count()).emit_final()


def clicked(topology: Topology, *seconds: int, topic: str = "clicks") -> TopologyDriver:
    driver = TopologyDriver(topology)
    for second in seconds:
        driver.pipe(topic, key="ann", value={"page": "/"}, timestamp_ms=second * 1_000)
    return driver


def test_rows_of_several_operators_are_told_apart_by_window_and_margin() -> None:
    ordered = stream(CLICKS).in_order(grace="30 s")
    topology = topology_of(
        ordered, counted(tumbling("10 s", grace="5 s")), counted(hopping("20 s", advance="10 s", grace="5 s"))
    )
    late = clicked(topology, 60, 25).late
    found = [shortfalls_of(topology, late, place) for place in range(3)]
    ordered, *windows = ([] if results is None else results.to_list() for _, results in found)
    assert [judge.grace_ms for judge in judges_of(topology)] == [30_000, 5_000, 5_000]
    assert (found[0][0].to_list(), ordered, windows) == ([5_000], [], [[25_001], [15_001, 25_001]])


def test_a_row_that_two_kinds_of_operators_could_have_made_is_of_none() -> None:
    flow = stream(CLICKS).in_order(grace="3 s")
    first = stream(CLICKS).deduplicate("page", horizon="3 s")
    topology = topology_of(flow, first)
    judges = judges_of(topology)
    assert len(judges) == 2
    late = clicked(topology, 20, 10).late
    assert len(late) == 2
    assert attributed(late_rows(late), judges).collect()[JUDGE].null_count() == 2


def test_rows_of_a_shorter_grace_before_an_upgrade_count_by_the_grace_of_now() -> None:
    before = clicked(topology_of(counted(tumbling("10 s", grace="0 s"))), 12, 1, 60, 2).late
    now = topology_of(counted(tumbling("10 s", grace="5 s")))
    assert shortfalls_of(now, before)[0].to_list() == [45_001], "the first would be on time now"


def test_what_is_derived_is_never_late_and_so_judges_nothing() -> None:
    per_second = counted(tumbling("1 s", grace="0 s"))
    busy = per_second.windowed_by(tumbling("10 s", grace="0 s")).aggregate(n=count()).emit_final()
    [judge] = judges_of(topology_of(busy))
    assert judge.grace_ms == 0
    assert judge.waits_ms == 11_000, "1 s for the seconds, 10 s for the window of them"
    assert not judge.notes


MIN, H = 60_000, 3_600_000
NINETY = [2_000] * 50 + [110_000] * 40 + [2 * H + 1] * 10


@pytest.mark.parametrize(
    ("ms", "rounded"),
    [(1, 1), (3, 5), (501, 1_000), (1_001, 2_000), (115_001, 2 * MIN), (2 * H + 1, 3 * H), (25 * H, 48 * H)],
)
def test_a_step_is_rounded_up(ms: int, rounded: int) -> None:
    assert rounded_up(ms) == rounded


def test_steps_follow_from_how_late_the_records_were() -> None:
    assert steps_of_grace(NINETY, limit_ms=5 * MIN) == [2_000, 2 * MIN, 3 * H]
    assert steps_of_grace([], limit_ms=5 * MIN) == []


def test_the_limit_is_a_step_where_rounding_up_would_pass_over_what_it_saves() -> None:
    assert steps_of_grace([110_000, 3 * H], limit_ms=115_000) == [115_000, 2 * MIN, 3 * H]


def test_the_grace_stays_where_most_would_more_than_double_the_delay() -> None:
    short_by = [1_000] * 40 + [2 * H] * 60
    added_ms, reason = recommended(
        pl.Series(short_by), "results", steps_of_grace(short_by, 305_000), waits_ms=305_000, grace_ms=5_000
    )
    assert added_ms == 0
    assert reason.startswith("60 of 100 results need more than 305 s more, up to 2 h more")


@pytest.mark.parametrize(("waits_ms", "added_ms"), [(9, 0), (10, 10)])
def test_a_step_may_double_the_delay_and_no_more(waits_ms: int, added_ms: int) -> None:
    assert recommended(pl.Series([5, 10]), "results", [10, 20], waits_ms=waits_ms, grace_ms=0)[0] == added_ms
