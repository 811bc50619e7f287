"""Stateless operators, tables of groups, deduplication, cogroup, custom processors, chains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.operators.nodes import KEY
from recount.declare.operators.processing import KeyState, Row
from recount.declare.operators.stateless import MERGED_FROM
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, cogroup, stream, table
from recount.declare.windows import tumbling
from recount.reference.topology_driver import TopologyDriver

EVENTS = Topic(name="events", key="id", value=RecordSchema.of(name=STRING, amount=LONG))
OTHERS = Topic(name="others", key="id", value=RecordSchema.of(paid=LONG))
OUT, SECOND = Topic(name="out", key="id"), Topic(name="second", key="id")


def values(driver: TopologyDriver, topic: str = "out") -> list[dict[str, Any] | None]:
    return [None if out.value is None else dict(out.value) for out in driver.read(topic)]


def send(driver: TopologyDriver, at: int = 0, key: str = "k", topic: str = "events", **value: Any) -> str:
    return driver.pipe(topic, key=key, value=value, timestamp_ms=at)


def test_a_map_makes_a_row_of_each_record_and_a_flat_map_any_number() -> None:
    def words(row: Row) -> Iterable[Row]:
        return [{"word": word} for word in (row["name"] or "").split()]

    upper = stream(EVENTS).map(lambda row: {"name": row["name"].upper()}, name=STRING)
    split = stream(EVENTS).flat_map(words, word=STRING)
    driver = TopologyDriver(Topology(name="mapping", sinks=[upper.to(OUT), split.to(SECOND)]))
    send(driver, name="to be")
    assert values(driver) == [{"name": "TO BE"}]
    assert values(driver, "second") == [{"word": "to"}, {"word": "be"}]


def test_a_branch_gives_each_record_to_the_first_predicate_that_is_true() -> None:
    branches = stream(EVENTS).branch(high=col("amount") > 100, some=col("amount") > 10)
    sinks = [branch.to(Topic(name=name, key="id")) for name, branch in branches.items()]
    driver = TopologyDriver(Topology(name="branching", sinks=sinks))
    for amount in (500, 50, 5, None):
        send(driver, amount=amount)
    amounts = {name: [value and value["amount"] for value in values(driver, name)] for name in branches}
    assert amounts == {"high": [500], "some": [50], "rest": [5, None]}


def test_peek_and_foreach_see_each_record_and_change_nothing() -> None:
    seen: list[int] = []
    peeked = stream(EVENTS).peek(lambda row: seen.append(row["amount"]))
    each = stream(EVENTS).foreach(lambda row: seen.append(-row["amount"]))
    driver = TopologyDriver(Topology(name="peeking", sinks=[peeked.to(OUT)], actions=[each]))
    assert send(driver, amount=1) == "counted"
    assert sorted(seen) == [-1, 1]
    assert len(values(driver)) == 1


def test_through_writes_and_goes_on() -> None:
    flow = stream(EVENTS).select("amount").through(SECOND).filter(col("amount") > 1)
    driver = TopologyDriver(Topology(name="through", sinks=[flow.repartition(8).to(OUT)]))
    send(driver, amount=1)
    send(driver, amount=2)
    assert values(driver, "second") == [{"amount": 1}, {"amount": 2}]
    assert values(driver) == [{"amount": 2}]


def test_a_merge_has_the_records_of_both_streams_with_null_for_missing_fields() -> None:
    driver = TopologyDriver(Topology(name="merging", sinks=[stream(EVENTS).merge(stream(OTHERS)).to(OUT)]))
    send(driver, name="a", amount=1)
    send(driver, topic="others", paid=2)
    assert values(driver) == [{"name": "a", "amount": 1, "paid": None}, {"name": None, "amount": None, "paid": 2}]


def test_a_cogroup_feeds_each_stream_into_the_aggregates_meant_for_it() -> None:
    both = cogroup(events=stream(EVENTS), payments=stream(OTHERS))
    results = both.aggregate(
        orders=count().only(col(MERGED_FROM) == "events"),
        payments=count().only(col(MERGED_FROM) == "payments"),
        open=total("amount"),
        paid=total("paid"),
    )
    driver = TopologyDriver(Topology(name="cogroup", sinks=[results.to(OUT)]))
    send(driver, amount=10)
    send(driver, topic="others", paid=4)
    assert values(driver)[-1] == {"orders": 1, "payments": 1, "open": 10, "paid": 4}


def test_a_row_that_changes_leaves_its_group_before_it_joins_the_new_one() -> None:
    tiers = table(EVENTS).group_by(tier=col("name")).aggregate(customers=count())
    driver = TopologyDriver(Topology(name="tiers", sinks=[tiers.to(OUT)]))
    send(driver, name="gold", key="a")
    send(driver, name="basic", key="a")
    driver.pipe("events", key="a", value=None, timestamp_ms=0)
    assert values(driver) == [
        {"tier": "gold", "customers": 1},
        {"tier": "gold", "customers": 0},
        {"tier": "basic", "customers": 1},
        {"tier": "basic", "customers": 0},
    ]


def test_a_row_that_no_longer_passes_leaves_without_its_fields() -> None:
    large = table(EVENTS).filter(col("amount") > 5).to_stream().filter(col("amount").is_null())
    driver = TopologyDriver(Topology(name="large", sinks=[large.to(OUT)]))
    send(driver, amount=9, key="a")
    send(driver, amount=1, key="a")
    assert [(out.key, out.value) for out in driver.read("out")] == [("a", None)]


def test_a_table_becomes_a_changelog_and_the_changelog_a_table() -> None:
    driver = TopologyDriver(Topology(name="there", sinks=[table(EVENTS).select("name").to(OUT)]))
    send(driver, name="x", key="a")
    send(driver, name="y", key="b")
    driver.pipe("events", key="a", value=None, timestamp_ms=0)
    changelog = Topic(name="out", key="id", value=RecordSchema.of(name=STRING))
    back = TopologyDriver(Topology(name="back", sinks=[table(changelog).to(SECOND)]))
    for out in driver.read("out"):
        back.pipe("out", key=out.key, value=out.value, timestamp_ms=out.timestamp_ms)
    assert back.table("second") == driver.table("out") == [{"name": "y"}]


class TestDeduplication:
    #  horizon 10      0 ════ 10 │ 11

    def test_the_first_by_offset_wins_at_once_where_the_id_is_the_key(self) -> None:
        driver = TopologyDriver(
            Topology(name="first", sinks=[stream(EVENTS).deduplicate(KEY, horizon="10 ms").to(OUT)])
        )
        assert [send(driver, at, key="a") for at in (5, 0, 15, 16)] == [
            "counted",
            "deduplicated",
            "deduplicated",
            "counted",
        ]

    def test_elsewhere_the_first_by_event_time_wins_once_none_can_come_before_it(self) -> None:
        first = stream(EVENTS).deduplicate("name", horizon="10 ms")
        driver = TopologyDriver(Topology(name="first", sinks=[first.to(OUT)]))
        driver.pipe("events", key="a", value={"name": "x", "amount": 1}, timestamp_ms=5, partition=0)
        driver.pipe("events", key="b", value={"name": "x", "amount": 2}, timestamp_ms=3, partition=1)
        driver.advance_to(13)
        assert values(driver) == []
        driver.advance_to(14)
        assert values(driver) == [{"name": "x", "amount": 2}]
        driver.advance_to(16)
        assert values(driver) == []
        assert driver.fates == {"counted": 1, "deduplicated": 1}

    def test_a_record_behind_the_horizon_is_late(self) -> None:
        driver = TopologyDriver(
            Topology(name="first", sinks=[stream(EVENTS).deduplicate(KEY, horizon="10 ms").to(OUT)])
        )
        assert [send(driver, at, key=str(at)) for at in (100, 90, 89)] == ["counted", "counted", "late"]
        assert driver.late[0].margin_ms == 0


class TestProcessor:
    @staticmethod
    def driver() -> TopologyDriver:
        """Counts each key's records, and says how many there were 10 ms after the first."""

        def on_record(row: Row, state: KeyState) -> Iterable[Row]:
            if not state.remembered:
                state.schedule(state.timestamp_ms + 10)
            state.remembered["n"] = state.remembered.get("n", 0) + 1
            return ()

        def on_timer(at_ms: int, state: KeyState) -> Iterable[Row]:
            return [{"n": state.remembered.pop("n")}]

        flow = stream(EVENTS).process(on_record, on_timer=on_timer, n=LONG)
        return TopologyDriver(Topology(name="processing", sinks=[flow.to(OUT)]))

    def test_a_timer_fires_when_the_frontier_reaches_it(self) -> None:
        driver = self.driver()
        send(driver, 0)
        send(driver, 9)
        assert values(driver) == []
        send(driver, 10, key="other")
        assert [(out.key, out.timestamp_ms, out.value) for out in driver.read("out")] == [("k", 10, {"n": 2})]

    def test_a_timer_fires_before_the_keys_next_record_where_its_own_partition_had_reached_it(self) -> None:
        #  partition 0    0: set for 10 ── 12 (of another key) ── 13        partition 1 is at 0, and so is the frontier
        driver = self.driver()
        driver.pipe("events", key="far", value={}, timestamp_ms=0, partition=1)
        send(driver, 0)
        send(driver, 12, key="other")
        assert values(driver) == []
        send(driver, 13)
        assert [(out.key, out.timestamp_ms, out.value) for out in driver.read("out")] == [("k", 10, {"n": 1})]

    def test_a_record_does_not_reach_a_timer_before_itself(self) -> None:
        driver = self.driver()
        driver.pipe("events", key="far", value={}, timestamp_ms=0, partition=1)
        send(driver, 0)
        send(driver, 13)
        assert values(driver) == []
        driver.advance_to(13)
        assert values(driver) == [{"n": 1}, {"n": 2}]

    def test_a_timer_fires_once_and_can_be_set_again(self) -> None:
        driver = self.driver()
        send(driver, 0)
        send(driver, 50)
        driver.advance_to(100)
        assert values(driver) == [{"n": 2}]
        send(driver, 100)
        driver.advance_to(110)
        assert values(driver) == [{"n": 1}]


