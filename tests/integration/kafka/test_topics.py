"""Declared topics: created once, kept in step, repaired where that is harmless, refused where it is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.eventually import eventually
from tests.integration.kafka.conftest import MakeTopic

from recount.declare.registry import Declarations
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.kafka.connection import Connection
from recount.kafka.offsets import require_topics
from recount.kafka.topic_drift import TopicChange, all_topics
from recount.kafka.topics_on_cluster import TopicsNotInStep, apply, ids_of, plan, short_lived_results
from recount.kafka.transaction import KafkaRecord, OutputTransaction
from recount.runtime.errors import RecountError, Terminal, Transient


@pytest.fixture
def orders(unique: Callable[[str], str]) -> Topic:
    return Topic(name=unique("orders"), key="order_id", partitions=2, retention_ms=3_600_000, owned=True)


def bring_in_step(connection: Connection, topic: Topic) -> TopicChange:
    """What was done; returns once the broker says that it is done, which takes it a moment."""
    admin = connection.admin()
    [change] = plan(admin, [topic], "embedded")
    apply(admin, [change])
    assert eventually(lambda: action(connection, topic) in ("in step", "drifted"), expected=True)
    return change


def action(connection: Connection, topic: Topic) -> str:
    [change] = plan(connection.admin(), [topic], "embedded")
    return change.action


def test_one_broker_lowers_replication_and_says_so(connection: Connection, orders: Topic) -> None:
    change = bring_in_step(connection, orders)
    assert (change.topic.replication_factor, change.topic.min_insync_replicas) == (1, 1)
    assert "1 replica," in change.note


def test_a_retention_that_is_too_short_is_reported_and_repaired(connection: Connection, orders: Topic) -> None:
    bring_in_step(connection, orders)
    declared = replace(orders, retention_ms=-1)
    change = bring_in_step(connection, declared)
    assert change.action == "repair"
    assert [(drift.setting, drift.actual, drift.declared) for drift in change.drift] == [
        ("retention.ms", "3600000", "-1")
    ]
    assert bring_in_step(connection, declared).action == "in step"


def test_a_topic_of_others_is_created_outside_the_embedded_profile_where_that_is_asked_for(
    connection: Connection, orders: Topic
) -> None:
    admin = connection.admin()
    declared = replace(orders, owned=False, replication_factor=1, min_insync_replicas=1)
    [missing] = plan(admin, [declared], "production")
    assert missing.action == "missing"
    with pytest.raises(TopicsNotInStep):
        apply(admin, [missing])
    apply(admin, plan(admin, [declared], "production", creates_others=True))
    assert eventually(lambda: action(connection, declared), "in step") == "in step"


def test_one_bad_topic_does_not_keep_the_others_from_being_handled(
    connection: Connection, orders: Topic, unique: Callable[[str], str]
) -> None:
    bring_in_step(connection, orders)
    drifted = replace(orders, name=unique("drifted"))
    bring_in_step(connection, drifted)
    impossible = replace(orders, name=unique("impossible"), configs={"retention.bytes": "many"})
    refused, missing = replace(orders, partitions=5), replace(orders, name=unique("missing"))
    admin = connection.admin()
    with pytest.raises(TopicsNotInStep) as left:
        apply(admin, plan(admin, [refused, impossible, replace(drifted, retention_ms=7_200_000), missing], "embedded"))
    assert left.value.problems.keys() == {orders.name, impossible.name}
    assert eventually(lambda: missing.name in admin.list_topics(timeout=10).topics, expected=True)
    declared = replace(drifted, retention_ms=7_200_000)
    assert eventually(lambda: action(connection, declared), "in step") == "in step"


def test_a_stream_whose_topics_are_missing_is_told_which_and_who_creates_them(
    connection: Connection, orders: Topic, unique: Callable[[str], str]
) -> None:
    bring_in_step(connection, orders)
    read, written = unique("read"), unique("written")
    with pytest.raises(Terminal) as refused:
        require_topics(connection, [orders.name, read], [written])
    assert refused.value.given == sorted([read, written])
    assert f"{read}: the stream reads it" in refused.value.remedy


def test_results_of_records_two_days_ahead_of_the_clock_are_published_where_that_is_declared(
    connection: Connection, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the topic says nothing, Kafka refuses what is more than an hour ahead, and the stream waits."""
    orders = Topic(name=unique("orders"), key="order_id", value=RecordSchema.of(order_id=STRING))

    def published(name: str, max_future: str) -> RecountError | None:
        revenue = Topic(name=unique(name), key="order_id", partitions=1)
        topology = Topology(name=name, sinks=[stream(orders).to(revenue)], max_future=max_future)
        topics = all_topics(Declarations(topologies={name: topology}, topics={}))
        bring_in_step(connection, next(topic for topic in topics if topic.name == revenue.name))
        ahead_ms = time.time_ns() // 1_000_000 + 2 * 86_400_000
        record = KafkaRecord(topic=revenue.name, key=b"k", value=b"v", headers=(), timestamp_ms=ahead_ms)
        place = (revenue.name, 0)
        transaction = OutputTransaction(connection, unique(name), transaction_timeout_ms=2_000)
        try:
            transaction.commit_once([record], start_offsets={place: 0}, end_offsets={place: 1}, batch=0, retry_for_s=1)
        except RecountError as error:
            return error
        finally:
            transaction.close()
        return None

    assert published("two-days", "2 d") is None
    said = published("an-hour", "1 h")

    def fails(*_: object) -> None:
        time.sleep(0.5)  # a delivery report comes, and the client says nothing of what is in it
        raise KafkaException(KafkaError(KafkaError._INCONSISTENT))

    monkeypatch.setattr(OutputTransaction, "_commit", fails)
    for refused in (said, published("another", "1 h")):
        assert isinstance(refused, Transient) and "recount topics --apply" in refused.remedy


