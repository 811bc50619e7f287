"""Jobs of a long run: submitted as processes, a driver of each stream that is started again, one audit at a time."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyspark
from tests.chaos.fault_plan import Fault

from recount.audit.audit_commands import EXIT_VIOLATION, EXIT_WARNING
from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.issuing import certificates_of
from recount.kafka.connection import Connection
from recount.kafka.leases import request_stop
from recount.kafka.status import StatusBoard
from recount.profile.daemon import end_of
from recount.profile.home import Project
from recount.runtime.errors import Transient
from recount.runtime.settings import Settings

_TRIGGER_MS = 5_000
_FENCED_WITHIN_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A driver that ended by itself: its exit code, and why."""

    stream: str
    code: int
    why: str
    log: str


@dataclass
class Supervised:
    """Launches the driver of ``stream``, and launches it again at once whenever it has ended."""

    stream: str
    master: str
    settings: Settings
    connection: Connection
    note: Callable[[Ended], None]
    faults: list[str] = field(default_factory=list)
    launches: int = 0
    _driver: Submitted | None = None
    _ordered: Submitted | None = None
    _held: list[Submitted] = field(default_factory=list)
    _behind: list[tuple[Submitted, float]] = field(default_factory=list)

    def tend(self) -> None:
        """Launch a driver where none is at work, and look after those that were left behind."""
        driver = self._driver
        if driver is not None and (code := driver.code) is not None:
            if code != 0 or driver is not self._ordered:
                self.note(Ended(stream=self.stream, code=code, why=driver.last_words(), log=str(driver.log)))
            self._driver = None
        if self._driver is None:
            self._launch()
        self._behind = [(driver, since_s) for driver, since_s in self._behind if not self._is_gone(driver, since_s)]

    def kill(self, *, with_checkpoint: bool = False) -> None:
        """kill -9 to the driver at work; ``with_checkpoint`` removes Spark's checkpoint before the next is launched."""
        if self._driver is not None:
            self._driver.kill()
        if with_checkpoint:
            shutil.rmtree(Path(self.settings.checkpoints) / self.stream, ignore_errors=True)
        self._driver = None

    def hold_up(self) -> Submitted | None:
        """Stop the driver at work where it stands (SIGSTOP); the next one is launched beside it."""
        held, self._driver = self._driver, None
        if held is not None:
            held.send(signal.SIGSTOP)
            self._held.append(held)
        return held

    def let_go(self, held: Submitted) -> None:
        """Let a driver that was held up go on: it must find out that it was replaced, and end."""
        self._held.remove(held)
        self._behind.append((held, time.monotonic()))
        held.send(signal.SIGCONT)

    def order_stop(self) -> bool:
        """Order the driver at work to stop after its batch, as soon as it says that it is there; False if it ends."""
        driver = self._driver
        while driver is not None and driver is self._driver and driver.code is None:
            if (lease_epoch := self._lease_epoch(driver)) is not None:
                self._ordered = driver
                with suppress(Transient):  # while a broker is away: once more
                    request_stop(self.connection, self.stream, lease_epoch)
                    return True
            time.sleep(0.5)
        return False

    def finish(self, limit_s: float) -> None:
        """Order the driver to stop, and wait until it has: what it had begun is committed.

        One that ends in another way has a successor, which is ordered to stop as well.
        """
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self.tend()
            driver = self._driver
            if driver is None or not self.order_stop():
                continue
            while driver.code is None and time.monotonic() < deadline:
                time.sleep(0.5)
            if driver.code == 0:
                return
        self.faults.append(f"{self.stream}: no driver stopped as it was told to within {limit_s:.0f} s")

    def kill_all(self) -> None:
        """kill -9 to every driver, also to those that are held up."""
        at_work = [self._driver] if self._driver is not None else []
        for driver in [*at_work, *self._held, *(driver for driver, _ in self._behind)]:
            driver.kill()

    @property
    def is_alone(self) -> bool:
        """Whether no driver is held up or left behind."""
        return not self._held and not self._behind

    def _launch(self) -> None:
        self.launches += 1
        log = Path(self.settings.logs) / f"{self.stream}-{self.launches}.log"
        arguments = ["--stream", self.stream, "--trigger-interval-ms", str(_TRIGGER_MS)]
        self._driver = Submitted("stream.py", arguments, master=self.master, settings=self.settings, log=log)

    def _lease_epoch(self, driver: Submitted) -> int | None:
        """The lease epoch of ``driver``; None while the board does not know of it, or cannot be read."""
        board = StatusBoard(self.connection)
        try:
            status = board.of(self.stream)
        except Transient:
            return None
        finally:
            board.close()
        return status.lease_epoch if status and status.started_at_ms >= driver.began_ms else None

    def _is_gone(self, driver: Submitted, since_s: float) -> bool:
        if driver.code is not None:
            return True
        if time.monotonic() - since_s < _FENCED_WITHIN_S:
            return False
        late = f"a driver that was replaced still ran {_FENCED_WITHIN_S:.0f} s after it was let go"
        self.faults.append(f"{self.stream}: {late}: {driver.log}")
        driver.kill()
        return True


