"""The audits of a long run: one stream after the other, again and again; some are killed in the middle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.chaos.fault_plan import Fault
from tests.chaos.submitted import Submitted

from recount.audit.audit_commands import EXIT_VIOLATION, EXIT_WARNING
from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.issuing import certificates_of
from recount.runtime.settings import Settings

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
