"""The driver of a stream, a process of this machine or a pod, and the file by which everybody finds it again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from recount.airflow.pods import DriverPod
from recount.process_identity import identity_of


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
        """For a log."""
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
    """The driver's record below the run folder."""
    return Path(run) / "drivers" / f"{stream}.json"


def log_of(logs: str, stream: str) -> Path:
    """The driver's log below the log folder."""
    return Path(logs) / "streams" / f"{stream}.log"