def test_what_leaves_at_the_end_of_a_batch_reaches_the_windows_below_at_once() -> None:
    per_second = stream(EVENTS).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
    running = per_second.windowed_by(tumbling("1 min", grace="0 s")).aggregate(n=total("n")).emit_each_batch()
    driver = TopologyDriver(Topology(name="batched", sinks=[running.to(OUT)]))
    send(driver, 100)
    driver.advance_to(1_000)
    assert [out.value and out.value["n"] for out in driver.read("out")] == [1]


def test_a_revised_result_stands_in_place_of_the_one_before_in_the_windows_below() -> None:
    per_second = stream(EVENTS).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
    everything = per_second.aggregate(seconds=count(), n=total("n"))
    driver = TopologyDriver(Topology(name="revised", sinks=[everything.to(OUT)]))
    driver.pipe("events", key="k", value={}, timestamp_ms=100, partition=1)
    driver.pipe("events", key="other", value={}, timestamp_ms=5_000, partition=0)
    driver.idle("events", 1)
    assert values(driver) == [{"seconds": 1, "n": 1}]
    driver.pipe("events", key="k", value={}, timestamp_ms=200, partition=1)
    driver.advance_to(5_000)
    assert driver.table("out") == [{"seconds": 1, "n": 2}]


def test_a_window_over_a_windows_finals_waits_for_both() -> None:
    per_second = stream(EVENTS).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
    per_minute = per_second.windowed_by(tumbling("1 min", grace="0 s")).aggregate(seconds=count(), n=total("n"))
    driver = TopologyDriver(Topology(name="twice", sinks=[per_minute.emit_final().to(OUT)]))
    for at in (100, 200, 59_900):
        send(driver, at)
    driver.advance_to(60_999)
    assert values(driver) == []
    driver.advance_to(61_000)
    assert [
        (out.window, out.value and out.value["seconds"], out.value and out.value["n"]) for out in driver.read("out")
    ] == [((0, 60_000), 2, 3)]
