"""Progress counts from when there was something to do, and goes on with what is done: steps, records, tasks."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from recount.engine.driver.signs_of_work import SignsOfWork, worked


@dataclass
class Clock:
    """Milliseconds that a test sets."""

    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signs(clock: Clock) -> SignsOfWork:
    """Of a stream that has done its last batch at 0 s and read all there was."""
    made = SignsOfWork(clock)
    with made.batch():
        pass
    made.unread(0, at_ms=1_000)
    return made


def test_an_idle_stream_waits_for_nothing_however_long(signs: SignsOfWork, clock: Clock) -> None:
    clock.now_ms = 269_663
    signs.look()
    signs.unread(0, at_ms=269_000)
    assert signs.waiting_since_ms is None


def test_a_stream_waits_since_a_record_came_and_not_since_its_last_batch(signs: SignsOfWork, clock: Clock) -> None:
    clock.now_ms = 269_663
    signs.unread(1, at_ms=269_500)
    assert signs.waiting_since_ms == 269_500
    clock.now_ms = 400_000
    signs.unread(7, at_ms=399_000)
    assert signs.waiting_since_ms == 269_500, "no batch has begun since: more records are no progress"


def test_a_batch_counts_from_its_last_sign_of_work(signs: SignsOfWork, clock: Clock) -> None:
    signs.unread(1, at_ms=10_000)
    clock.now_ms = 12_000
    with signs.batch():
        assert signs.waiting_since_ms == 12_000
        clock.now_ms = 100_000
        signs.look()
        assert signs.waiting_since_ms == 12_000, "time alone is no work"
        worked()
        clock.now_ms = 200_000
        signs.look()
        assert signs.waiting_since_ms == 200_000, "a record was handled since the last look"
        clock.now_ms = 300_000
        signs.look(tasks=("stage 1", 3))
        assert signs.waiting_since_ms == 300_000, "Spark's tasks have come on"
        clock.now_ms = 400_000
        signs.look(tasks=("stage 1", 3))
        signs.look(tasks=None)
        signs.look(tasks=("stage 1", 3))
        assert signs.waiting_since_ms == 300_000, "they have not, or Spark was not asked"


def test_what_was_unread_before_a_batch_ended_may_be_read_by_now(signs: SignsOfWork, clock: Clock) -> None:
    clock.now_ms = 20_000
    signs.unread(5, at_ms=19_000)
    with signs.batch():
        clock.now_ms = 50_000
    signs.unread(5, at_ms=19_000)
    assert signs.waiting_since_ms is None, "the brokers were asked before the batch ended"
    clock.now_ms = 500_000
    assert signs.waiting_since_ms is None, "brokers that have not answered since say nothing"
    signs.unread(2, at_ms=60_000)
    assert signs.waiting_since_ms == 60_000


def test_a_stream_with_a_backlog_waits_since_its_last_batch_at_most(signs: SignsOfWork, clock: Clock) -> None:
    for begun_ms in range(10_000, 100_000, 10_000):
        signs.unread(1_000, at_ms=begun_ms - 1_000)
        clock.now_ms = begun_ms
        with signs.batch():
            clock.now_ms = begun_ms + 5_000
        signs.unread(900, at_ms=begun_ms + 6_000)
        assert signs.waiting_since_ms == begun_ms + 6_000


def test_a_record_of_another_stream_is_no_sign_of_this_one(signs: SignsOfWork, clock: Clock) -> None:
    """Streams of a group are threads of one process."""
    other = SignsOfWork(clock)
    entered, left = threading.Event(), threading.Event()

    def works() -> None:
        with other.batch():
            worked()
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=works)
    with signs.batch():
        signs.look()
        thread.start()
        assert entered.wait(10)
        clock.now_ms = 70_000
        for each in (signs, other):
            each.look()
        assert (signs.waiting_since_ms, other.waiting_since_ms) == (0, 70_000)
        left.set()
        thread.join()


def test_work_outside_a_batch_is_nobody_s() -> None:
    worked()


def test_a_batch_that_fails_is_at_hand_no_more(signs: SignsOfWork) -> None:
    with pytest.raises(RuntimeError), signs.batch():
        raise RuntimeError
    assert (signs.batch_begun_ms, signs.waiting_since_ms) == (None, None)
