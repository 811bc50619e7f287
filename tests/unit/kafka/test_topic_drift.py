"""Topics of others are never altered; our own are repaired where no record is lost by it, and what follows is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recount.declare.aggregates import count, last
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, stream, table
from recount.declare.operators.keys_and_fields import in_several_partitions
from recount.declare.operators.nodes import KEY
from recount.declare.registry import Declarations
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import FARTHEST_AHEAD, TIMESTAMP_TYPE, Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling
from recount.kafka.topic_drift import (
    Action,
    Drift,
    Found,
    TopicChange,
    all_topics,
    change_of,
    dead_letter_topic,
    settings_of,
)
from recount.kafka.topics_on_cluster import raised_partitions, table_of
from recount.runtime.errors import InvalidDeclaration, RecountError, Terminal, Transient
from recount.runtime.settings import Profile

DAY_MS = 86_400_000
ORDERS = Topic(name="orders", key="order_id", retention_ms=7 * DAY_MS, value=RecordSchema.of(region=STRING))
OURS = replace(ORDERS, owned=True)
WEAK = replace(ORDERS, replication_factor=1, min_insync_replicas=1)
AS_DECLARED = Found(
    partitions=4,
    factors=(3,),
    settings={"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "min.insync.replicas": "2"},
)
IS_WEAK = Found(partitions=4, factors=(1,), settings={**AS_DECLARED.settings, "min.insync.replicas": "1"})
REFUSED = Terminal("Kafka refused describing topic orders")


def found(retention_ms: int, **others: object) -> Found:
    return replace(AS_DECLARED, settings={**AS_DECLARED.settings, "retention.ms": str(retention_ms)}, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", ["production", "embedded"])
@pytest.mark.parametrize("actual", [found(30 * DAY_MS), found(DAY_MS), found(-1, partitions=9, factors=(1,))])
def test_a_topic_of_others_is_never_altered_whatever_it_is_like(profile: Profile, actual: Found) -> None:
    change = change_of(ORDERS, actual, profile, brokers=3)
    assert (change.action, change.problem) == ("drifted", None)
    assert "retention.ms" in [drift.setting for drift in change.drift]


@pytest.mark.parametrize(
    ("topic", "actual", "profile", "creates_others", "action"),
    [
        (ORDERS, None, "embedded", False, "create"),
        (ORDERS, None, "production", False, "missing"),
        (ORDERS, None, "production", True, "create"),
        (ORDERS, found(DAY_MS), "production", True, "drifted"),
        (WEAK, None, "production", True, "create"),
        (WEAK, IS_WEAK, "production", False, "in step"),
        (replace(WEAK, owned=True), None, "production", True, "refuse"),
        (replace(WEAK, owned=True), IS_WEAK, "production", False, "refuse"),
        (OURS, None, "production", False, "create"),
        (OURS, AS_DECLARED, "production", False, "in step"),
        (OURS, found(DAY_MS), "production", False, "repair"),
        (OURS, found(7 * DAY_MS + 1), "production", False, "refuse"),
        (OURS, found(-1), "production", False, "refuse"),
        (ORDERS, REFUSED, "production", False, "unknown"),
    ],
)
def test_a_topic_is_created_repaired_or_refused_by_whose_it_is_and_what_would_be_lost(
    topic: Topic, actual: Found | Terminal | None, profile: Profile, creates_others: bool, action: Action
) -> None:
    change = change_of(topic, actual, profile, brokers=3, creates_others=creates_others)
    assert (change.topic, change.action) == (topic, action)
    assert isinstance(change.problem, Terminal) is (action in ("missing", "refuse", "unknown"))


def test_a_refusal_names_what_it_refuses_once_and_the_tool_that_adds_partitions() -> None:
    change = change_of(replace(OURS, partitions=6), AS_DECLARED, "production", brokers=3)
    assert (change.action, "; ".join(change.reasons).count("partitions is 4, declared 6")) == ("refuse", 1)
    assert "kafka-topics --alter" in change.reasons[-1]


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
    letters = dead_letter_topic(WEAK)
    assert change_of(letters, None, "production", brokers=3).action == "create"
    assert (letters.replication_factor, letters.min_insync_replicas, letters.partitions) == (3, 2, ORDERS.partitions)
    assert dead_letter_topic(replace(ORDERS, replication_factor=5)).replication_factor == 5
    assert change_of(letters, None, "embedded", brokers=1).topic.replication_factor == 1


NO_LEADER = Transient("no leader")
MISSING = Terminal("topic bookings does not exist")


def change(name: str, action: Action, problem: RecountError | None = None) -> TopicChange:
    return TopicChange(topic=Topic(name=name, key="id", owned=True), action=action, problem=problem)


CHANGES = [
    change("orders", "create"),
    change("rides", "repair"),
    change("zones", "in step"),
    change("taxis", "create"),
    change("bookings", "missing", MISSING),
]


def shown(problems: dict[str, RecountError] | None = None) -> dict[str, tuple[str, str]]:
    """Action and reason by topic."""
    columns = [list(column.cells) for column in table_of(CHANGES, problems).columns]
    return {str(row[0]): (str(row[4]), str(row[5])) for row in zip(*columns, strict=True)}


def test_a_plan_says_what_is_to_be_done_and_after_the_changes_what_was_done() -> None:
    assert {name: action for name, (action, _) in shown().items()} == {one.topic.name: one.action for one in CHANGES}
    assert shown({"taxis": NO_LEADER, "bookings": MISSING}) == {
        "orders": ("created", ""),
        "rides": ("repaired", ""),
        "zones": ("in step", ""),
        "taxis": ("create", "no leader"),
        "bookings": ("missing", "topic bookings does not exist"),
    }


THREE = Topic(name="orders", key="id", value=RecordSchema.of(n=LONG), partitions=3)


def written(flow: RecordStream | Table) -> Topology:
    return Topology(name="firsts", sinks=[flow.to(Topic(name="out", key="id"))])


FIRSTS = written(stream(THREE).deduplicate(KEY, horizon="1 h"))
PAID = stream(Topic(name="paid", key="id", value=RecordSchema.of(paid=LONG)))
HOUR = stream(THREE).windowed_by(tumbling("1 h", grace="0 s"))
FIRST_WINS = "first of each __key by offset within 1 h: the record that was read first wins"


@pytest.mark.parametrize(
    ("actual", "declared", "said"),
    [("4", "3", "orders has 4 partitions, 3 are declared"), ("3", "4", "orders has 3 partitions, 4 are declared")],
)
def test_streams_that_read_a_topic_with_another_number_of_partitions_are_named(
    actual: str, declared: str, said: str
) -> None:
    drift = Drift(setting="partitions", actual=actual, declared=declared)
    change = TopicChange(topic=replace(THREE, partitions=int(declared)), action="drifted", drift=(drift,))
    lines = list(raised_partitions([change], [FIRSTS], {}))
    assert said in lines[0]
    assert "firsts: a key whose records lie in two partitions" in lines[1]
    assert FIRST_WINS in lines[2]


def test_a_topic_with_more_partitions_than_the_last_batch_knew_is_named_until_a_batch_knows_them() -> None:
    change = TopicChange(topic=THREE, action="in step")
    lines = list(raised_partitions([change], [FIRSTS], {("firsts", "orders"): 2}))
    assert "its last batch knew 2 partitions" in lines[1]
    assert not list(raised_partitions([change], [FIRSTS], {("firsts", "orders"): 3}))
    assert not list(raised_partitions([change], [FIRSTS], {}))


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        (table(THREE), "its row is the one that was read last"),
        (table(THREE, versioned=True), None),
        (PAID.join_table(table(THREE)), None),  # as of the event: event time decides
        (PAID.join_table(table(THREE).filter(col("n") > 0).select(m=col("n"))), None),
        (PAID.join_table(table(THREE), as_of="arrival"), "its row is the one that was read last"),
        (stream(THREE).in_order(grace="1 s").to_table(), None),
        (stream(THREE).process(lambda _row, _state: [], m=LONG), "the stream ends"),
        (HOUR.aggregate(m=count()).emit_final(), None),
        (HOUR.aggregate(m=last("n")).emit_final(), "last take the values of the lower partition first"),
        (HOUR.aggregate(m=count()).emit_each_record(), "its updates leave in the order"),
    ],
)
def test_what_follows_is_said_of_each_operator_to_which_order_means_something(
    flow: RecordStream | Table, said: str | None
) -> None:
    lines = in_several_partitions(written(flow), "orders")
    assert [said in line for line in lines] == ([] if said is None else [True])
    assert not in_several_partitions(written(flow), "payments")


def test_a_table_that_is_looked_up_as_of_the_event_and_written_as_well_takes_the_order_of_reading() -> None:
    rows = table(THREE)
    sinks = [PAID.join_table(rows).to(Topic(name="out", key="id")), rows.to(Topic(name="rows", key="id"))]
    lines = in_several_partitions(Topology(name="both", sinks=sinks), "orders")
    assert ["its row is the one that was read last" in line for line in lines] == [True]
