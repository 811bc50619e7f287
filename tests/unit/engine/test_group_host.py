"""What the driver of a group does about orders, and how its streams share it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from recount.engine.driver.group_host import answer_to
from recount.engine.driver.stream_query import Turns


@pytest.mark.parametrize(
    ("last_epoch", "is_at_work", "has_spoken", "answer"),
    [
        (3, False, False, "run"),
        (3, True, False, "wait"),
        (3, True, True, "end"),
        (4, True, True, "done"),
        (4, False, False, "done"),
        (2, False, False, "run"),
    ],
    ids=["not at work", "starting", "to be run anew", "started since", "ended since", "a status that was lost"],
)
def test_a_stream_is_run_once_for_an_order_and_ended_first_where_a_new_run_is_wanted(
    last_epoch: int, is_at_work: bool, has_spoken: bool, answer: str
) -> None:
    assert answer_to(3, last_epoch, is_at_work=is_at_work, has_spoken=has_spoken) == answer


def test_only_so_many_batches_are_processed_at_once() -> None:
    turns, at_once, most = Turns(2, patience_s=30), [0], [0]
    busy = threading.Lock()

    def batch() -> None:
        with turns():
            with busy:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            threading.Event().wait(0.01)
            with busy:
                at_once[0] -= 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(batch) for _ in range(24)]:
            done.result()
    assert most[0] == 2


def test_a_batch_that_hangs_does_not_hold_up_the_other_streams_for_good() -> None:
    turns = Turns(1, patience_s=0.05)
    with turns():
        with turns():
            pass
        with turns():
            pass
    with turns():
        assert not turns._free.acquire(blocking=False)


def test_a_failing_batch_gives_its_turn_back() -> None:
    turns = Turns(1, patience_s=30)
    with pytest.raises(ValueError, match="broken"), turns():
        raise ValueError("broken")
    with turns():
        pass
