"""Declared topics: created once, kept in step, repaired where that is harmless, refused where it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from recount.core.topics import Topic
from recount.kafka.connection import Connection
from recount.kafka.topics import TopicChange, UnsafeDrift, WeakReplication, apply, plan


@pytest.fixture
def orders(unique: Callable[[str], str]) -> Topic:
    return Topic(name=unique("orders"), key="order_id", partitions=2, retention_ms=3_600_000)


def bring_in_step(connection: Connection, topic: Topic) -> TopicChange:
    admin = connection.admin()
    [change] = plan(admin, [topic], "embedded")
    apply(admin, [change])
    return change


def test_a_second_run_changes_nothing(connection: Connection, orders: Topic) -> None:
    assert bring_in_step(connection, orders).action == "create"
    assert bring_in_step(connection, orders).action == "in step"


def test_one_broker_lowers_replication_and_says_so(connection: Connection, orders: Topic) -> None:
    change = bring_in_step(connection, orders)
    assert (change.topic.replication_factor, change.topic.min_insync_replicas) == (1, 1)
    assert "1 replica(s)" in change.note


@pytest.mark.parametrize(("before_ms", "declared_ms"), [(3_600_000, -1), (-1, 3_600_000)])
def test_drifted_retention_is_reported_and_repaired(
    connection: Connection, orders: Topic, before_ms: int, declared_ms: int
) -> None:
    bring_in_step(connection, replace(orders, retention_ms=before_ms))
    declared = replace(orders, retention_ms=declared_ms)
    change = bring_in_step(connection, declared)
    assert change.action == "repair"
    assert [(drift.setting, drift.actual, drift.declared) for drift in change.drift] == [
        ("retention.ms", str(before_ms), str(declared_ms))
    ]
    assert bring_in_step(connection, declared).action == "in step"


def test_a_further_setting_is_kept_as_declared(connection: Connection, orders: Topic) -> None:
    bring_in_step(connection, orders)
    declared = replace(orders, configs={"max.message.bytes": "2000000"})
    assert [drift.setting for drift in bring_in_step(connection, declared).drift] == ["max.message.bytes"]
    assert bring_in_step(connection, declared).action == "in step"


@pytest.mark.parametrize("partitions", [1, 3])
def test_another_number_of_partitions_is_refused(connection: Connection, orders: Topic, partitions: int) -> None:
    bring_in_step(connection, orders)
    with pytest.raises(UnsafeDrift) as refusal:
        bring_in_step(connection, replace(orders, partitions=partitions))
    assert orders.name in refusal.value.given


@pytest.mark.parametrize(
    ("actual", "declared", "action"),
    [
        ("delete", "compact", "refuse"),
        ("compact", "delete", "refuse"),
        ("compact", "compact,delete", "refuse"),
        ("compact,delete", "compact", "repair"),
        ("compact,delete", "delete", "repair"),
    ],
)
def test_a_cleanup_policy_may_only_be_changed_to_one_that_keeps_more(
    connection: Connection, orders: Topic, actual: str, declared: str, action: str
) -> None:
    bring_in_step(connection, replace(orders, cleanup_policy=actual))  # type: ignore[arg-type]
    [change] = plan(connection.admin(), [replace(orders, cleanup_policy=declared)], "embedded")  # type: ignore[arg-type]
    assert change.action == action


def test_nothing_is_changed_when_one_topic_is_refused(
    connection: Connection, orders: Topic, unique: Callable[[str], str]
) -> None:
    bring_in_step(connection, orders)
    other = replace(orders, name=unique("other"))
    admin = connection.admin()
    with pytest.raises(UnsafeDrift):
        apply(admin, plan(admin, [other, replace(orders, partitions=5)], "embedded"))
    assert other.name not in admin.list_topics(timeout=10).topics


@pytest.mark.parametrize(("factor", "in_sync"), [(1, 1), (2, 2), (3, 1)])
def test_weak_replication_is_refused_in_production(
    connection: Connection, orders: Topic, factor: int, in_sync: int
) -> None:
    with pytest.raises(WeakReplication):
        plan(
            connection.admin(), [replace(orders, replication_factor=factor, min_insync_replicas=in_sync)], "production"
        )


def test_three_replicas_two_in_sync_are_enough_in_production(connection: Connection, orders: Topic) -> None:
    [change] = plan(connection.admin(), [orders], "production")
    assert (change.action, change.note) == ("create", "")


def test_replication_that_is_not_as_declared_is_refused(connection: Connection, orders: Topic) -> None:
    bring_in_step(connection, orders)
    [change] = plan(connection.admin(), [orders], "production")
    assert change.action == "refuse"
    assert "replication factor" in [drift.setting for drift in change.drift]
