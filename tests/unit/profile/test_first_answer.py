"""Asking again until there is an answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recount.profile.dag_runs import first_answer
from recount.runtime.errors import Terminal, Transient

LATE = Transient("took too long")


def one_by_one(*answers: int | Exception | None) -> Callable[[], int | None]:
    """Gives, or raises, each of ``answers`` once."""
    left = list(answers)

    def look() -> int | None:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


def test_the_first_answer_that_is_not_none_is_taken_even_if_it_is_false() -> None:
    assert first_answer(one_by_one(None, None, 0, 1), 60, LATE, poll_s=0) == 0


def test_a_passing_error_is_asked_past_and_any_other_goes_on() -> None:
    look = one_by_one(TimeoutError(), 1, TimeoutError(), Terminal("lost", remedy="find it"))
    assert first_answer(look, 60, LATE, poll_s=0, passing=(TimeoutError,)) == 1
    with pytest.raises(Terminal):
        first_answer(look, 60, LATE, poll_s=0, passing=(TimeoutError,))


def test_what_is_late_is_raised_when_no_answer_comes_in_time() -> None:
    with pytest.raises(Transient) as raised:
        first_answer(lambda: None, 0.05, LATE, poll_s=0.01)
    assert raised.value is LATE
