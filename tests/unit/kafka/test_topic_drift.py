"""Topics of others are never altered; our own are repaired where no record is lost by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recount.declare.aggregates import count
from recount.declare.registry import Declarations
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import FARTHEST_AHEAD, TIMESTAMP_TYPE, Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.kafka.topic_drift import Found, all_topics, change_of, dead_letter_topic, settings_of
from recount.runtime.errors import InvalidDeclaration, Terminal
from recount.runtime.settings import Profile

DAY_MS = 86_400_000
ORDERS = Topic(name="orders", key="order_id", retention_ms=7 * DAY_MS, value=RecordSchema.of(region=STRING))
AS_DECLARED = Found(
    partitions=4,
    factors=(3,),
    settings={"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "min.insync.replicas": "2"},
)


def found(retention_ms: int, **others: object) -> Found:
    return replace(AS_DECLARED, settings={**AS_DECLARED.settings, "retention.ms": str(retention_ms)}, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", ["production", "embedded"])
@pytest.mark.parametrize("actual", [found(30 * DAY_MS), found(DAY_MS), found(-1, partitions=9, factors=(1,))])
def test_a_topic_of_others_is_never_altered_whatever_it_is_like(profile: Profile, actual: Found) -> None:
    change = change_of(ORDERS, actual, profile, brokers=3)
    assert (change.action, change.problem) == ("drifted", None)
    assert "retention.ms" in [drift.setting for drift in change.drift]


def test_a_topic_of_others_that_is_missing_is_created_in_the_embedded_profile_only() -> None:
    assert change_of(ORDERS, None, "embedded", brokers=3).action == "create"
    missing = change_of(ORDERS, None, "production", brokers=3)
    assert missing.action == "missing"
    assert isinstance(missing.problem, Terminal)


def test_with_of_others_a_topic_of_others_is_created_as_declared_and_still_not_altered() -> None:
    weak = replace(ORDERS, replication_factor=1, min_insync_replicas=1)
    for topic in (ORDERS, weak):
        created = change_of(topic, None, "production", brokers=3, creates_others=True)
        assert (created.topic, created.action, created.reasons) == (topic, "create", [])
    assert change_of(ORDERS, found(DAY_MS), "production", brokers=3, creates_others=True).action == "drifted"
    assert change_of(replace(weak, owned=True), None, "production", brokers=3, creates_others=True).action == "refuse"


def test_a_topic_that_is_declared_ours_is_created_and_kept_in_step() -> None:
    ours = replace(ORDERS, owned=True)
    assert change_of(ours, None, "production", brokers=3).action == "create"
    assert change_of(ours, AS_DECLARED, "production", brokers=3).action == "in step"
    assert change_of(ours, found(DAY_MS), "production", brokers=3).action == "repair"


@pytest.mark.parametrize("kept_ms", [7 * DAY_MS + 1, 30 * DAY_MS, -1])
def test_a_retention_of_ours_that_keeps_more_than_declared_is_not_lowered(kept_ms: int) -> None:
    change = change_of(replace(ORDERS, owned=True), found(kept_ms), "production", brokers=3)
    assert (change.action, isinstance(change.problem, Terminal)) == ("refuse", True)


def test_a_refusal_names_what_it_refuses_once_and_the_tool_that_adds_partitions() -> None:
    change = change_of(replace(ORDERS, owned=True, partitions=6), AS_DECLARED, "production", brokers=3)
    assert (change.action, "; ".join(change.reasons).count("partitions is 4, declared 6")) == ("refuse", 1)
    assert "kafka-topics --alter" in change.reasons[-1]


def test_weak_replication_is_refused_of_our_topics_and_none_of_our_business_with_others() -> None:
    weak = replace(ORDERS, replication_factor=1, min_insync_replicas=1)
    actual = Found(partitions=4, factors=(1,), settings={**AS_DECLARED.settings, "min.insync.replicas": "1"})
    assert change_of(replace(weak, owned=True), actual, "production", brokers=3).action == "refuse"
    assert change_of(weak, actual, "production", brokers=3).action == "in step"


def test_a_topic_that_may_not_be_looked_at_is_a_problem_of_its_own() -> None:
    refused = Terminal("Kafka refused describing topic orders")
    change = change_of(ORDERS, refused, "production", brokers=3)
    assert (change.action, change.problem) == ("unknown", refused)


def test_what_a_topology_writes_to_is_ours_and_what_it_reads_is_not() -> None:
    revenue = Topic(name="revenue", key="region")
    counted = stream(ORDERS).through(Topic(name="copies", key="order_id")).windowed_by(tumbling("1 min", grace="0 s"))
    topology = Topology(name="revenue", sinks=[counted.aggregate(n=count()).emit_final().to(revenue)])
    owned = {
        topic.name: topic.owned
        for topic in all_topics(
            Declarations(topologies={"revenue": topology}, topics={"orders": ORDERS, "revenue": revenue})
        )
    }
    assert owned == {
        "orders": False,
        "orders.dlq": True,
        "copies": True,
        "revenue": True,
        "recount.status": True,
        "recount.history": True,
        "recount.control": True,
        "recount.certificates": True,
        "recount.positions": True,
    }


def test_a_sink_that_writes_to_a_topic_of_recount_itself_is_refused() -> None:
    topology = counted(Topic(name="blue.status", key="region"), "1 h")
    declarations = Declarations(topologies={"revenue": topology}, topics={})
    assert all_topics(declarations)
    with pytest.raises(InvalidDeclaration, match=r"blue\.status"):
        all_topics(declarations, lambda name: name.replace("recount.", "blue."))


def counted(revenue: Topic, max_future: str) -> Topology:
    windows = stream(ORDERS).windowed_by(tumbling("1 min", grace="0 s"))
    sinks = [windows.aggregate(n=count()).emit_final().to(revenue)]
    return Topology(name="revenue", sinks=sinks, max_future=max_future)


@pytest.mark.parametrize(
    ("max_future", "configs", "expected"),
    [
        ("1 h", {}, None),
        ("2 d", {}, str(2 * DAY_MS + 3_600_000)),
        ("2 d", {FARTHEST_AHEAD: str(3 * DAY_MS)}, str(3 * DAY_MS)),
    ],
)
def test_the_topic_of_results_takes_them_as_far_ahead_of_the_clock_as_records_may_be(
    max_future: str, configs: dict[str, str], expected: str | None
) -> None:
    topology = counted(Topic(name="revenue", key="region", configs=configs), max_future)
    found = {topic.name: topic for topic in all_topics(Declarations(topologies={"revenue": topology}, topics={}))}
    assert found["revenue"].configs.get(FARTHEST_AHEAD) == expected
    assert FARTHEST_AHEAD not in found["orders.dlq"].configs


def test_the_topic_of_results_keeps_their_times_whatever_the_cluster_does_by_default() -> None:
    """With LogAppendTime, which some clusters have, audits called every result altered."""
    topology = counted(Topic(name="revenue", key="region"), "1 h")
    found = {topic.name: topic for topic in all_topics(Declarations(topologies={"revenue": topology}, topics={}))}
    assert {name for name, one in found.items() if TIMESTAMP_TYPE in one.configs} == {"revenue"}
    there = Found(
        partitions=4, factors=(3,), settings={**settings_of(found["revenue"]), TIMESTAMP_TYPE: "LogAppendTime"}
    )
    change = change_of(found["revenue"], there, "production", brokers=3)
    assert (change.action, change.reasons) == ("repair", [f"{TIMESTAMP_TYPE} is LogAppendTime, declared CreateTime"])
    with pytest.raises(Terminal, match=TIMESTAMP_TYPE):
        counted(Topic(name="revenue", key="region", configs={TIMESTAMP_TYPE: "LogAppendTime"}), "1 h")


def test_a_topic_that_would_refuse_results_of_records_ahead_of_the_clock_is_refused_when_it_is_declared() -> None:
    with pytest.raises(Terminal, match=FARTHEST_AHEAD):
        counted(Topic(name="revenue", key="region", configs={FARTHEST_AHEAD: "60000"}), "1 h")


def test_the_dead_letters_of_a_topic_of_others_are_as_safe_as_all_that_is_ours() -> None:
    """Those of a source with one replica were refused in production, and nobody could declare them otherwise."""
    weak = replace(ORDERS, replication_factor=1, min_insync_replicas=1)
    letters = dead_letter_topic(weak)
    assert change_of(letters, None, "production", brokers=3).action == "create"
    assert (letters.replication_factor, letters.min_insync_replicas, letters.partitions) == (3, 2, ORDERS.partitions)
    assert dead_letter_topic(replace(ORDERS, replication_factor=5)).replication_factor == 5
    assert change_of(letters, None, "embedded", brokers=1).topic.replication_factor == 1
