"""What is started is found again and ended; what is not ours is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from recount.profile import daemon
from recount.profile.daemon import Daemon
from recount.profile.home import Home
from recount.runtime.console import identity_of
from recount.runtime.errors import Terminal

SLEEP = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)",
]
# A process with a child in its session and one in a session of its own, as a stream driver is.
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, sys, time\n"
    "code = 'import time; time.sleep(600)'\n"
    "own = subprocess.Popen([sys.executable, '-c', code])\n"
    "detached = subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
    "print(own.pid, detached.pid, flush=True)\n"
    "time.sleep(600)",
]


def started(home: Home, command: list[str], name: str = "sleeper") -> tuple[Daemon, list[str]]:
    """A daemon that has said its first line, and the words of that line."""
    process = Daemon.start(home, name, command, os.environ)
    deadline = time.monotonic() + 20
    while not (said := Path(process.log).read_text()).endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process, said.split()


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_stopped_process_is_gone_and_so_is_its_record_though_it_does_not_listen(home: Home) -> None:
    process, _ = started(home, SLEEP)
    assert list(daemon.recorded(home)) == [process]
    assert replace(process, started=process.started + 3_600).alive, "though the clock was set back an hour"
    daemon.stop(home, [process])
    assert not process.alive
    assert list(daemon.recorded(home)) == []
    deaf, _ = started(home, DEAF, "deaf")
    before = time.monotonic()
    daemon.stop(home, [deaf], patience_s=0.3)
    assert not deaf.alive
    assert time.monotonic() - before < 5


def test_stopping_takes_the_children_but_not_what_they_detached_which_a_sweep_takes(home: Home) -> None:
    process, (own, detached) = started(home, PARENT)
    daemon.stop(home, [process])
    assert gone(int(own)) and not gone(int(detached))
    assert daemon.sweep(home) == 1
    assert gone(int(detached))


def test_a_sweep_finds_survivors_whose_parent_and_record_are_gone(home: Home) -> None:
    process, (own, _) = started(home, PARENT)
    os.kill(process.pid, signal.SIGKILL)
    (home.run / "sleeper.json").unlink()
    daemon.sweep(home)
    assert gone(int(own))


def test_a_sweep_leaves_another_home_alone(home: Home, tmp_path: Path) -> None:
    other = Home(path=tmp_path / "other")
    other.create()
    process, _ = started(other, SLEEP)
    try:
        assert daemon.sweep(home) == 0
        assert process.alive
    finally:
        daemon.sweep(other)


@pytest.mark.parametrize("is_another", [False, True])
def test_a_recorded_driver_is_ended_by_a_sweep_unless_its_pid_now_belongs_to_another_process(
    home: Home, is_another: bool
) -> None:
    driver = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL)
    try:
        identity = identity_of(os.getpid() if is_another else driver.pid)
        record = {"pid": driver.pid, "started": time.time(), "identity": identity}
        (home.drivers / "revenue.json").write_text(json.dumps(record))
        assert [(found.name, found.alive) for found in daemon.drivers(home)] == [("revenue", not is_another)]
        assert daemon.sweep(home) == (0 if is_another else 1)
        assert is_another is (driver.poll() is None) or driver.wait(5) is not None
    finally:
        driver.kill()
        driver.wait()


def test_a_process_that_has_ended_and_a_command_that_fails_are_reported_with_the_end_of_their_log(home: Home) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no disk')"]
    process = Daemon.start(home, "broken", command, os.environ)
    psutil.Process(process.pid).wait(20)
    with pytest.raises(Terminal) as raised:
        process.require_alive()
    assert raised.value.given == "no disk"
    with pytest.raises(Terminal) as failed:
        Daemon.start(home, "failing", command, os.environ).wait(home, limit_s=20)
    assert failed.value.given == "no disk"


def test_a_command_that_takes_too_long_is_ended(home: Home) -> None:
    process, _ = started(home, SLEEP)
    with pytest.raises(Terminal):
        process.wait(home, limit_s=0.2)
    assert not process.alive
