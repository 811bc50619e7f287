"""Driver of a stream or group, a process of this machine or a pod of Kubernetes, and the file that leads to it.

The client of Airflow's provider asks how a pod is, and ends it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import psutil

from recount.kafka.connection import Connection
from recount.kafka.leases import request_stop
from recount.kafka.status import StreamStatus, status_of, status_of_group
from recount.runtime.console import identity_of
from recount.runtime.errors import Terminal, Transient
from recount.runtime.installation import require_extra
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms

if TYPE_CHECKING:
    from recount.airflow.submission import Submission

_WITHIN = {"_request_timeout": 10}
_ASKED_EVERY_S = 20.0
"""Dozens of streams are looked at every few seconds: that a pod is there is believed for so long."""
_LONGEST_NAME = 63
_GONE, _REFUSED = (404,), (401, 403)
_OVER = ("Succeeded", "Failed")
_ALIVE_AT_S: dict[str, float] = {}
"""When this process last saw each pod alive, of those that it looks at."""


@dataclass(frozen=True, kw_only=True)
class DriverPod:
    """A pod, launched at ``started`` (seconds since the epoch). No other ever has its name."""

    pod: str
    namespace: str
    started: float

    @classmethod
    def named(cls, application: str, namespace: str) -> Self:
        """A name for a pod that is not there yet."""
        tail = f"-{uuid4().hex[:8]}-driver"
        words = re.sub(r"[^a-z0-9]+", "-", application.lower()).strip("-")
        return cls(pod=words[: _LONGEST_NAME - len(tail)].rstrip("-") + tail, namespace=namespace, started=time.time())

    @property
    def name(self) -> str:
        return f"pod {self.pod} in {self.namespace}"

    @property
    def conf(self) -> dict[str, str]:
        """Spark's settings by which a driver is this pod, in the namespace that the connection says."""
        return {"spark.kubernetes.driver.pod.name": self.pod}

    @property
    def is_alive(self) -> bool:
        """Whether it was there, and had not ended, some seconds ago; ``Transient`` where Kubernetes does not say."""
        if time.monotonic() - _ALIVE_AT_S.get(self.pod, float("-inf")) > _ASKED_EVERY_S:
            if self.has_ended():
                _ALIVE_AT_S.pop(self.pod, None)
                return False
            _ALIVE_AT_S[self.pod] = time.monotonic()
        return True

    def has_ended(self) -> bool:
        """Whether it has ended or is deleted, as Kubernetes has it now; ``Transient`` where that does not say."""
        found = self._read()
        return found is None or found.status.phase in _OVER

    def end(self, patience_s: float = 10.0) -> None:
        """Delete the pod, which has ``patience_s`` to end by itself; one that is deleted already is left alone."""
        _ALIVE_AT_S.pop(self.pod, None)
        grace_s = int(patience_s)
        _asked(
            lambda pods: pods.delete_namespaced_pod(self.pod, self.namespace, grace_period_seconds=grace_s, **_WITHIN)
        )

    def failure(self) -> str | None:
        """Why a pod that has ended did not succeed; None where it did."""
        found = self._read()
        if found is None:
            return f"{self.name} is gone"
        if found.status.phase == "Succeeded":
            return None
        ended = [one.state.terminated for one in found.status.container_statuses or () if one.state.terminated]
        told = ", ".join(f"exit code {one.exit_code}, {one.reason}" for one in ended)
        why = told or found.status.reason or "nothing more is known"
        return f"{self.name} has failed: {why}; see: kubectl logs --namespace {self.namespace} {self.pod}"

    def exit_code(self) -> int | None:
        """Return the exit code of its container, where it has ended by itself."""
        found = self._read()
        statuses = [] if found is None else found.status.container_statuses or ()
        return next((one.state.terminated.exit_code for one in statuses if one.state.terminated), None)

    def write(self, record: Path) -> None:
        """Let everybody find it again who reads ``record``."""
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(asdict(self)))

    @classmethod
    def find(cls, record: Path) -> Self | None:
        """The pod that ``record`` names, there or not; None where it names none."""
        try:
            content = json.loads(record.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return cls(**content) if "pod" in content else None

    def _read(self) -> Any:
        """The pod as Kubernetes has it; None where there is none."""
        return _asked(lambda pods: pods.read_namespaced_pod(self.pod, self.namespace, **_WITHIN))


def _asked(ask: Callable[[Any], Any]) -> Any:
    """Return the answer of the cluster of this Airflow; None where there is no such thing."""
    require_extra("kubernetes")
    from airflow.providers.cncf.kubernetes.kube_client import get_kube_client
    from kubernetes.client import ApiException
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    try:
        return ask(get_kube_client())
    except ApiException as error:
        if error.status in _GONE:
            return None
        told = f"{error.status} {error.reason}"
        if error.status in _REFUSED:
            raise Terminal.of("kubernetes-refuses", given=told) from error
        raise _silent(told) from error
    except ConfigException as error:
        raise Terminal.of("kubernetes-unknown", given=str(error)) from error
    except HTTPError as error:
        raise _silent(str(error)) from error


def _silent(told: str) -> Transient:
    return Transient.of("kubernetes-silent", given=told)


@dataclass(frozen=True, kw_only=True)
class DriverProcess:
    """A launched driver, since ``started`` (seconds since the epoch).

    Its ``identity`` tells it from a later process with the same pid; a record of an earlier release has none, and names
    a process that is not found again.
    """

    pid: int
    started: float
    host: str
    identity: str | None = None

    @classmethod
    def launch(cls, command: list[str], environment: Mapping[str, str], *, record: Path, log: Path) -> Self:
        """Start ``command`` in a session of its own, so that it outlives the task, Airflow and a terminal.

        Its output is appended to ``log``; ``record`` is the file for ``find``.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        record.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        driver = cls(pid=process.pid, started=time.time(), host=socket.gethostname(), identity=identity_of(process.pid))
        record.write_text(json.dumps(asdict(driver)))
        return driver

    @classmethod
    def find(cls, record: Path) -> Self | None:
        """The driver that ``record`` names, running or not; None where there is no record of this host."""
        try:
            content = json.loads(record.read_text())
        except (FileNotFoundError, ValueError):
            return None
        if "pid" not in content:
            return None
        driver = cls(
            pid=content["pid"],
            started=content["started"],
            host=content.get("host", socket.gethostname()),
            identity=content.get("identity"),
        )
        return driver if driver.host == socket.gethostname() else None

    @property
    def name(self) -> str:
        return f"pid {self.pid}"

    @property
    def is_alive(self) -> bool:
        """Whether this very process runs; one that ended and is not yet reaped does not."""
        try:
            same = self.identity is not None and self.identity == identity_of(self.pid)
            return same and psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def end(self, patience_s: float = 10.0) -> None:
        """End the process and its children: asked first, killed after ``patience_s``. An ended one is left alone."""
        for order in (signal.SIGTERM, signal.SIGKILL):
            if not self.is_alive:
                return
            os.killpg(self.pid, order)
            deadline = time.monotonic() + patience_s
            while self.is_alive and time.monotonic() < deadline:
                time.sleep(0.1)


def find_driver(record: Path) -> DriverProcess | DriverPod | None:
    """The driver that ``record`` names, running or not; None where it names none that can be asked from here."""
    return DriverPod.find(record) or DriverProcess.find(record)


def record_of(run: str, stream: str) -> Path:
    return Path(run) / "drivers" / f"{stream}.json"


def log_of(logs: str, stream: str) -> Path:
    return Path(logs) / "streams" / f"{stream}.log"


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
        return status_of(self._connection, status_of_group(self.group))

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
