"""``recount up``, ``status`` and ``down`` as a person calls them, and as a crash leaves them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recount.local import daemon
from recount.local.home import Home
from recount.local.project import Project

RECOUNT = str(Path(sys.executable).with_name("recount"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(path=tmp_path / "home")
    yield home
    daemon.sweep(home, patience_s=1)


def recount(home: Home, project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RECOUNT_HOME": str(home.path)}
    return subprocess.run(
        [RECOUNT, *arguments], cwd=project.root, env=environment, capture_output=True, text=True, timeout=120
    )


def test_up_status_and_down(home: Home, project: Project) -> None:
    assert recount(home, project, "status").returncode == 1
    assert recount(home, project, "up", "--no-airflow").returncode == 0
    assert recount(home, project, "status").returncode == 0
    (broker,) = daemon.recorded(home)

    again = recount(home, project, "up", "--no-airflow")
    assert again.returncode == 0
    assert "already up" in again.stdout
    assert list(daemon.recorded(home)) == [broker]

    assert recount(home, project, "down").returncode == 0
    assert not broker.alive
    assert recount(home, project, "status").returncode == 1
    assert "nothing was running" in recount(home, project, "down").stdout


def test_up_after_a_crash_ends_the_survivors_and_starts_anew(home: Home, project: Project) -> None:
    recount(home, project, "up", "--no-airflow")
    (broker,) = daemon.recorded(home)
    survivor = daemon.Daemon.start(home, "survivor", ["sleep", "600"], os.environ)
    os.kill(broker.pid, signal.SIGKILL)

    status = recount(home, project, "status")
    assert status.returncode == 1
    assert "ENDED" in status.stdout

    assert recount(home, project, "up", "--no-airflow").returncode == 0
    assert not survivor.alive
    assert [process.name for process in daemon.recorded(home)] == ["kafka-1"]


@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing_behind(home: Home, project: Project, interruption: signal.Signals) -> None:
    environment = {**os.environ, "RECOUNT_HOME": str(home.path)}
    up = subprocess.Popen([RECOUNT, "up", "--no-airflow"], cwd=project.root, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not list(home.run.glob("kafka-1.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (broker,) = (process for process in daemon.recorded(home) if process.name == "kafka-1")
    up.send_signal(interruption)
    assert up.wait(60) != 0
    assert not broker.alive
    assert daemon.sweep(home) == 0
