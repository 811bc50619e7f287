"""A driver listens to the control topic for as long as it runs, whatever is in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.eventually import eventually
from tests.integration.kafka.conftest import MakeTopic
from tests.statuses import a_status

from recount.kafka.compacted import CompactedView
from recount.kafka.connection import Connection, Fenced
from recount.kafka.leases import ControlChannel, Lease, StandingOrders, request_stop, withdraw_stop
from recount.kafka.offsets import log_ranges
from recount.kafka.status import LARGEST_EPOCH, StatusBoard, StatusHistory, StreamStatus
from recount.pages.stream_lines import BrokerWatch
from recount.runtime.errors import Terminal


def test_a_topic_that_has_lost_its_leader_says_nothing_and_is_asked_again(
    connection: Connection, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = StandingOrders(connection, make_topic("control", cleanup_policy="compact", retention_ms=-1))
    channel = ControlChannel(connection, "orders", 1, shared=orders)
    assert not channel.stop_requested()
    request_stop(connection, "orders", 1, topic=orders._view._topic)
    lost = Mock(side_effect=KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)))
    with monkeypatch.context() as away:
        away.setattr(orders._view, "_consumer", Mock(get_watermark_offsets=lost))
        assert not channel.stop_requested()
    assert channel.stop_requested()
    orders.close()


def test_a_record_with_an_empty_value_is_read_like_any_other(connection: Connection, make_topic: MakeTopic) -> None:
    """Python takes such a message for false, as it does one without a value: the withdrawal of an order."""
    topic = make_topic("control", cleanup_policy="compact", retention_ms=-1)
    producer = connection.producer()
    producer.produce(topic, key="orders", value=b"")
    assert producer.flush(10) == 0
    view = CompactedView(connection, topic)
    assert view.refresh() == {"orders": b""}
    view.close()


GARBAGE = (
    (b"\xff\xfe", b"{}"),
    *(
        (b"orders", value)
        for value in (
            *(b"\xff", b"{", b'{"command": "dance"}', b"[" * 100_000),
            b'{"command": "stop", "lease_epoch": Infinity}',
        )
    ),
)


def put_garbage(connection: Connection, topic: str) -> None:
    """Records that are not UTF-8, no JSON, or neither a status nor an order, after whatever is there."""
    producer = connection.producer()
    for key, value in GARBAGE:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(10) == 0


def test_what_is_no_order_is_passed_over_and_named_and_the_order_before_it_stands(
    connection: Connection, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic("control", cleanup_policy="compact", retention_ms=-1)
    request_stop(connection, "orders", 3, topic=topic)
    written = log_ranges(connection, [(topic, 0)])[topic, 0].end
    put_garbage(connection, topic)
    channel = ControlChannel(connection, "orders", lease_epoch=3, topic=topic)
    with caplog.at_level(logging.WARNING):
        assert channel.stop_requested()
    warned = [record.getMessage() for record in caplog.records if record.name == "recount.kafka.compacted"]
    assert [said.split(":")[0] for said in warned] == [
        f"ignored {topic}-0@{offset}" for offset in range(written, written + len(GARBAGE))
    ]
    channel.close()


def test_what_is_no_status_is_passed_over_and_the_status_before_it_stands(
    connection: Connection, make_topic: MakeTopic
) -> None:
    topics = [make_topic(name, cleanup_policy="compact", retention_ms=-1) for name in ("status", "history")]
    lease = Lease.acquire(connection, "orders", status_topic=topics[0], history_topic=topics[1])
    said = a_status(stream="orders")
    lease.publish(said)
    put_garbage(connection, topics[0])
    board = StatusBoard(connection, topics[0])
    assert board.latest() == {"orders": said}
    board.close()
    successor = Lease.acquire(connection, "orders", status_topic=topics[0], history_topic=topics[1])
    assert successor.epoch == 2


@contextmanager
def open_transaction(connection: Connection, name: str, topic: str, key: str = "stranger") -> Iterator[None]:
    """Somebody else's transaction with a record in ``topic``; aborted at the end."""
    producer = connection.producer({"transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, key=key, value=b"{}")
    assert producer.flush(10) == 0
    try:
        yield
    finally:
        producer.abort_transaction(20)


def test_an_open_transaction_on_the_control_topic_hides_no_order(
    connection: Connection, make_topic: MakeTopic, unique: Callable[[str], str]
) -> None:
    topic = make_topic("control", cleanup_policy="compact", retention_ms=-1)
    channel = ControlChannel(connection, "orders", lease_epoch=1, topic=topic)
    with open_transaction(connection, unique("stranger"), topic):
        assert not channel.stop_requested()
        request_stop(connection, "orders", 1, topic=topic)
        assert channel.stop_requested()
        withdraw_stop(connection, "orders", topic=topic)
        assert not channel.stop_requested()
    request_stop(connection, "orders", 2, topic=topic)
    assert channel.stop_requested()
    channel.close()


def test_an_open_transaction_on_the_status_topic_hides_no_lease_from_the_next(
    connection: Connection, make_topic: MakeTopic, unique: Callable[[str], str]
) -> None:
    topics = [make_topic(name, cleanup_policy="compact", retention_ms=-1) for name in ("status", "history")]
    with open_transaction(connection, unique("stranger"), topics[0]):
        lease = Lease.acquire(connection, "orders", status_topic=topics[0], history_topic=topics[1])
        lease.publish(a_status(stream="orders"))
        board = StatusBoard(connection, topics[0])
        assert board.of("orders") is None
        assert str(board.hidden("orders")).startswith(f"{topics[0]}-0@")
        successor = Lease.acquire(connection, "orders", status_topic=topics[0], history_topic=topics[1])
        assert successor.epoch == 2
    assert eventually(lambda: board.hidden("orders"), None) is None
    assert board.of("orders") == a_status(stream="orders")
    board.close()


@pytest.mark.parametrize(
    ("forged", "passed_over", "next_epoch"),
    [(2**63 - 1, True, 2), (LARGEST_EPOCH + 1, True, 2), (LARGEST_EPOCH, False, 1), (7, False, 8)],
)
def test_the_status_of_the_next_lease_stands_after_one_with_a_forged_epoch(
    connection: Connection, make_topic: MakeTopic, forged: int, passed_over: bool, next_epoch: int
) -> None:
    topics = [make_topic(name, cleanup_policy="compact", retention_ms=-1) for name in ("status", "history")]
    lease = Lease.acquire(connection, "orders", status_topic=topics[0], history_topic=topics[1])
    said, lie = a_status(stream="orders"), a_status(stream="orders", lease_epoch=forged, state="stopped")
    lease.publish(said)
    producer = connection.producer()
    producer.produce(topics[0], key="orders", value=lie.to_json())
    assert producer.flush(10) == 0
    board = StatusBoard(connection, topics[0])
    assert eventually(lambda: board.of("orders"), said if passed_over else lie) == (said if passed_over else lie)
    successor = Lease.acquire(connection, "orders", status_topic=topics[0], history_topic=topics[1])
    assert successor.epoch == next_epoch
    truth = a_status(stream="orders", lease_epoch=next_epoch)
    successor.publish(truth)
    assert eventually(lambda: board.of("orders"), truth) == truth
    board.close()


def status(lease: Lease, **said: object) -> StreamStatus:
    return a_status(
        **{"stream": lease.stream, "driver_id": f"driver-{lease.epoch}", "lease_epoch": lease.epoch, **said}
    )


@pytest.fixture
def stream(unique: Callable[[str], str]) -> str:
    return unique("stream")


def test_a_former_holder_can_no_longer_speak(connection: Connection, stream: str) -> None:
    former = Lease.acquire(connection, stream)
    former.publish(status(former))
    holder = Lease.acquire(connection, stream)
    holder.publish(status(holder))
    with pytest.raises(Fenced):
        former.publish(status(former, state="failed"))
    board = StatusBoard(connection)
    assert eventually(lambda: board.of(stream), status(holder)) == status(holder)
    board.close()


def test_a_status_of_another_lease_is_refused(connection: Connection, stream: str) -> None:
    lease = Lease.acquire(connection, stream)
    with pytest.raises(Terminal):
        lease.publish(status(lease, lease_epoch=lease.epoch + 1))


def test_a_stop_reaches_the_driver_it_was_meant_for_and_no_later_one(connection: Connection, stream: str) -> None:
    second, third = (ControlChannel(connection, stream, epoch) for epoch in (2, 3))
    request_stop(connection, stream, 1)
    assert not second.stop_requested()
    request_stop(connection, stream, 2)
    assert second.stop_requested()
    assert not third.stop_requested()
    second.close()
    third.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_each_refresh_reads_on_behind_what_transactions_leave_in_the_topic(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    stream, other = unique("revenue"), unique("other")
    history = StatusHistory(connection, [stream])
    lease, neighbour = Lease.acquire(connection, stream), Lease.acquire(connection, other)
    for lag in (5, 7):
        neighbour.publish(a_status(stream=other, lag=1, lease_epoch=neighbour.epoch))
        lease.publish(a_status(stream=stream, lag=lag, lease_epoch=lease.epoch))
        found = history.refresh(now_ms())
        assert found.keys() == {stream}
        assert found[stream][-1].status.lag == lag
    assert history.refresh(now_ms()) == found
    history.close()


def test_a_watch_says_statuses_history_and_lags(connection: Connection, unique: Callable[[str], str]) -> None:
    stream = unique("revenue")
    watch = BrokerWatch(connection, {stream: ["recount.status"]}, patience_s=60)
    assert stream not in watch().statuses
    lease = Lease.acquire(connection, stream)
    lease.publish(a_status(stream=stream, lag=1_000_000, lease_epoch=lease.epoch))
    deadline = time.monotonic() + 60
    while not (said := watch()).samples.get(stream):
        assert time.monotonic() < deadline, said
    assert said.samples[stream][-1].status.lag == 1_000_000
    assert 0 < said.statuses[stream].lag == said.lags[stream].records < 1_000_000, (
        "all of the topic, as the brokers say"
    )
    assert said.problems == []


def test_topics_that_are_not_there_yet_are_named_with_the_remedy(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    elsewhere = replace(connection, prefix=unique("nobody"))
    [problem] = BrokerWatch(elsewhere, {"revenue": []}, patience_s=60)().problems
    assert "topic does not exist" in problem
    assert f"{elsewhere.prefix}.status" in problem
    assert "recount topics --apply" in problem
    with pytest.raises(Terminal):
        StatusHistory(elsewhere, ["revenue"]).refresh(now_ms())
