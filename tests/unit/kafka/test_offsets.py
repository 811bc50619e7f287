"""The offsets nobody saw, as ranges; lags, asked for all streams at once and seldom."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from recount.kafka import offsets
from recount.kafka.connection import Connection
from recount.kafka.lags import LagWatch, PartitionLag, StreamLag
from recount.kafka.offsets import LogRange, Partition, UnreadRecordsGone, deleted_before, require_unread_kept
from recount.runtime.errors import Transient

NOWHERE = Connection(bootstrap_servers="127.0.0.1:1")
ORDERS, USERS = ("orders", 0), ("users", 0)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders are kept from 50 to 90, users from 0 to 0."""
    spans = {ORDERS: LogRange(start=50, end=90), USERS: LogRange(start=0, end=0)}
    monkeypatch.setattr(offsets, "log_ranges", lambda _connection, asked, _level: {key: spans[key] for key in asked})


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("starts", [{}, {ORDERS: 50, USERS: 0}, {ORDERS: 90}])
def test_a_stream_goes_on_where_kafka_holds_all_that_it_has_not_read(starts: Mapping[Partition, int]) -> None:
    require_unread_kept(NOWHERE, "revenue", starts)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("starts", "named"), [({ORDERS: 49}, "orders-0"), ({ORDERS: 91}, "orders-0"), ({USERS: 1}, "users-0")]
)
def test_a_stream_whose_unread_records_have_left_kafka_is_told_to_begin_anew(
    starts: Mapping[Partition, int], named: str
) -> None:
    """It stood still for longer than the topic is kept, or the topic was cut."""
    with pytest.raises(UnreadRecordsGone) as refused:
        require_unread_kept(NOWHERE, "revenue", starts)
    assert named in refused.value.given
    assert "recount reset revenue" in refused.value.remedy


@pytest.mark.usefixtures("kept")
def test_a_new_stream_says_which_records_were_deleted_before_it_could_read_them() -> None:
    warning = deleted_before(NOWHERE, "revenue", [ORDERS, USERS])
    assert warning is not None
    assert "revenue begins with what Kafka still has; it has deleted the offsets of orders-0 before 50. " in warning
    assert deleted_before(NOWHERE, "revenue", [USERS]) is None


class Brokers:
    """Answer with the number of the question, or not at all."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.are_away = False

    def __call__(self, topics: Mapping[str, Collection[str]]) -> Mapping[str, StreamLag]:
        self.asked.append(sorted(topics))
        if self.are_away:
            raise Transient("no answer")
        return dict.fromkeys(topics, StreamLag(at_ms=len(self.asked)))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_an_open_transaction_hides_is_lag_that_cannot_be_read() -> None:
    part = PartitionLag(committed=10, read=10, decided=12, end=15)
    assert (part.lag, part.readable, part.is_blocked) == (5, 2, False)
    read = PartitionLag(committed=12, read=12, decided=12, end=15)
    assert (read.lag, read.readable, read.is_blocked) == (3, 0, True)
    assert (StreamLag(at_ms=0, partitions={("a", 0): part, ("a", 1): read}).records) == 8


def test_all_who_ask_within_seconds_get_the_answer_to_one_question() -> None:
    brokers, clock = Brokers(), Clock()
    watch = LagWatch(brokers, max_age_s=2.0, clock=clock)
    for stream in ("a", "b"):
        watch.follow(stream, ["orders"])
    first = watch.now()
    clock.now_s = 1.999
    assert watch.now() is first
    clock.now_s = 2.0
    assert watch.now()["a"].at_ms == 2
    assert brokers.asked == [["a", "b"], ["a", "b"]]


def test_while_the_brokers_do_not_answer_the_last_answer_keeps_its_time() -> None:
    brokers = Brokers()
    watch = LagWatch(brokers, max_age_s=0)
    watch.follow("a", ["orders"])
    known = watch.now()
    brokers.are_away = True
    with pytest.raises(Transient):
        watch.now()
    assert watch.last == known


def test_a_stream_that_is_followed_is_asked_about_at_once_and_one_that_is_not_never() -> None:
    brokers = Brokers()
    watch = LagWatch(brokers, max_age_s=60, clock=Clock())
    watch.follow("a", ["orders"])
    watch.now()
    watch.follow("b", ["clicks"])
    assert sorted(watch.now()) == ["a", "b"]
    watch.forget("a")
    assert sorted(watch.now()) == ["b"]
