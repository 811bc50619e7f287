"""What the pages read of the brokers: statuses and their history, from the topics that a lease writes to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.statuses import a_status

from recount.kafka.connection import Connection
from recount.kafka.leases import Lease
from recount.kafka.status import StatusHistory
from recount.pages.stream_lines import BrokerWatch
from recount.runtime.errors import Terminal


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
