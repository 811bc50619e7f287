"""Processes that outlive the command that started them and can always be found again, and free TCP ports.

A daemon leads a session of its own, and carries the home it belongs to in its environment, which everything it starts
inherits. The record in ``run/`` tells it from a later process with the same pid by its identity. So a crash
of the command, of the daemon or of one of its children leaves nothing that cannot be found, and nothing of
anybody else is ever killed. ``Started`` leaves nothing behind when the start fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from recount.profile.home import Home
from recount.runtime.console import identity_of
from recount.runtime.errors import Terminal, Transient

_MARK = "EMBEDDED_IN_RECOUNT_HOME"  # not RECOUNT_*: those are settings, and every one of them must be known
LOOPBACK = "127.0.0.1"
# Below the range from which operating systems take the ports of outgoing connections: a port chosen here
# cannot be taken by a client socket between the choice and the use.
_RANGE = range(20_000, 32_000)
_LET_GO_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A started process: its name in the home, its pid, since when (epoch seconds), and its ``process_identity``."""

    name: str
    pid: int
    started: float
    log: str
    identity: str | None = None

    @classmethod
    def start(cls, home: Home, name: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> Daemon:
        """Start ``command`` with exactly ``environment``, its output appended to ``logs/<name>.log``."""
        log = home.logs / f"{name}.log"
        # setproctitle, used by Airflow, would otherwise overwrite the environment that carries the mark.
        marked = {**environment, _MARK: str(home.path), "SPT_NOENV": "1"}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(part) for part in command],
                env=marked,
                cwd=home.path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # Not ours to wait for: it outlives this command on purpose, and Popen would complain about that.
        process.returncode = 0
        daemon = cls(name=name, pid=process.pid, started=time.time(), log=str(log), identity=identity_of(process.pid))
        (home.run / f"{name}.json").write_text(json.dumps(asdict(daemon)))
        return daemon

    def wait(self, home: Home, limit_s: float) -> None:
        """Wait for a process that ends by itself; ``Terminal`` with the end of the log unless it ends well in time."""
        if self.exit_code(home, limit_s) != 0:
            raise Terminal.of("process-failed", given=end_of(Path(self.log)), name=self.name, log=self.log)

    def exit_code(self, home: Home, limit_s: float) -> int | None:
        """Wait for a process that ends by itself and that this one has started; returns how it ended.

        One that takes longer than ``limit_s`` is ended, and ``Terminal`` has the end of its log.
        """
        try:
            code: int | None = psutil.Process(self.pid).wait(limit_s)
        except psutil.TimeoutExpired:
            stop(home, [self])
            raise Terminal.of(
                "process-too-slow", given=end_of(Path(self.log)), name=self.name, limit_s=limit_s, log=self.log
            ) from None
        (home.run / f"{self.name}.json").unlink(missing_ok=True)
        return code

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        try:
            same = self.identity is not None and self.identity == identity_of(self.pid)
            return same and _runs(psutil.Process(self.pid))
        except psutil.NoSuchProcess:
            return False

    def require_alive(self) -> None:
        """Raise ``Terminal`` with the end of the log when the process has ended."""
        if not self.alive:
            raise Terminal.of("process-ended", given=end_of(Path(self.log)), name=self.name, log=self.log)


def stop(home: Home, daemons: Iterable[Daemon], patience_s: float = 20) -> None:
    """End ``daemons`` at the same time, each with all of its session: asked first, killed after ``patience_s``.

    What a member of a session started in a session of its own (a detached stream driver) is left alone.
    """
    sessions = {daemon.pid: daemon for daemon in daemons}
    members = [process for process in _marked(home) if _session(process) in sessions]
    # The leaders first: they know how to end their children in order.
    end([process for process in members if process.pid in sessions], patience_s, remind=True)
    end([process for process in members if _runs(process)], patience_s=2)
    for daemon in sessions.values():
        (home.run / f"{daemon.name}.json").unlink(missing_ok=True)


