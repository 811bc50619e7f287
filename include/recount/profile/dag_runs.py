"""Airflow of the embedded profile by its public REST API: DAG runs, polling, and DAGs to switch on.

Airflow makes all DAGs paused.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx

from recount.declare.registry import Declarations, is_audited
from recount.runtime.errors import Terminal, Transient

USERNAME = "admin"
"""The one user of an embedded Airflow."""
_PATIENCE_S = 60
Found = TypeVar("Found")
_POLL_S = 1.0
_THINKING_S = 8.0
_OVER = ("success", "failed")
_TASK_OVER = (*_OVER, "skipped", "upstream_failed", "removed")
_PAGE = 100
_STREAMS = "/api/v2/dags?order_by=dag_id&dag_id_pattern=stream__%25"
"""A pattern of SQL, its ``%`` as a URL has it."""
_LISTED = 6


class AirflowApi:
    """Calls to the Airflow at ``url``, whose user's password is in ``passwords``."""

    def __init__(self, url: str, passwords: Path) -> None:
        self.url = url
        self._passwords = passwords
        self._token = ""

    @cached_property
    def _client(self) -> httpx.Client:
        """Made at the first call: it loads certificates, and most commands make no call."""
        return httpx.Client(base_url=self.url, timeout=_PATIENCE_S)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call the API (``request("GET", "/api/v2/dags")``) and return the decoded answer.

        Raises ``httpx.HTTPStatusError`` for an answer that is an error.
        """
        if not self._token:
            login = {"username": USERNAME, "password": json.loads(self._passwords.read_text())[USERNAME]}
            answer = self._client.post("/auth/token", json=login)
            answer.raise_for_status()
            self._token = answer.json()["access_token"]
        headers = {"Authorization": f"Bearer {self._token}"}
        answer = self._client.request(method, path, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json() if answer.content else None


def first_answer(
    look: Callable[[], Found | None],
    timeout_s: float,
    late: Exception,
    *,
    poll_s: float,
    passing: tuple[type[Exception], ...] = (),
) -> Found:
    """The first answer of ``look`` that is not None, asked every ``poll_s``; raises ``late`` where none comes in time.

    What ``look`` raises goes on to the caller, but for ``passing`` errors: after one of them it is asked again.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(*passing):
            found = look()
            if found is not None:
                return found
        time.sleep(poll_s)
    raise late


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
            raise Terminal.of("run-failed", given=run.tasks, dag=dag, url=self._airflow.url)
        return run

    def wait_for_next(self, dag: str, known: set[str], timeout_s: float) -> str:
        """The id of a run that is not in ``known``, started by whatever starts it (an asset event)."""
        return self._until(
            timeout_s, f"a run of DAG {dag} to be started", lambda: next(iter(self.ids(dag) - known), None)
        )

    def ids(self, dag: str) -> set[str]:
        answer = self._airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns?limit={_PAGE}")
        return {run["dag_run_id"] for run in answer["dag_runs"]}

    def of(self, dag: str, run: str) -> DagRun:
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
                raise Terminal.of("run-ended-unasked", given=found.tasks, dag=dag, task=task, url=self._airflow.url)
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
        late = Transient.of("airflow-too-slow", given=what, timeout_s=timeout_s, url=self._airflow.url)
        return first_answer(look, timeout_s, late, poll_s=_POLL_S, passing=(httpx.TimeoutException,))


def streams_of(declarations: Declarations) -> list[str]:
    return [f"stream__{name}" for name in declarations.streams]


def nights_of(declarations: Declarations) -> list[str]:
    """The DAGs that audit every night: one for a group, and one for each stream that shares no driver."""
    groups = [name for name, group in declarations.groups.items() if any(map(is_audited, group.streams))]
    alone = [name for name in declarations.audited if declarations.group_of(name) is None]
    return [*(f"night__{name}" for name in groups), *(f"audit__{name}" for name in alone)]


def what_to_switch_on(declarations: Declarations) -> str:
    """The next steps of a newcomer, in lines."""
    return "\n".join(
        [
            "All DAGs are paused at first. Create the topics with `recount topics --apply`, then switch on in Airflow",
            f"  {_listed(streams_of(declarations))}: each runs a stream",
            f"  {_listed(nights_of(declarations))}: they audit every night, and when you trigger them with through=now",
        ]
    )


def _listed(dags: Sequence[str]) -> str:
    more = f" and {len(dags) - _LISTED} more" if len(dags) > _LISTED else ""
    return ", ".join(dags[:_LISTED]) + more or "none"