@pytest.mark.parametrize("event_time", [None, "at"])
def test_a_sink_that_would_not_keep_results_of_the_first_records_is_told(
    connection: Connection, make_topic: MakeTopic, unique: Callable[[str], str], event_time: str | None
) -> None:
    """By the records' own times, or by the field that says them; an undecodable record says none."""
    name, year_2013_ms, now_ms = make_topic("orders"), 1_356_998_400_000, time.time_ns() // 1_000_000
    producer = connection.producer()
    producer.produce(name, value=b"no record", timestamp=now_ms)
    first = b'{"at": %d}' % (year_2013_ms if event_time else now_ms)
    producer.produce(name, value=first, timestamp=now_ms if event_time else year_2013_ms)
    assert producer.flush(30) == 0
    orders = Topic(name=name, key="id", value=RecordSchema.of(at=LONG), event_time=event_time)
    kept, deleted = Topic(name=unique("kept"), key="id", retention_ms=-1), Topic(name=unique("deleted"), key="id")
    topology = Topology(name="old", sinks=[stream(orders).to(kept), stream(orders).to(deleted)])
    [warning] = short_lived_results(connection, [topology])
    assert warning.startswith(f"{name} has records of 2013-01-01")
    assert f"{deleted.name} keeps results for 7 d" in warning
    assert "retention_ms=-1" in warning
    gone = replace(orders, name=unique("gone"))
    assert list(short_lived_results(connection, [Topology(name="new", sinks=[stream(gone).to(deleted)])])) == []


def test_a_topic_that_is_made_anew_has_another_id(connection: Connection, make_topic: MakeTopic) -> None:
    orders, users = make_topic("orders", partitions=2), make_topic("users")
    found = ids_of(connection, [orders, users, orders])
    assert found.keys() == {orders, users}
    assert found[orders] != found[users]
    connection.producer().produce(orders, value=b"v")
    assert ids_of(connection, [orders]) == {orders: found[orders]}

    admin = connection.admin()
    admin.delete_topics([orders])[orders].result(15)
    assert eventually(lambda: ids_of(connection, [orders, users]), {users: found[users]}) == {users: found[users]}
    make_topic("orders", partitions=2)
    assert ids_of(connection, [orders])[orders] != found[orders]
