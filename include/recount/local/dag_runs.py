"""DAG runs of a running Airflow, through its public REST API: start, follow, answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import httpx

from recount.core.errors import Terminal, Transient
from recount.local.airflow_api import AirflowApi
from recount.local.first_answer import Found, first_answer

_POLL_S = 1.0
_THINKING_S = 8.0
_OVER = ("success", "failed")
_TASK_OVER = (*_OVER, "skipped", "upstream_failed", "removed")
_PAGE = 100
_STREAMS = "/api/v2/dags?order_by=dag_id&dag_id_pattern=stream__%25"
"""A pattern of SQL, its ``%`` as a URL has it."""


@dataclass(frozen=True, kw_only=True)
class DagRun:
    """One run, as it was when it was asked for; ``tasks`` maps task ids to states."""

    dag: str
    run: str
    state: str
    tasks: dict[str, str]


class DagRuns:
    """The runs of ``airflow``'s DAGs; approvals are answered after ``thinking_s``."""

    def __init__(self, airflow: AirflowApi, *, thinking_s: float = _THINKING_S) -> None:
        self._airflow = airflow
        self._thinking_s = thinking_s

    def unpause(self, dag: str, timeout_s: float = 120) -> None:
        """Switch ``dag`` on, as soon as Airflow has parsed it; raises ``Transient`` when that takes too long."""
        self.parsed(dag, timeout_s)
        self._airflow.request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})

    def unpause_all(self, dags: Iterable[str], timeout_s: float = 120) -> None:
        """Switch these few ``dags`` on, as ``unpause`` does."""
        for dag in dags:
            self.unpause(dag, timeout_s)

    def parsed(self, dag: str, timeout_s: float = 120) -> None:
        """Wait until Airflow has parsed ``dag``; raises ``Transient`` when that takes too long."""
        self._until(timeout_s, f"DAG {dag} to be parsed", lambda: self._known(dag))

    def unpause_streams(self, streams: Collection[str], timeout_s: float = 120) -> None:
        """Switch the DAGs of all ``streams`` on, as soon as Airflow has parsed them.

        Many in a request: one for each, beside the tasks that they start, would wait for locks in SQLite.
        """
        wanted = {f"stream__{one}" for one in streams}
        # the pattern fits the DAG that stops and starts streams too
        pages = [f"{_STREAMS}&limit={_PAGE}&offset={start}" for start in range(0, len(wanted) + 1, _PAGE)]

        def parsed() -> bool | None:
            found = [self._airflow.request("GET", page)["dags"] for page in pages]
            return wanted <= {dag["dag_id"] for dags in found for dag in dags} or None

        self._until(timeout_s, f"the DAGs of {len(wanted)} streams to be parsed", parsed)
        for page in pages:
            self._airflow.request("PATCH", page, {"is_paused": False})

    def trigger(self, dag: str, **params: object) -> str:
        """Start a run by hand; returns its id."""
        self.unpause(dag)
        answer = self._airflow.request("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, "conf": params})
        return str(answer["dag_run_id"])

    def wait(self, dag: str, run: str, timeout_s: float) -> DagRun:
        """The run once it is over, whether it succeeded or failed."""
        return self._until(
            timeout_s,
            f"run {run} of DAG {dag} to end",
            lambda: found if (found := self.of(dag, run)).state in _OVER else None,
        )

    def wait_for_task(self, dag: str, run: str, task: str, timeout_s: float) -> DagRun:
        """The run once its ``task`` is over, whatever came of it; other tasks may be running still."""

        def over() -> DagRun | None:
            found = self.of(dag, run)
            return found if found.tasks.get(task) in _TASK_OVER or found.state in _OVER else None

        return self._until(timeout_s, f"task {task} of run {run} of DAG {dag} to end", over)

    def succeed(self, dag: str, timeout_s: float, **params: object) -> DagRun:
        """Start a run by hand and wait; raises ``Terminal`` naming the failed tasks unless it succeeds."""
        run = self.wait(dag, self.trigger(dag, **params), timeout_s)
        if run.state != "success":
            raise Terminal(
                f"a run of DAG {dag} failed",
                given=run.tasks,
                expected="success",
                remedy=f"open {self._airflow.url} and read the task's log",
            )
        return run

    def wait_for_next(self, dag: str, known: set[str], timeout_s: float) -> str:
        """The id of a run that is not in ``known``, started by whatever starts it (an asset event)."""
        return self._until(
            timeout_s, f"a run of DAG {dag} to be started", lambda: next(iter(self.ids(dag) - known), None)
        )

    def ids(self, dag: str) -> set[str]:
        """The ids of all runs of ``dag``."""
        answer = self._airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns?limit={_PAGE}")
        return {run["dag_run_id"] for run in answer["dag_runs"]}

    def of(self, dag: str, run: str) -> DagRun:
        """The run as it is now."""
        place = f"/api/v2/dags/{dag}/dagRuns/{run}"
        state = self._airflow.request("GET", place)["state"]
        tasks = self._airflow.request("GET", f"{place}/taskInstances")["task_instances"]
        return DagRun(dag=dag, run=run, state=state, tasks={task["task_id"]: task["state"] or "" for task in tasks})

    def approve(self, dag: str, run: str, task: str, timeout_s: float) -> None:
        """Approve what ``task`` of the run asks, as a user does in the UI.

        Raises ``Terminal`` where the run ends without asking.
        """

        def asked() -> bool | None:
            found = self.of(dag, run)
            if found.state in _OVER:
                raise Terminal(
                    f"a run of DAG {dag} ended before it asked for approval",
                    given=found.tasks,
                    expected=f"the task {task} to ask",
                    remedy=f"open {self._airflow.url} and read the logs of its tasks",
                )
            return found.tasks.get(task) in ("deferred", "awaiting_input") or None

        self._until(timeout_s, f"task {task} of {run} to ask for approval", asked)
        # Airflow fails a deferred task whose answer comes before its worker has left: answer no faster than a person.
        time.sleep(self._thinking_s)
        self._airflow.request(
            "PATCH",
            f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/-1/hitlDetails",
            {"chosen_options": ["Approve"], "params_input": {}},
        )

    def _known(self, dag: str) -> bool | None:
        # a list has it a moment before Airflow can start a run of it; its details are there when it can
        try:
            self._airflow.request("GET", f"/api/v2/dags/{dag}/details")
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.NOT_FOUND:
                return None
            raise
        return True

    def _until(self, timeout_s: float, what: str, look: Callable[[], Found | None]) -> Found:
        """The first answer of ``look`` that is not None; an Airflow that is slow to answer is asked again."""
        late = Transient(
            "Airflow took too long",
            given=what,
            expected=f"within {timeout_s:.0f} s",
            remedy=f"open {self._airflow.url}; recount status says where the logs are",
        )
        return first_answer(look, timeout_s, late, poll_s=_POLL_S, passing=(httpx.TimeoutException,))
