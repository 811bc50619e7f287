"""A call in a thread of its own: its result in time, or why there is none."""

from __future__ import annotations

import time
from threading import Event

import pytest

from recount.runtime.errors import Terminal
from recount.serve.broker_reading import PatientCall


def test_a_call_in_time_is_its_result_and_no_problem() -> None:
    ask: PatientCall[int] = PatientCall("brokers", 60)
    assert ask(lambda: 5) == 5
    assert ask.problem is None


def test_who_asks_while_an_overdue_call_runs_does_not_wait() -> None:
    ask: PatientCall[bool] = PatientCall("brokers", 0.3)
    goes_on = Event()
    assert ask(goes_on.wait) is None
    assert ask.problem == "the brokers have not answered within 0.3 s"
    began = time.monotonic()
    assert ask(lambda: True) is None
    assert time.monotonic() - began < 0.2
    goes_on.set()
    deadline = time.monotonic() + 30
    while ask(lambda: True) is None:
        assert time.monotonic() < deadline
    assert ask.problem is None


def test_an_error_with_a_remedy_is_the_problem_and_another_one_is_raised() -> None:
    ask: PatientCall[int] = PatientCall("brokers", 60)

    def refuse() -> int:
        raise Terminal("topic does not exist", given="recount.status", remedy="run the topics DAG")

    assert ask(refuse) is None
    assert "the brokers cannot be asked: topic does not exist" in (ask.problem or "")
    assert "remedy: run the topics DAG" in (ask.problem or "")
    with pytest.raises(ZeroDivisionError):
        ask(lambda: 1 // 0)
