"""A group has one driver, however many operators look after it: real processes, real statuses on a real board."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.eventually import eventually
from tests.statuses import a_status

from recount.airflow.drivers import DriverProcess, GroupDriver
from recount.airflow.submission import Submission
from recount.engine.driver.stream_reports import require_alone
from recount.kafka.connection import Connection
from recount.kafka.leases import Lease, StandingOrders, request_run, request_stop
from recount.kafka.status import last_epoch, status_of_group
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings


@pytest.fixture(scope="module")
def connection(connection: Connection) -> Connection:
    def is_readable() -> bool:
        try:
            return last_epoch(connection, "nobody") == 0
        except Transient:
            return False

    assert eventually(is_readable, True, limit_s=60)  # topics that have just been created
    return connection


class Sleeping:
    """Submits a process that only sleeps."""

    def __init__(self) -> None:
        self.launched: list[DriverProcess] = []

    def launch(self, *, record: Path, log: Path) -> DriverProcess:
        command = [sys.executable, "-c", "import time; time.sleep(300)"]
        driver = DriverProcess.launch(command, os.environ, record=record, log=log)
        self.launched.append(driver)
        return driver


@pytest.fixture
def submission() -> Iterator[Sleeping]:
    submission = Sleeping()
    yield submission
    for driver in submission.launched:
        driver.end()


@pytest.fixture
def driver(connection: Connection, tmp_path: Path, unique: Callable[[str], str]) -> GroupDriver:
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    settings = Settings(profile="embedded", bootstrap_servers=connection.bootstrap_servers, **folders)
    return GroupDriver(settings=settings, group=unique("group"), start_timeout_s=60, stop_timeout_s=5)


def ensured(driver: GroupDriver, submission: Sleeping) -> bool:
    return driver.ensure(cast(Submission, submission))


def says(lease: Lease, state: str = "running", ago_ms: int = 0, **more: Any) -> None:
    now_ms = time.time_ns() // 1_000_000
    said = {"state": state, "heartbeat_ms": now_ms - ago_ms, "host": "elsewhere", **more}
    lease.publish(a_status(stream=lease.stream, lease_epoch=lease.epoch, **said))


def test_of_twenty_operators_at_the_same_moment_one_launches_the_driver(
    driver: GroupDriver, submission: Sleeping
) -> None:
    together = threading.Barrier(20)

    def operator() -> bool:
        together.wait()
        return ensured(driver, submission)

    with ThreadPoolExecutor(20) as pool:
        launched = [done.result() for done in [pool.submit(operator) for _ in range(20)]]
    assert launched.count(True) == len(submission.launched) == 1


def test_a_dead_driver_is_succeeded_and_one_at_work_is_left_alone(
    connection: Connection, driver: GroupDriver, submission: Sleeping
) -> None:
    assert ensured(driver, submission)
    says(Lease.acquire(connection, status_of_group(driver.group)))
    assert not ensured(driver, submission)
    submission.launched[0].end()
    assert ensured(driver, submission)
    assert [one.is_alive for one in submission.launched] == [False, True]


def test_a_driver_that_does_not_answer_is_ended_and_succeeded(
    connection: Connection, driver: GroupDriver, submission: Sleeping
) -> None:
    lease = Lease.acquire(connection, status_of_group(driver.group))
    impatient = replace(driver, start_timeout_s=0, stop_timeout_s=1)
    assert ensured(impatient, submission)
    says(lease, ago_ms=-1_000)
    assert not ensured(impatient, submission)
    says(lease, ago_ms=31_000)  # older than the process: it has not spoken in its time
    assert ensured(impatient, submission)
    assert [one.is_alive for one in submission.launched] == [False, True]


def test_a_driver_that_was_about_to_end_and_heard_of_the_order_is_not_doubled(
    connection: Connection, driver: GroupDriver, submission: Sleeping
) -> None:
    lease = Lease.acquire(connection, status_of_group(driver.group))
    assert ensured(driver, submission)
    says(lease, "stopping")
    returning = threading.Timer(1, says, [lease])
    returning.start()
    assert not ensured(driver, submission)
    returning.join()
    says(lease, "stopping")
    ending = threading.Timer(1, submission.launched[0].end)
    ending.start()
    assert ensured(driver, submission)
    ending.join()


def test_a_driver_with_old_code_is_replaced_once_whoever_asks_for_it(
    connection: Connection, driver: GroupDriver, submission: Sleeping
) -> None:
    lease = Lease.acquire(connection, status_of_group(driver.group))
    impatient = replace(driver, stop_timeout_s=1)
    assert ensured(impatient, submission)
    says(lease, application_id="old")
    impatient.replace(cast(Submission, submission), "older")
    assert len(submission.launched) == 1
    impatient.replace(cast(Submission, submission), "old")
    assert [one.is_alive for one in submission.launched] == [False, True]
    orders = StandingOrders(connection)
    assert orders.stop_of(lease.stream) == lease.epoch
    orders.close()
    later = Lease.acquire(connection, lease.stream)
    says(later, application_id="new")
    impatient.replace(cast(Submission, submission), "old")
    assert [one.is_alive for one in submission.launched] == [False, True]


def test_a_second_driver_ends_unless_the_first_is_over_silent_or_gone(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    require_alone(connection, group)
    lease = Lease.acquire(connection, status_of_group(group))
    says(lease)
    with pytest.raises(Terminal, match="has a driver"):
        require_alone(connection, group)
    says(lease, ago_ms=31_000)
    require_alone(connection, group)
    says(lease, host=os.uname().nodename, pid=os.getpid())
    with pytest.raises(Terminal, match="has a driver"):
        require_alone(connection, group)
    says(lease, host=os.uname().nodename, pid=2**22)
    require_alone(connection, group)
    says(lease, "failed")
    require_alone(connection, group)


def test_an_order_to_stop_withdraws_the_order_to_run_before_it_and_not_the_next(
    connection: Connection, unique: Callable[[str], str]
) -> None:
    stream, orders = unique("stream"), StandingOrders(connection)
    assert orders.run_of(stream) is None
    request_run(connection, stream, 2)
    first = orders.run_of(stream)
    assert first is not None
    assert first.lease_epoch == 2
    request_stop(connection, stream, 3)
    assert (orders.run_of(stream), orders.stop_of(stream)) == (None, 3)
    request_run(connection, stream, 3)
    second = orders.run_of(stream)
    assert second is not None
    assert (second.lease_epoch, orders.stop_of(stream)) == (3, 3)
    assert second.order != first.order
    orders.close()
