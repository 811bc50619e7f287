"""One real Airflow with FAB for all tests of this folder, and what they do and see of it, of its streams and drivers.

Its DAGs are in ``dags/``. All but those on which roles are tried are paused until a test needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest
from tests.eventually import awaited

from recount.airflow.drivers import DriverProcess, log_of, record_of
from recount.airflow.links import stream_dag
from recount.airflow.roles import FAB
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus
from recount.profile import daemon
from recount.profile.dag_runs import DagRuns
from recount.profile.embedded import embedded_settings
from recount.profile.embedded_airflow import EmbeddedAirflow
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.runtime.settings import Settings

STREAM, TRIED = "revenue-by-region", "high-value-orders"
"""The stream that runs, and the one on which orders and roles are tried."""
DAGS = Path(__file__).parent / "dags"
# seconds: the api-server itself waits up to 60 for SQLite, before it answers
HTTP_TIMEOUT_S = 180


@pytest.fixture(scope="session")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, project: Project, kafka: EmbeddedKafka
) -> Iterator[EmbeddedAirflow]:
    home = Home(path=tmp_path_factory.mktemp("airflow"))
    settings = replace(
        embedded_settings(home, project, kafka.bootstrap_servers, topologies="two_streams"),
        prefix=home.path.name,
        notifiers="alerts:notifier",
    )
    environment = {
        **settings.to_environment(),
        "PYTHONPATH": str(DAGS),
        "TOLD": str(home.path / "told"),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # they do not change
    }
    started = EmbeddedAirflow(home=home, project=project, environment=environment, dags=DAGS, auth_manager=FAB)
    try:
        started.start()
        yield started
    finally:
        daemon.sweep(home, patience_s=0)  # drivers too; an end with patience is a matter of test_chromium.py


@pytest.fixture(scope="session")
def deployment(airflow: EmbeddedAirflow) -> Deployment:
    """With the declared topics, created by their own DAG."""
    deployment = Deployment(airflow)
    deployment.dag_runs.succeed("topics", 180)
    return deployment


def signed_in(airflow: EmbeddedAirflow, name: str, password: str) -> httpx.Client:
    """Calls in the name of a user."""
    login = {"username": name, "password": password}
    token = httpx.post(f"{airflow.url}/auth/token", json=login, timeout=HTTP_TIMEOUT_S).json()["access_token"]
    return httpx.Client(base_url=airflow.url, headers={"Authorization": f"Bearer {token}"}, timeout=HTTP_TIMEOUT_S)


class Deployment:
    """What a user sees and does: runs, task states, drivers, statuses."""

    def __init__(self, airflow: EmbeddedAirflow) -> None:
        self.airflow = airflow
        self.dag_runs = DagRuns(airflow.api)
        self.settings = Settings.from_environment(airflow.environment)
        self._board = StatusBoard(Connection.of(self.settings))

    def finished(self, dag: str, run: str, timeout_s: float = 180) -> str:
        """The final state of a run."""
        return self.dag_runs.wait(dag, run, timeout_s).state

    def last_run(self, dag: str) -> str | None:
        runs = self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=-id&limit=1")["dag_runs"]
        return runs[0]["dag_run_id"] if runs else None

    def task_state(self, dag: str, run: str, task: str) -> str:
        return self.dag_runs.of(dag, run).tasks.get(task, "")

    def tries(self, dag: str, run: str, task: str) -> int:
        """How often the task has been started, a clear starting it once more."""
        found = self.airflow.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}")
        return int(found["try_number"])

    def watching(self) -> str | None:
        """The run whose watch task is deferred, when there is one."""
        run = self.last_run(stream_dag(STREAM))
        return run if run and self.task_state(stream_dag(STREAM), run, "run") == "deferred" else None

    def holding(self) -> bool:
        """Whether the last run waits for an order to start."""
        run = self.last_run(stream_dag(STREAM))
        return run is not None and self.task_state(stream_dag(STREAM), run, "hold") == "deferred"

    def status(self) -> StreamStatus | None:
        return self._board.of(STREAM)

    def state(self) -> str | None:
        said = self.status()
        return said.state if said else None

    def speaks_on(self) -> None:
        """Wait until the driver has spoken again, and once more after that."""
        heard_ms = self._heartbeat_ms()
        awaited("the driver goes on", lambda: self._heartbeat_ms() > heard_ms + 5_000)

    def runs(self, after_epoch: int = 0) -> StreamStatus:
        """The status of a running driver with a later lease than ``after_epoch``, once there is one."""
        try:
            found = awaited("the stream runs", lambda: self._running(after_epoch))
        except AssertionError as late:
            run = self.last_run(stream_dag(STREAM))
            tasks = run and self.dag_runs.of(stream_dag(STREAM), run).tasks
            log = log_of(self.settings.logs, STREAM)
            ends = log.read_text(errors="replace")[-3_000:] if log.exists() else ""
            said = f"{self.status()}, run {run}: {tasks}, driver {self.driver()}"
            raise AssertionError(f"{late}; {said}; its log ends with:\n{ends}") from None
        return found

    def driver(self) -> DriverProcess | None:
        return DriverProcess.find(record_of(self.settings.run, STREAM))

    def driver_processes(self) -> list[int]:
        """All spark-submit processes of the stream in this home, by their command line."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = process.info["cmdline"] or []
            is_driver = any(word.endswith("stream.py") for word in words) and words[-2:] == ["--stream", STREAM]
            if is_driver and "java" in words[0] and self._is_ours(process):
                found.append(process.pid)
        return found

    def _heartbeat_ms(self) -> int:
        said = self.status()
        return said.heartbeat_ms if said else 0

    def _running(self, after_epoch: int) -> StreamStatus | None:
        said = self.status()
        return said if said and said.state == "running" and said.lease_epoch > after_epoch else None

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("RECOUNT_RUN") == self.settings.run
        except psutil.Error:
            return False
