"""The one driver of a group of streams, as Airflow finds, launches and replaces it."""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from recount.airflow.drivers import DriverPod, DriverProcess, find_driver, log_of, record_of
from recount.airflow.submission import Submission
from recount.kafka.connection import Connection
from recount.kafka.control import request_stop
from recount.kafka.status import StatusBoard, StreamStatus, status_of_group
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms

_LOG = logging.getLogger(__name__)
_ANSWERS_WITHIN_MS = 30_000


@dataclass(frozen=True, kw_only=True)
class GroupDriver:
    """The driver of ``group``; those who look after it on one host do so one after the other.

    Operators of several hosts may launch two: the second one finds the first one's status and ends, or takes its lease.
    A driver has ``start_timeout_s`` until it answers, and ``stop_timeout_s`` to end when it is ordered to.
    """

    settings: Settings
    group: str
    start_timeout_s: int
    stop_timeout_s: int

    def ensure(self, submission: Submission) -> bool:
        """Launch a driver unless one is at work, or just starting; whether one was launched.

        One that is about to end is waited for, one that does not answer is ended.
        """
        with self._alone():
            return self._ensure(submission)

    def replace(self, submission: Submission, application_id: str | None) -> None:
        """Let the driver with ``application_id`` stop all of its streams after their batch and launch another one.

        Where another one is at work already, that is enough.
        """
        with self._alone():
            status = self._status()
            if status is not None and not status.is_over and status.application_id == application_id:
                _LOG.info("replacing the driver of group %s, %s", self.group, application_id)
                request_stop(self._connection, status.stream, status.lease_epoch)
                self._await_end()
                self._end()
            self._ensure(submission)

    def _ensure(self, submission: Submission) -> bool:
        if self._is_at_work() or (self._is_ending() and self._returns()):
            return False
        self._end()
        log = log_of(self.settings.logs, self.group)
        driver = submission.launch(record=record_of(self.settings.run, self.group), log=log)
        place = driver.name if driver else "on the cluster"
        _LOG.info("launched the driver of group %s, %s, log %s", self.group, place, log)
        return True

    def _is_at_work(self) -> bool:
        """Whether it answers, or is so young that it may not have spoken yet."""
        driver, status, now_ms = self._process(), self._status(), clock_ms()
        if driver is not None and not driver.is_alive:
            return False
        started_ms = int(driver.started * 1_000) if driver else 0
        if status is None or status.heartbeat_ms < started_ms:
            return driver is not None and now_ms - started_ms < 1_000 * self.start_timeout_s
        return status.state in ("starting", "running") and now_ms - status.heartbeat_ms <= _ANSWERS_WITHIN_MS

    def _is_ending(self) -> bool:
        driver = self._process()
        return driver is not None and driver.is_alive

    def _returns(self) -> bool:
        """Whether a driver that is ending has heard of the order in time and goes on."""
        deadline = time.monotonic() + self.stop_timeout_s
        while time.monotonic() < deadline and self._is_ending():
            if self._is_at_work():
                return True
            time.sleep(0.5)
        return False

    def _await_end(self) -> None:
        deadline = time.monotonic() + self.stop_timeout_s
        while time.monotonic() < deadline:
            status = self._status()
            if not self._is_ending() and (status is None or status.is_over or self._process() is not None):
                return
            time.sleep(0.5)

    def _end(self) -> None:
        driver = self._process()
        if driver is not None and driver.is_alive:
            _LOG.info("ending the driver of group %s, %s", self.group, driver.name)
            driver.end(patience_s=self.stop_timeout_s)

    def _process(self) -> DriverProcess | DriverPod | None:
        return find_driver(record_of(self.settings.run, self.group))

    def _status(self) -> StreamStatus | None:
        """Read uncommitted: somebody's open transaction on the topic must not make a driver look silent."""
        with closing(StatusBoard(self._connection, isolation="read_uncommitted")) as board:
            return board.of(status_of_group(self.group))

    @property
    def _connection(self) -> Connection:
        return Connection.of(self.settings)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time; a process that dies lets go."""
        lock = record_of(self.settings.run, self.group).with_suffix(".lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
