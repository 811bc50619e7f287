"""Windowed aggregation: lateness by the record's own partition, finals by the frontier, revisions."""

from __future__ import annotations

from recount.declare.aggregates import count, total
from recount.declare.expressions import coalesce, col
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import Windows, all_time, hopping, last_n, session, sliding, tumbling
from recount.reference.topology_driver import TopologyDriver

EVENTS = Topic(name="events", key="user", value=RecordSchema.of(region=STRING, amount=LONG))
RESULTS = Topic(name="results", key="user")


def driver_of(windows: Windows, emit: str = "final") -> TopologyDriver:
    counted = stream(EVENTS).windowed_by(windows).aggregate(n=count(), amount=total("amount"))
    results = {
        "final": counted.emit_final,
        "each record": counted.emit_each_record,
        "each batch": counted.emit_each_batch,
    }[emit]()
    return TopologyDriver(Topology(name="counting", sinks=[results.to(RESULTS)]))


def feed(driver: TopologyDriver, *times_ms: int, key: str = "ann", partition: int = 0) -> list[str]:
    return [
        driver.pipe("events", key=key, value={"amount": 1}, timestamp_ms=time, partition=partition) for time in times_ms
    ]


def counts(driver: TopologyDriver) -> list[tuple[str, tuple[int, int] | None, int | None]]:
    return [(out.key, out.window, out.value and out.value["n"]) for out in driver.read("results")]


class TestTumbling:
    #  size 10 s, grace 5 s     0 ────────── 10 s ──── 15 s
    #                           window [0, 10 s)       closed from here on

    def test_a_record_is_on_time_until_the_last_millisecond_of_the_grace(self) -> None:
        driver = driver_of(tumbling("10 s", grace="5 s"))
        assert feed(driver, 9_999, 14_999, 0) == ["counted", "counted", "counted"]

    def test_a_record_is_late_once_the_grace_has_passed(self) -> None:
        driver = driver_of(tumbling("10 s", grace="5 s"))
        assert feed(driver, 9_999, 15_000, 0) == ["counted", "counted", "late"]
        [late] = driver.late
        assert (late.offset, late.stream_time_ms, late.margin_ms, late.window_end) == (2, 15_000, 0, 10_000)

    def test_a_record_advances_stream_time_before_it_is_judged(self) -> None:
        driver = driver_of(tumbling("10 s", grace="0 s"))
        assert feed(driver, 20_000) == ["counted"]

    def test_the_final_result_leaves_once_as_the_window_closes(self) -> None:
        driver = driver_of(tumbling("10 s", grace="5 s"))
        feed(driver, 1_000, 2_000, 14_999)
        assert counts(driver) == []
        feed(driver, 15_000)
        assert counts(driver) == [("ann", (0, 10_000), 2)]

    def test_the_time_of_a_result_is_the_largest_event_time_behind_it(self) -> None:
        driver = driver_of(tumbling("10 s", grace="5 s"))
        feed(driver, 7_000, 3_000)
        driver.advance_to(60_000)
        assert [out.timestamp_ms for out in driver.read("results")] == [7_000]


class TestPartitions:
    #  partition 0   0 s ───────────────────── 60 s
    #  partition 1   0 s ── 3 s                        lags, and loses nothing

    def test_a_lagging_partition_loses_nothing(self) -> None:
        driver = driver_of(tumbling("10 s", grace="0 s"))
        feed(driver, 0, 60_000, partition=0)
        assert feed(driver, 1_000, 3_000, key="bob", partition=1) == ["counted", "counted"]

    def test_a_final_result_waits_for_the_slowest_partition(self) -> None:
        driver = driver_of(tumbling("10 s", grace="0 s"))
        feed(driver, 0, key="bob", partition=1)
        feed(driver, 5_000, 60_000)
        assert counts(driver) == []
        feed(driver, 10_000, key="bob", partition=1)
        assert counts(driver) == [("ann", (0, 10_000), 1), ("bob", (0, 10_000), 1)]

    def test_an_idle_partition_is_not_waited_for(self) -> None:
        driver = driver_of(tumbling("10 s", grace="0 s"))
        feed(driver, 0, key="bob", partition=1)
        feed(driver, 60_000)
        driver.idle("events", 1)
        assert counts(driver) == [("bob", (0, 10_000), 1)]

    def test_an_idle_partition_that_speaks_again_revises_what_was_emitted(self) -> None:
        driver = driver_of(tumbling("10 s", grace="0 s"))
        feed(driver, 0, key="bob", partition=1)
        feed(driver, 60_000)
        driver.idle("events", 1)
        assert [out.revision for out in driver.read("results")] == [0]
        assert feed(driver, 9_000, key="bob", partition=1) == ["counted"]
        assert [(out.value and out.value["n"], out.revision) for out in driver.read("results")] == [(2, 1)]


