"""What is started is found again and ended; what is not ours is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from recount.declare.schema import BadRecord
from recount.declare.windows import tumbling
from recount.profile import daemon
from recount.profile.daemon import Daemon
from recount.profile.dag_runs import DagRuns, first_answer
from recount.profile.demo import OrderFlow
from recount.profile.home import Home
from recount.runtime.console import identity_of
from recount.runtime.errors import Terminal, Transient
from topologies.orders import orders

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


def test_a_passing_error_is_asked_past_and_any_other_goes_on() -> None:
    look = one_by_one(TimeoutError(), 1, TimeoutError(), Terminal("lost", remedy="find it"))
    assert first_answer(look, 60, LATE, poll_s=0, passing=(TimeoutError,)) == 1
    with pytest.raises(Terminal):
        first_answer(look, 60, LATE, poll_s=0, passing=(TimeoutError,))


def test_what_is_late_is_raised_when_no_answer_comes_in_time() -> None:
    with pytest.raises(Transient) as raised:
        first_answer(lambda: None, 0.05, LATE, poll_s=0.01)
    assert raised.value is LATE


_WINDOWS = tumbling("5 min", grace="5 s")
_FLOW = OrderFlow(end_ms=1_800_000_000_000, records=12_000, late_every=97, bad_every=211)


def test_exactly_the_planted_records_are_late_or_bad_and_every_partition_gets_late_ones() -> None:
    """By what the rules of the language say of each record, by stream time of its own partition."""
    stream_time = [0] * _FLOW.partitions
    fates: Counter[str] = Counter()
    late_partitions = set()
    assert orders.value is not None
    for order in _FLOW:
        if order.timestamp_ms <= stream_time[order.partition] - _FLOW.window_ms - _FLOW.grace_ms:
            late_partitions.add(order.partition)
        try:
            orders.value.decode(order.value)
        except BadRecord:
            fates["bad"] += 1
            continue
        stream_time[order.partition] = max(stream_time[order.partition], order.timestamp_ms)
        [start] = _WINDOWS.starts(order.timestamp_ms)
        fates["late" if _WINDOWS.is_closed(start + _WINDOWS.size_ms, stream_time[order.partition]) else "counted"] += 1
    assert fates["late"] == _FLOW.late > 50
    assert fates["bad"] == _FLOW.bad > 50
    assert fates["counted"] == _FLOW.records - _FLOW.late - _FLOW.bad
    assert late_partitions == set(range(_FLOW.partitions))
    assert min(stream_time[:-1]) - stream_time[-1] > _FLOW.lag_ms - _FLOW.jitter_ms, "the last one lags behind"
