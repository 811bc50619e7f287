"""What is asked of Airflow about the runs of its DAGs, again until there is an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from recount.profile.dag_runs import DagRuns, first_answer
from recount.runtime.errors import Terminal, Transient

PLACE = "/api/v2/dags/backfill__a/dagRuns/r"


class FakeAirflow:
    """Answers of one run of ``backfill__a`` that is in ``state`` and whose task ``approval`` is in ``task``."""

    url = "http://127.0.0.1:1"

    def __init__(self, state: str, task: str | None) -> None:
        self._answers = {
            PLACE: {"state": state},
            f"{PLACE}/taskInstances": {"task_instances": [{"task_id": "approval", "state": task}]},
        }
        self.changed: list[tuple[str, Mapping[str, Any] | None]] = []

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if method == "GET":
            return self._answers[path]
        self.changed.append((path, body))
        return None


@pytest.mark.parametrize(("state", "task"), [("failed", "upstream_failed"), ("success", "skipped")])
def test_a_run_that_has_ended_without_asking_is_not_waited_for(state: str, task: str) -> None:
    airflow = FakeAirflow(state, task)
    with pytest.raises(Terminal) as ended:
        DagRuns(airflow).approve("backfill__a", "r", "approval", 60)  # type: ignore[arg-type]
    assert ended.value.given == {"approval": task}
    assert airflow.changed == []


def test_what_a_run_asks_is_approved() -> None:
    airflow = FakeAirflow("running", "deferred")
    DagRuns(airflow, thinking_s=0).approve("backfill__a", "r", "approval", 60)  # type: ignore[arg-type]
    [(path, body)] = airflow.changed
    assert path == f"{PLACE}/taskInstances/approval/-1/hitlDetails"
    assert body == {"chosen_options": ["Approve"], "params_input": {}}


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