class TestHopping:
    def test_a_record_may_be_late_for_one_window_and_counted_in_the_other(self) -> None:
        #  0 ───── 5 ───── 10 ───── 15      size 10, advance 5, no grace; stream time is 10
        driver = driver_of(hopping("10 s", advance="5 s", grace="0 s"))
        assert feed(driver, 10_000, 6_000) == ["counted", "counted"]
        assert [(late.offset, late.window_start) for late in driver.late] == [(1, 0)]
        driver.advance_to(15_000)
        assert counts(driver) == [("ann", (5_000, 15_000), 2)]


class TestSliding:
    def test_a_record_defines_a_window_that_ends_with_it_and_one_that_begins_after_it(self) -> None:
        #  difference 10        15 ······ 22
        #  [5 ········· 15]   [12 ········· 22]   [16 ········· 26]
        driver = driver_of(sliding("10 s", grace="0 s"), "each record")
        feed(driver, 15_000, 22_000)
        assert counts(driver) == [
            ("ann", (5_000, 15_000), 1),
            ("ann", (15_001, 25_001), 1),
            ("ann", (12_000, 22_000), 2),
        ]

    def test_records_exactly_the_difference_apart_share_a_window(self) -> None:
        driver = driver_of(sliding("10 s", grace="1 min"))
        feed(driver, 20_000, 30_000)
        driver.advance_to(200_000)
        assert ("ann", (20_000, 30_000), 2) in counts(driver)

    def test_a_null_value_is_dropped(self) -> None:
        driver = driver_of(sliding("10 s", grace="0 s"))
        assert driver.pipe("events", key="ann", value=None, timestamp_ms=5) == "null value"


class TestSessions:
    def test_a_record_between_two_sessions_makes_them_one(self) -> None:
        #  gap 5     0 ·· 3          8 + 2 = 10     → [0, 3] and [10, 10], then 6 joins both
        driver = driver_of(session("5 s", grace="1 min"), "each record")
        feed(driver, 0, 3_000, 10_000, 6_000)
        assert counts(driver)[-3:] == [
            ("ann", (0, 3_000), None),
            ("ann", (10_000, 10_000), None),
            ("ann", (0, 10_000), 4),
        ]

    def test_a_record_that_joins_an_open_session_is_not_late(self) -> None:
        driver = driver_of(session("5 s", grace="0 s"))
        feed(driver, 10_000)
        feed(driver, 14_000, key="bob")
        assert feed(driver, 5_000) == ["counted"]

    def test_a_record_whose_own_session_has_closed_is_late(self) -> None:
        driver = driver_of(session("5 s", grace="0 s"))
        assert feed(driver, 20_000, 14_999) == ["counted", "late"]

    def test_only_records_of_the_same_partition_keep_a_session_open_for_a_late_one(self) -> None:
        driver = driver_of(session("5 s", grace="0 s"))
        feed(driver, 30_000, partition=1)
        feed(driver, 10_000, partition=0)
        assert feed(driver, 8_000, partition=1) == ["late"]
        assert feed(driver, 8_000, partition=0) == ["counted"]

    def test_a_session_is_cut_where_it_would_last_too_long(self) -> None:
        driver = driver_of(session("5 s", grace="0 s", max_duration="8 s"))
        feed(driver, 0, 4_000, 8_000, 12_000)
        driver.advance_to(60_000)
        assert counts(driver) == [("ann", (0, 8_000), 3), ("ann", (12_000, 12_000), 1)]

    def test_a_null_value_is_counted(self) -> None:
        driver = driver_of(session("5 s", grace="0 s"))
        assert driver.pipe("events", key="ann", value=None, timestamp_ms=0) == "counted"
        driver.advance_to(60_000)
        assert counts(driver) == [("ann", (0, 0), 1)]


class TestUnbounded:
    def test_the_global_window_counts_for_ever(self) -> None:
        driver = driver_of(all_time(), "each record")
        feed(driver, 50_000, 0)
        assert counts(driver) == [("ann", None, 1), ("ann", None, 2)]

    def test_last_n_keeps_the_most_recent_by_event_time(self) -> None:
        driver = driver_of(last_n(2), "each record")
        for time, amount in ((50, 1), (70, 2), (60, 4), (10, 8)):
            driver.pipe("events", key="ann", value={"amount": amount}, timestamp_ms=time)
        assert [out.value and out.value["amount"] for out in driver.read("results")] == [1, 3, 6]


