"""A driver outlives who launched it, is found by its record, and no other process is ever taken for it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from recount.airflow.drivers import DriverProcess, log_of, record_of
from recount.airflow.submission import driver_environment

SLEEPS = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"]
IGNORES_TERM = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return record_of(str(tmp_path / "run"), "orders")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_of(str(tmp_path / "logs"), "orders")


def launched(command: list[str], record: Path, log: Path, times: int = 1) -> DriverProcess:
    driver = DriverProcess.launch(command, dict(os.environ), record=record, log=log)
    while log.read_text().count("up") < times:
        assert driver.is_alive
    return driver


def test_a_driver_is_found_by_its_record_until_it_is_ended(record: Path, log: Path) -> None:
    driver = launched(SLEEPS, record, log)
    assert DriverProcess.find(record) == driver
    assert driver.is_alive
    assert os.getsid(driver.pid) == driver.pid != os.getsid(0)
    driver.end()
    assert not driver.is_alive


def test_a_driver_that_does_not_listen_is_killed(record: Path, log: Path) -> None:
    driver = launched(IGNORES_TERM, record, log)
    driver.end(patience_s=0.2)
    assert not driver.is_alive


def test_another_process_with_the_same_pid_is_not_the_driver(record: Path) -> None:
    someone = DriverProcess(pid=os.getpid(), started=1.0, host="here", identity="another boot/1")
    assert not someone.is_alive
    someone.end()


def test_a_driver_has_not_died_when_the_clock_was_set(record: Path, log: Path) -> None:
    driver = launched(SLEEPS, record, log)
    for step_s in (-60, -0.05, 0.05, 60):
        record.write_text(json.dumps(asdict(replace(driver, started=driver.started + step_s))))
        found = DriverProcess.find(record)
        assert found is not None
        assert found.is_alive
    driver.end()


def test_a_record_of_another_host_or_a_broken_one_names_no_driver(record: Path, log: Path) -> None:
    assert DriverProcess.find(record) is None
    driver = launched(SLEEPS, record, log)
    driver.end()
    record.write_text(json.dumps(asdict(replace(driver, host="elsewhere"))))
    assert DriverProcess.find(record) is None
    record.write_text("{")
    assert DriverProcess.find(record) is None


def test_the_log_is_appended_to(record: Path, log: Path) -> None:
    launched(SLEEPS, record, log).end()
    launched(SLEEPS, record, log, times=2).end()
    assert log.read_text().count("up") == 2


def test_a_driver_learns_nothing_of_airflow() -> None:
    environment = {"AIRFLOW__CORE__FERNET_KEY": "x", "_AIRFLOW_Y": "y", "RECOUNT_RUN": "r", "PATH": "p"}
    assert driver_environment(environment) == {"RECOUNT_RUN": "r", "PATH": "p"}