_SPARK_HOME = Path(pyspark.__file__).parent
_HEAP = "512m"
_CONFIGURATION = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # an executor on each worker, which have room for all applications, and for those that are held up
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": _HEAP,
    "spark.python.worker.reuse": "true",
}
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A driver lives for a minute or two: the JVM's optimising compiler would take longer than what it compiles for."""
_WHAT_ENDED_IT = re.compile(r"^[\w.]*(?:Terminal|Transient|Fenced|Error|Exception)\b.*", re.MULTILINE)


class Submitted:
    """A submitted job: Python and its JVM are one process group, its output is in ``log``."""

    def __init__(self, job: str, arguments: Sequence[str], *, master: str, settings: Settings, log: Path) -> None:
        project = Project.containing(Path(__file__).parent)
        jars = ",".join(sorted(str(jar) for jar in Path(settings.jars).glob("*.jar")))
        environment = {
            **os.environ,
            **settings.to_environment(),
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": f"{settings.run}/scratch",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{project.root}:{project.root / 'include'}",
            "JAVA_TOOL_OPTIONS": _SHORT_LIVED,
            "COLUMNS": "200",
        }
        command = [
            *(f"{_SPARK_HOME}/bin/spark-submit", "--master", master, "--jars", jars, "--driver-memory", _HEAP),
            *(word for name, value in _CONFIGURATION.items() for word in ("--conf", f"{name}={value}")),
            *(str(project.spark_jobs / job), *arguments),
        ]
        self.log = log
        self.began_ms = time.time_ns() // 1_000_000
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=project.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    @property
    def age_s(self) -> float:
        """How long ago it was started."""
        return time.time_ns() / 1e9 - self.began_ms / 1e3

    def send(self, number: signal.Signals) -> None:
        """A signal to the whole process group."""
        if self.code is None:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """kill -9, also while it is held up; returns when it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait(30)

    def last_words(self) -> str:
        """What its log says at the end about why it ended."""
        said = _WHAT_ENDED_IT.findall(end_of(self.log, 60))
        return said[-1][:300] if said else end_of(self.log, 1)[:300]


_JUDGED = (0, EXIT_VIOLATION, EXIT_WARNING)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One audit that came to a verdict."""

    stream: str
    name: str
    outcome: str
    records: int
    differences: int
    grace_misses: int
    seconds: float

    def __str__(self) -> str:
        found = f"{self.differences} differences, {self.grace_misses} grace misses, {self.records:,} records"
        return f"audit of {self.stream}: {self.outcome}, {found}, {self.seconds:.0f} s"


@dataclass
class AuditRounds:
    """At most one audit at a time; one that is killed or cannot judge, while a broker is away, is started again."""

    master: str
    settings: Settings
    note: Callable[[Audit], None]
    killed: Callable[[Fault], None]
    tell: Callable[[str], None]
    whole: bool = False
    """Whether each audit judges the log from its beginning."""
    started: int = 0
    _waiting: deque[str] = field(default_factory=deque)
    _doomed: deque[Fault] = field(default_factory=deque)
    _running: tuple[str, Submitted] | None = None

    def ask(self, streams: Sequence[str]) -> None:
        """Audit ``streams``, each as soon as those before it have a verdict."""
        self._waiting.extend(stream for stream in streams if stream not in self._waiting)

    def doom(self, fault: Fault) -> None:
        """Kill an audit when it is ``fault.lasts_s`` old: the next that comes to that, or one of the fault's stream."""
        self._doomed.append(fault)
        if self.is_idle:
            self.ask([fault.target])

    def tend(self) -> None:
        """Start what waits, take down what has ended, kill what is to be killed."""
        if self._running is None:
            if self._waiting:
                self._start(self._waiting.popleft())
            return
        stream, audit = self._running
        if (code := audit.code) is not None:
            self._running = None
            if code in _JUDGED:
                self._take_down(stream, audit)
            else:
                self.tell(f"the audit of {stream} could not judge, once more: {code}, {audit.last_words()}")
                self._waiting.appendleft(stream)
        elif self._doomed and audit.age_s >= self._doomed[0].lasts_s:
            audit.kill()
            self._running = None
            self._waiting.appendleft(stream)
            self.killed(replace(self._doomed.popleft(), target=stream))

    def kill(self) -> None:
        """kill -9 to the audit that runs."""
        if self._running is not None:
            self._running[1].kill()

    @property
    def is_idle(self) -> bool:
        """Whether none runs and none waits."""
        return self._running is None and not self._waiting

    def _start(self, stream: str) -> None:
        self.started += 1
        name = f"audit-{self.started}"
        log = Path(self.settings.logs) / f"{name}-{stream}.log"
        arguments = ["--stream", stream, "--audit", name, *(["--from-the-beginning"] if self.whole else [])]
        self._running = stream, Submitted("audit.py", arguments, master=self.master, settings=self.settings, log=log)

    def _take_down(self, stream: str, audit: Submitted) -> None:
        name = audit.log.name.removesuffix(f"-{stream}.log")
        certificate = load(certificates_of(self.settings.reports, stream) / f"{name}.json")
        self.note(
            Audit(
                stream=stream,
                name=name,
                outcome=certificate["outcome"],
                records=certificate["totals"]["records"],
                differences=certificate["differences_found"],
                grace_misses=certificate["grace_misses_found"],
                seconds=audit.age_s,
            )
        )