class TestEmission:
    def test_each_batch_gives_one_update_per_key_and_window(self) -> None:
        driver = driver_of(tumbling("10 s", grace="0 s"), "each batch")
        with driver.batch():
            feed(driver, 1_000, 2_000, 3_000)
        feed(driver, 4_000)
        assert counts(driver) == [("ann", (0, 10_000), 3), ("ann", (0, 10_000), 4)]

    def test_every_record_is_an_update_with_a_revision_of_its_own(self) -> None:
        driver = driver_of(tumbling("10 s", grace="0 s"), "each record")
        feed(driver, 1_000, 2_000)
        assert [out.revision for out in driver.read("results")] == [0, 1]

    def test_results_that_are_due_together_leave_by_window_end_then_key(self) -> None:
        driver = driver_of(tumbling("10 s", grace="0 s"))
        feed(driver, 12_000, 1_000, key="zoe", partition=1)
        feed(driver, 1_000)
        feed(driver, 60_000)
        feed(driver, 60_000, key="zoe", partition=1)
        assert counts(driver) == [("ann", (0, 10_000), 1), ("zoe", (10_000, 20_000), 1)]

    def test_an_update_held_back_leaves_when_its_limit_has_passed_with_the_latest_value(self) -> None:
        counted = stream(EVENTS).windowed_by(tumbling("10 s", grace="0 s")).aggregate(n=count())
        driver = TopologyDriver(Topology(name="held", sinks=[counted.emit_after("2 s").to(RESULTS)]))
        feed(driver, 1_000, 2_999)
        assert counts(driver) == []
        feed(driver, 3_000)
        assert counts(driver) == [("ann", (0, 10_000), 3)]


class TestKeys:
    def test_a_null_key_is_dropped_and_does_not_advance_stream_time(self) -> None:
        counted = (
            stream(EVENTS)
            .select_key(region=col("region"))
            .windowed_by(tumbling("10 s", grace="0 s"))
            .aggregate(n=count())
        )
        driver = TopologyDriver(Topology(name="by-region", sinks=[counted.emit_final().to(RESULTS)]))
        assert driver.pipe("events", key="a", value={"region": None}, timestamp_ms=90_000) == "null key"
        assert driver.pipe("events", key="a", value={"region": "EU"}, timestamp_ms=5_000) == "counted"

    def test_a_filtered_record_does_advance_stream_time(self) -> None:
        counted = (
            stream(EVENTS).filter(col("amount") > 0).windowed_by(tumbling("10 s", grace="0 s")).aggregate(n=count())
        )
        driver = TopologyDriver(Topology(name="filtered", sinks=[counted.emit_final().to(RESULTS)]))
        assert driver.pipe("events", key="a", value={"amount": 0}, timestamp_ms=90_000) == "filtered"
        assert driver.pipe("events", key="a", value={"amount": 1}, timestamp_ms=5_000) == "late"

    def test_a_missing_key_can_be_given_a_name(self) -> None:
        counted = stream(EVENTS).select_key(region=coalesce(col("region"), "UNKNOWN")).aggregate(n=count())
        driver = TopologyDriver(Topology(name="regions", sinks=[counted.to(RESULTS)]))
        driver.pipe("events", key="a", value={}, timestamp_ms=1)
        assert driver.table("results") == [{"region": "UNKNOWN", "n": 1}]


def test_updates_of_two_groups_by_one_change_of_a_table_are_two_records() -> None:
    """What the change took from the one group must not vanish because the other group's update is a later revision."""
    customers = Topic(name="customers", key="customer_id", value=RecordSchema.of(tier=STRING))
    per_tier = table(customers).group_by(tier=col("tier")).aggregate(customers=count())
    updates = per_tier.to_stream().select("customers").windowed_by(tumbling("100 ms", grace="0 ms"))
    flow = updates.aggregate(updates=count()).emit_each_record()
    driver = TopologyDriver(Topology(name="tiers", sinks=[flow.to(Topic(name="out", key="tier"))]))
    for customer, tier, at_ms in [("a", "gold", 1), ("b", "gold", 2), ("c", "silver", 3), ("c", "gold", 4)]:
        driver.pipe("customers", key=customer, value={"tier": tier}, timestamp_ms=at_ms)
    latest = {out.key: out.value["updates"] for out in driver.outputs("out") if out.value}
    assert latest == {"gold": 3, "silver": 2}


class TestTheOrderInWhichTheUpdatesOfSlidingWindowsLeave:
    #  difference 10 ms, of Kafka Streams' KStreamSlidingWindowAggregate

    def starts(self, *times_ms: int) -> list[int]:
        """The starts of the windows that the last record updates, in order."""
        driver = driver_of(sliding("10 ms", grace="1 s"), "each record")
        feed(driver, *times_ms[:-1])
        counts(driver)
        feed(driver, times_ms[-1])
        return [window[0] for _, window, _ in counts(driver) if window is not None]

    def test_of_new_windows_the_one_after_the_record_before_leaves_first_then_the_one_that_ends_with_the_record(
        self,
    ) -> None:
        assert self.starts(15, 22) == [16, 12]

    def test_windows_that_were_there_leave_before_new_ones_and_the_latest_of_them_first(self) -> None:
        assert self.starts(15, 22, 18) == [16, 12, 8, 19]

    def test_the_window_that_ends_with_the_record_leaves_last_of_those_that_were_there(self) -> None:
        assert self.starts(15, 26, 26) == [16]
        assert self.starts(15, 20, 25, 25) == [21, 16, 15]

    def test_before_the_first_difference_the_shared_window_leaves_last(self) -> None:
        assert self.starts(3, 6) == [4, 0]
        assert self.starts(3, 6, 5) == [4, 6, 0]