def recorded(home: Home) -> Iterator[Daemon]:
    """The daemons of ``home`` that were started and not stopped, running or not."""
    for record in sorted(home.run.glob("*.json")):
        yield Daemon(**json.loads(record.read_text()))


def alive(home: Home, prefix: str) -> Iterator[Daemon]:
    """The daemons of ``home`` whose names begin with ``prefix`` and that run."""
    return (one for one in recorded(home) if one.name.startswith(prefix) and one.alive)


def drivers(home: Home) -> Iterator[Daemon]:
    for record in sorted(home.drivers.glob("*.json")):
        content = json.loads(record.read_text())
        log = str(home.logs / "streams" / f"{record.stem}.log")
        yield Daemon(
            name=record.stem, pid=content["pid"], started=content["started"], log=log, identity=content.get("identity")
        )


def sweep(home: Home, patience_s: float = 20) -> int:
    """End every process that belongs to ``home``, recorded or not; returns how many there were."""
    # Drivers first: they finish their batch as long as Kafka is there.
    running_drivers = [psutil.Process(driver.pid) for driver in drivers(home) if driver.alive]
    found = {process.pid for process in (*running_drivers, *_marked(home))}
    end(running_drivers, patience_s)
    end(_marked(home), patience_s, remind=True)
    for record in (*home.run.glob("*.json"), *home.drivers.glob("*.json")):
        record.unlink(missing_ok=True)
    return len(found)


def end_of(log: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error that should say what a process said."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def end(processes: Iterable[psutil.Process], patience_s: float, *, remind: bool = False) -> None:
    """Ask every process to end, wait, and kill those that have not; without patience, kill at once.

    ``remind`` asks a second time after a fifth of the patience: to Airflow's triggerer that means to stop waiting.
    """
    asked = list(processes)
    if patience_s > 0:
        _send(asked, signal.SIGTERM)
        if remind and (slow := _running_after(asked, patience_s / 5)):
            _send(slow, signal.SIGTERM)
    _send(_running_after(asked, patience_s), signal.SIGKILL)
    _running_after(asked, limit_s=10)


def _running_after(processes: list[psutil.Process], limit_s: float) -> list[psutil.Process]:
    """Processes that still run when all have ended or ``limit_s`` has passed; a zombie has ended."""
    deadline = time.monotonic() + limit_s
    while (running := [process for process in processes if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return running


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        # psutil itself compares start times before it sends, so a reused pid is safe here as well.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _marked(home: Home) -> Iterator[psutil.Process]:
    """The processes that carry the mark of ``home``, but neither this one nor what it runs under."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid not in own and process.environ().get(_MARK) == str(home.path):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except (ProcessLookupError, PermissionError):
        return None


def loopback() -> str:
    """The name Airflow's processes know each other by (``hostname_callable``): nothing leaves this machine."""
    return LOOPBACK


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def answers(port: int) -> bool:
    """Whether a server listens on ``port`` of the loopback address."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def require_free(ports: Collection[int], part: str) -> None:
    """Raise ``Terminal`` where ``part`` cannot have its ports again: the other parts know it by them.

    The threads of a process that was killed may hold them for a moment longer than it is there.
    """
    deadline = time.monotonic() + _LET_GO_S
    while (taken := [port for port in ports if not is_free(port)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    if taken:
        raise Terminal.of(
            "ports-taken",
            given=f"port {', '.join(map(str, taken))} of {LOOPBACK} is in use by another process",
            part=part,
        )


def free_ports(count: int) -> list[int]:
    """``count`` different ports that are free now.

    Chosen at random, so that two profiles that start at the same moment choose differently.
    """
    candidates = random.SystemRandom().sample(_RANGE, k=len(_RANGE))
    free: list[int] = []
    for port in candidates:
        if len(free) == count:
            break
        if is_free(port):
            free.append(port)
    if len(free) < count:
        raise Transient.of("no-free-ports", given=count, count=count, range=_RANGE)
    return free


class Started(ABC):
    """Started on entry, stopped on exit; also stopped when the start fails or is interrupted."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Stop what runs, also after half a start."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
