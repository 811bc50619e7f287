"""The processes in which the struck streams run, as those who strike see them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tests.faults.effects import Point

from recount.profile.daemon import Started
from recount.profile.home import Project
from recount.runtime.settings import Settings

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx1g"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A step of the stream ``name`` of a ``part``, below ``root``; ``then`` happens ``at`` a point of it.

    ``transaction_timeout_ms`` is set in every producer of it, whatever the package asks for.
    """

    part: str
    name: str
    root: str
    step: str
    round: int
    at: Point | None = None
    then: str = "die"
    transaction_timeout_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended: ``done``, ``killed`` or ``failed`` with an error; and the effects that it had."""

    ended: str
    effects: tuple[str, ...] = ()
    error: str = ""
    kind: str = ""
    terminal: bool = False
    remedy: str = ""
    reached: bool = False
    told: Mapping[str, Any] | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether it says that a person must act, and what to do."""
        return self.ended == "failed" and self.terminal and bool(self.remedy)

    def __str__(self) -> str:
        return f"{self.ended} {self.error}".strip()


class Host(Started):
    """A process of ``tests/faults/host.py``; one that died is started again for the next job."""

    def __init__(self, settings: Settings, project: Project, log: Path) -> None:
        self._settings, self._project, self._log = settings, project, log
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()

    def start(self) -> None:
        """Start it unless it runs; returns at once."""
        if self._process and self._process.poll() is None:
            return
        environment = {
            **os.environ,
            **self._settings.to_environment(),
            "PYTHONPATH": str(self._project.root),
            "JAVA_TOOL_OPTIONS": _SHORT_LIVED,
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.host"],
                cwd=self._project.root,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._answers = queue.Queue()
        threading.Thread(target=_listen, args=(self._process, self._answers), daemon=True).start()

    def stop(self) -> None:
        """Kill it, its JVM and its workers."""
        if self._process:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            assert self._process.stdin
            self._process.stdin.close()
            self._process = None

    def run(self, job: Job, timeout_s: float = 240) -> Outcome:
        """Do ``job``; returns when it has ended."""
        self.begin(job)
        return self.outcome(timeout_s)

    def begin(self, job: Job) -> None:
        """Begin with ``job``."""
        self.start()
        self._reached = False
        self._tell(json.dumps(asdict(job)))

    def reached(self, timeout_s: float = 240) -> Outcome | None:
        """Wait until the job is at its point; None when it is, its outcome when it ended before."""
        answer = self._next(timeout_s)
        if "reached" in answer:
            self._reached = True
            return None
        return Outcome(**answer)

    def outcome(self, timeout_s: float = 240) -> Outcome:
        """Wait for the end of the job."""
        while "reached" in (answer := self._next(timeout_s)):
            self._reached = True
        return Outcome(**{**answer, "reached": self._reached, "effects": tuple(answer.get("effects", ()))})

    def go_on(self) -> None:
        """Let a job go on that waits at its point."""
        self._tell("go on")

    def wake(self) -> None:
        """Let a process go on that was stopped."""
        assert self._process
        os.killpg(self._process.pid, signal.SIGCONT)

    def _tell(self, line: str) -> None:
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _next(self, timeout_s: float) -> dict[str, Any]:
        while True:
            try:
                answer = self._answers.get(timeout=timeout_s)
            except queue.Empty:
                self.stop()
                raise AssertionError(f"no word from the host in {timeout_s} s:\n{self.said()}") from None
            if "ready" not in answer:
                return answer

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-6_000:]

    def __enter__(self) -> Self:
        self.start()
        return self


def _listen(process: subprocess.Popen[bytes], answers: queue.Queue[dict[str, Any]]) -> None:
    assert process.stdout
    for line in process.stdout:
        answers.put(json.loads(line))
    process.stdout.close()
    process.wait()
    answers.put({"ended": "killed"})
