"""The real Airflow of the embedded profile: closed to strangers, and apart from what its tasks detach."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import psutil
import pytest

from recount.local import daemon
from recount.local.airflow import EmbeddedAirflow
from recount.local.home import Home
from recount.local.project import Project

DAG = """
import os
import subprocess

from airflow.sdk import dag, task


@dag(schedule=None, is_paused_upon_creation=False)
def launch():
    @task
    def detach() -> list:
        driver = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return [driver.pid, os.environ["RECOUNT_PROFILE"]]

    detach()


launch()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(path=tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def started(home: Home, project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAirflow]:
    dags = tmp_path_factory.mktemp("dags")
    (dags / "launch.py").write_text(DAG)
    try:
        with EmbeddedAirflow(
            home=home, project=project, environment={"RECOUNT_PROFILE": "embedded"}, dags=dags
        ) as airflow:
            yield airflow
    finally:
        daemon.sweep(home)


def finished(airflow: EmbeddedAirflow, run: str) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        state: str = airflow.request("GET", f"/api/v2/dags/launch/dagRuns/{run}")["state"]
        if state in ("success", "failed"):
            return state
        time.sleep(0.5)
    raise AssertionError("the run did not finish")


def trigger(airflow: EmbeddedAirflow) -> str:
    """The id of a new run, once the DAG has been parsed."""
    deadline = time.monotonic() + 60
    while not parsed_dags(airflow):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return str(airflow.request("POST", "/api/v2/dags/launch/dagRuns", {"logical_date": None})["dag_run_id"])


def parsed_dags(airflow: EmbeddedAirflow) -> list[str]:
    return [dag["dag_id"] for dag in airflow.request("GET", "/api/v2/dags")["dags"]]


@pytest.mark.parametrize("password", ["", "admin", "airflow", "password"])
def test_no_default_password_lets_anybody_in(started: EmbeddedAirflow, password: str) -> None:
    login = {"username": "admin", "password": password}
    assert httpx.post(f"{started.url}/auth/token", json=login, timeout=30).status_code in (400, 401)


def test_nothing_is_told_without_a_login(started: EmbeddedAirflow) -> None:
    assert httpx.get(f"{started.url}/api/v2/dags", timeout=30).status_code == 401


def test_only_the_owner_reads_password_and_keys(home: Home, started: EmbeddedAirflow) -> None:
    for name in ("passwords.json", "keys.json"):
        assert (home.airflow / name).stat().st_mode & 0o077 == 0


def test_it_listens_on_the_loopback_address_only(home: Home, started: EmbeddedAirflow) -> None:
    leaders = [psutil.Process(component.pid) for component in daemon.recorded(home)]
    addresses = {
        connection.laddr.ip
        for leader in leaders
        for process in (leader, *leader.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_a_restart_keeps_the_history_and_leaves_detached_processes_alone(started: EmbeddedAirflow) -> None:
    run = trigger(started)
    assert finished(started, run) == "success"
    xcom = f"/api/v2/dags/launch/dagRuns/{run}/taskInstances/detach/xcomEntries/return_value?deserialize=true"
    driver, profile = started.request("GET", xcom)["value"]
    assert profile == "embedded"

    started.restart()

    assert psutil.pid_exists(driver)
    assert finished(started, run) == "success"
    assert finished(started, trigger(started)) == "success"
