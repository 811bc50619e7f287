"""What the tests of the DAGs do and see: a real Airflow, a real broker, real drivers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from recount.airflow.drivers import DriverProcess, log_of, record_of
from recount.airflow.links import stream_dag
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus
from recount.profile.embedded_airflow import EmbeddedAirflow
from recount.runtime.settings import Settings

STREAM = "revenue-by-region"
# seconds: the api-server itself waits up to 60 for SQLite, before it answers
HTTP_TIMEOUT_S = 180


def eventually(what: str, look: Callable[[], Any], timeout_s: float = 240) -> Any:
    """The first true answer of ``look``; fails naming ``what`` when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if answer := look():
            return answer
        time.sleep(1)
    raise AssertionError(f"{what}: not within {timeout_s} s")


class Deployment:
    """What a user sees and does: runs, task states, drivers, statuses."""

    def __init__(self, airflow: EmbeddedAirflow) -> None:
        self.airflow = airflow
        self.settings = Settings.from_environment(airflow.environment)
        self._board = StatusBoard(Connection.of(self.settings))

    def unpause(self, dag: str) -> None:
        """Let the schedule run ``dag``; waits until it is parsed."""
        eventually(f"DAG {dag} parsed", lambda: dag in self.dags())
        self.airflow.request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})

    def pause(self, dag: str) -> None:
        self.airflow.request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": True})

    def dags(self) -> list[str]:
        return [dag["dag_id"] for dag in self.airflow.request("GET", "/api/v2/dags?limit=200")["dags"]]

    def trigger(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run by hand and return its id."""
        body = {"logical_date": None, "conf": conf or {}}
        run: str = self.airflow.request("POST", f"/api/v2/dags/{dag}/dagRuns", body)["dag_run_id"]
        return run

    def run_state(self, dag: str, run: str) -> str:
        state: str = self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")["state"]
        return state

    def finished(self, dag: str, run: str, timeout_s: float = 180) -> str:
        """The final state of a run."""
        ended = ("success", "failed")
        eventually(f"run {run} of {dag} ended", lambda: self.run_state(dag, run) in ended, timeout_s)
        return self.run_state(dag, run)

    def last_run(self, dag: str) -> str | None:
        runs = self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=-id&limit=1")["dag_runs"]
        return runs[0]["dag_run_id"] if runs else None

    def task_state(self, dag: str, run: str, task: str) -> str | None:
        found = self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}")
        return None if found["state"] is None else str(found["state"])

    def tries(self, dag: str, run: str, task: str) -> int:
        """How often the task has been started, a clear starting it once more."""
        found = self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}")
        return int(found["try_number"])

    def mark(self, dag: str, run: str, task: str, state: str) -> None:
        """What the buttons "mark as failed" and "mark as success" do."""
        self.airflow.request("PATCH", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}", {"new_state": state})

    def watching(self, stream: str = STREAM) -> str | None:
        """The run whose watch task is deferred, when there is one."""
        run = self.last_run(stream_dag(stream))
        return run if run and self.task_state(stream_dag(stream), run, "run") == "deferred" else None

    def holding(self, stream: str = STREAM) -> bool:
        """Whether the last run waits for an order to start."""
        run = self.last_run(stream_dag(stream))
        return run is not None and self.task_state(stream_dag(stream), run, "hold") == "deferred"

    def status(self, stream: str = STREAM) -> StreamStatus | None:
        return self._board.of(stream)

    def state(self, stream: str = STREAM) -> str | None:
        said = self.status(stream)
        return said.state if said else None

    def heartbeat_ms(self, stream: str = STREAM) -> int:
        said = self.status(stream)
        return said.heartbeat_ms if said else 0

    def runs(self, after_epoch: int = 0, stream: str = STREAM) -> StreamStatus:
        """The status of a running driver with a later lease than ``after_epoch``, once there is one."""
        try:
            found: StreamStatus = eventually("the stream runs", lambda: self._running(stream, after_epoch))
        except AssertionError as late:
            run = self.last_run(stream_dag(stream))
            tasks = {task: run and self.task_state(stream_dag(stream), run, task) for task in ("hold", "run")}
            said = f"{self.status(stream)}, run {run}: {tasks}, driver {self.driver(stream)}"
            raise AssertionError(f"{late}; {said}; its log ends with:\n{self.driver_log(stream)[-3_000:]}") from None
        return found

    def driver(self, stream: str = STREAM) -> DriverProcess | None:
        return DriverProcess.find(record_of(self.settings.run, stream))

    def driver_log(self, stream: str = STREAM) -> str:
        log = log_of(self.settings.logs, stream)
        return log.read_text(errors="replace") if log.exists() else ""

    def driver_processes(self, stream: str = STREAM) -> list[int]:
        """All spark-submit processes of ``stream`` in this home, by their command line."""
        wanted = ["stream.py", "--stream", stream]
        found = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = process.info["cmdline"] or []
            is_driver = any(word.endswith(wanted[0]) for word in words) and words[-2:] == wanted[1:]
            if is_driver and "java" in words[0] and self._is_ours(process):
                found.append(process.pid)
        return found

    def _running(self, stream: str, after_epoch: int) -> StreamStatus | None:
        said = self.status(stream)
        return said if said and said.state == "running" and said.lease_epoch > after_epoch else None

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("RECOUNT_RUN") == self.settings.run
        except psutil.Error:
            return False


@pytest.fixture(scope="module")
def deployment(airflow: EmbeddedAirflow) -> Deployment:
    """The Airflow of this test module, with the declared topics created by its own DAG."""
    deployment = Deployment(airflow)
    deployment.unpause("topics")
    assert deployment.finished("topics", deployment.trigger("topics")) == "success"
    return deployment
