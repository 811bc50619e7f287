"""The lag of Kafka's own tool, asked for all streams at once and seldom."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from recount.kafka.lags import LagWatch, PartitionLag, StreamLag
from recount.runtime.errors import Transient


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
