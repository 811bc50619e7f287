"""The overview: what brokers say of all streams, a line for each with its state, lag, rates, shares and audits.

Lines are grouped, sorted and filtered. A page does not wait for brokers that are down. Streams left behind are declared
no longer and need care: their drivers run, or their findings are open.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, Protocol, Self

from markupsafe import Markup

from recount.declare.registry import Declarations
from recount.kafka.connection import Connection
from recount.kafka.lags import StreamLag
from recount.kafka.leases import is_heard, undeclared
from recount.kafka.status import STEP_MS, Sample, Samples, StatusHistory, StreamStatus
from recount.pages.charts import line_chart, sparkline
from recount.pages.issued import Issued, certificates
from recount.pages.rendering import count, duration
from recount.pages.rendering import rate as told_rate
from recount.runtime.errors import RecountError
from recount.runtime.times import clock_ms
from recount.serve.exposition import BrokerReader, PatientCall

Kind = Literal["failed", "degraded", "unknown", "silent", "ok", "stopped"]
NEEDS_A_LOOK: Sequence[Kind] = ("failed", "degraded")
NIGHTS = 14
"""Certificates in a line."""
_RATE_SPAN_MS = 300_000
_GAP_MS = 4 * STEP_MS
"""Without a sample for longer than this the stream did not run, and a line is interrupted."""
_LONGEST_TEXT = 100


class Judged(Protocol):
    """The health of a stream: ``state`` is ok, degraded or failed, ``problems`` are sentences."""

    @property
    def state(self) -> str: ...
    @property
    def problems(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, kw_only=True)
class NextAudit:
    """The DAG that audits a stream next; ``at_ms`` None: it has no schedule, or it is not known to Airflow."""

    dag: str
    at_ms: int | None
    paused: bool


@dataclass(frozen=True, kw_only=True)
class StreamLine:
    """One stream. ``status`` None: no driver has spoken yet, or the brokers were not ``heard``.

    ``lag`` is what they said last of it, however long ago; None where they have not said it yet.
    """

    name: str
    is_archive: bool
    is_audited: bool
    domain: str
    group: str
    heard: bool
    status: StreamStatus | None
    health: Judged | None
    samples: Sequence[Sample]
    lag: StreamLag | None
    certificates: Sequence[Issued]
    next_audit: NextAudit | None

    @property
    def kind(self) -> Kind:
        if self.status is None or self.health is None:
            return "silent" if self.heard else "unknown"
        if self.health.state != "ok":
            return "failed" if self.health.state == "failed" else "degraded"
        return "stopped" if self.status.state == "stopped" else "ok"

    @property
    def newest(self) -> Issued | None:
        """The newest certificate of the version that is in force: what a former one had found went with it."""
        return None if self.is_renewed else next(iter(self.certificates), None)

    @property
    def is_renewed(self) -> bool:
        """Whether a reset has begun a version that is not audited yet."""
        return is_renewed(self.certificates, self.status)

    @property
    def needs_a_look(self) -> bool:
        """Whether it is not well, or its newest audit says so."""
        return self.kind in NEEDS_A_LOOK or bool(self.open_findings) or self.outcome not in ("ok", "none")

    @property
    def outcome(self) -> str:
        """The kind of the newest certificate; ``none``: not audited yet."""
        return self.newest.kind if self.newest else "none"

    @property
    def open_findings(self) -> int | None:
        return self.newest.open_findings if self.newest else None

    @property
    def behind(self) -> int | None:
        """How many records it is behind; None for a stream that was never started, and where nobody has said it."""
        if self.status is None and self.heard:
            return None
        if self.lag is not None:
            return self.lag.records
        return self.status.lag if self.status else None

    @property
    def behind_at_ms(self) -> int | None:
        if self.lag is not None:
            return self.lag.at_ms
        return self.status.lag_at_ms if self.status else None

    @property
    def oldest_unread_ms(self) -> int | None:
        """The time of the oldest unread record, as its driver says; None where it has not looked."""
        is_known = self.status is not None and self.status.state == "running" and self.behind
        return self.status.oldest_unread_ms if self.status and is_known else None

    @property
    def late_share(self) -> float | None:
        return _share(self.status.late_records, self.status) if self.status else None

    @property
    def bad_share(self) -> float | None:
        return _share(self.status.dead_letters, self.status) if self.status else None

    @property
    def rate(self) -> float | None:
        """Records a second over the last five minutes of the history; of the last batch where there is none."""
        if self.status is None or self.status.state != "running":
            return None
        recent = [one for one in rates(self.samples) if one[0] > self.samples[-1].at_ms - _RATE_SPAN_MS]
        return sum(rate for _, rate in recent) / len(recent) if recent else self.status.records_per_second

    @property
    def sparkline(self) -> Markup | None:
        return sparkline(self._of_samples("lag"), f"records behind of {self.name}", _GAP_MS)

    @property
    def charts(self) -> Mapping[str, Markup]:
        """Charts of the last hour by what they show; none without two samples."""
        drawn = {
            "records a second": line_chart(rates(self.samples), "records a second", _GAP_MS, told_rate),
            "records behind": line_chart(self._of_samples("lag"), "records behind", _GAP_MS, count),
            "duration of batches": line_chart(
                self._of_samples("batch_duration_ms"), "duration of batches", _GAP_MS, duration
            ),
        }
        return {name: chart for name, chart in drawn.items() if chart is not None}

    def _of_samples(self, field: str) -> list[tuple[int, float]]:
        found = ((one.at_ms, getattr(one.status, field)) for one in self.samples)
        return [(at_ms, number) for at_ms, number in found if number is not None]


def is_renewed(certificates: Sequence[Issued], status: StreamStatus | None) -> bool:
    """Whether the newest certificate is of a version before the one that the driver, or the reset, names."""
    if not certificates or status is None or status.stream_version is None:
        return False
    newest = certificates[0]
    return newest.kind != "unreadable" and newest.version < status.stream_version


def rates(samples: Sequence[Sample]) -> list[tuple[int, float]]:
    """Records a second between one sample and the next, where one driver gave both."""
    found = []
    for before, after in pairwise(samples):
        was, now = before.status, after.status
        seconds = (now.heartbeat_ms - was.heartbeat_ms) / 1_000
        if (was.driver_id, was.lease_epoch) == (now.driver_id, now.lease_epoch) and seconds > 0:
            found.append((after.at_ms, max(0, now.records_total - was.records_total) / seconds))
    return found


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The numbers above the lines; those that brokers say are None where they were not heard."""

    streams: int
    running: int | None
    attention: int
    findings: int
    lag: int | None
    rate: float | None

    @classmethod
    def of(cls, lines: Sequence[StreamLine]) -> Self:
        """Totals of all ``lines``, shown or not."""
        heard = all(line.heard for line in lines)
        statuses = [line.status for line in lines if line.status is not None]
        return cls(
            streams=len(lines),
            running=sum(status.state == "running" for status in statuses) if heard else None,
            attention=sum(line.needs_a_look for line in lines),
            findings=sum(line.open_findings or 0 for line in lines),
            lag=sum(known) if (known := [line.behind for line in lines if line.behind is not None]) else None,
            rate=sum(line.rate or 0 for line in lines) if heard else None,
        )


STATES: Mapping[str, tuple[str, Callable[[StreamLine], bool]]] = {
    "all": ("all", lambda _: True),
    "attention": ("need a look", lambda line: line.needs_a_look),
    "running": ("running", lambda line: line.status is not None and line.status.state == "running"),
    "stopped": ("stopped", lambda line: line.kind == "stopped"),
    "silent": ("never started", lambda line: line.kind == "silent"),
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which lines are shown: those whose name has ``text``, and that are in the ``state``; grouped ``by``."""

    text: str
    state: str
    by: Literal["module", "driver"]

    @classmethod
    def of(cls, text: str, state: str, by: str) -> Self:
        """The filter that was asked for; a state or grouping that does not exist counts as none."""
        return cls(
            text=text[:_LONGEST_TEXT].strip(),
            state=state if state in STATES else "all",
            by="driver" if by == "driver" else "module",
        )

    def has(self, line: StreamLine) -> bool:
        _, is_in_state = STATES[self.state]
        return is_in_state(line) and self.text.lower() in line.name


def sections(lines: Iterable[StreamLine], wanted: Wanted) -> Mapping[str, Sequence[StreamLine]]:
    """The wanted lines by domain or group, by name; in each those that need a look first, then by name."""
    found: dict[str, list[StreamLine]] = {}
    for line in sorted(lines, key=lambda one: (not one.needs_a_look, one.name)):
        if wanted.has(line):
            found.setdefault(line.domain if wanted.by == "module" else line.group, []).append(line)
    return dict(sorted(found.items()))


def _share(count: int, status: StreamStatus) -> float | None:
    return count / status.records_total if status.records_total > 0 else None


PATIENCE_S = 2.0
_HISTORY_PATIENCE_S = 0.3


@dataclass(frozen=True, kw_only=True)
class BrokersSay:
    """``problems`` are sentences about what could not be read; ``history_said`` says why there are no samples.

    ``heard`` False: the statuses could not be read, so that none of a stream says nothing about it. Lags that could not
    be read are the last ones that were, and have their time.
    """

    heard: bool = True
    statuses: Mapping[str, StreamStatus] = field(default_factory=dict)
    samples: Samples = field(default_factory=dict)
    lags: Mapping[str, StreamLag] = field(default_factory=dict)
    problems: Sequence[str] = field(default_factory=tuple)
    history_said: str = "No driver has spoken during the last hour."


class BrokerWatch:
    """Keeps the topics open between two pages, so that only what is new is read."""

    def __init__(
        self, connection: Connection, topics: Mapping[str, Collection[str]], patience_s: float = PATIENCE_S
    ) -> None:
        self._connection = connection
        self._streams = list(topics)
        self._statuses = BrokerReader(connection, topics, patience_s)
        self._lags: Mapping[str, StreamLag] = {}
        self._ask_history: PatientCall[Samples] = PatientCall("readers of the history", _HISTORY_PATIENCE_S)
        self._history: StatusHistory | None = None
        self._samples: Samples = {}
        self._problem: str | None = None
        self._has_read = False

    def __call__(self) -> BrokersSay:
        """The newest statuses and lags, and the history so far."""
        reading = self._statuses()
        if reading is None:
            problem = self._statuses.problem or "the brokers have not answered an earlier page yet"
            return BrokersSay(
                heard=False,
                samples=self._samples,
                lags=self._lags,
                problems=[problem],
                history_said="The brokers have not said it.",
            )
        self._ask_history(self._read_history)
        problems = [] if self._problem is None else [f"The history cannot be read: {self._problem}"]
        history = problems[0] if problems else None
        self._lags = reading.lags or self._lags
        if not reading.lags and self._statuses.lag_problem is not None:
            problems.append(f"How far streams are behind is not known now: {self._statuses.lag_problem}")
        said = BrokersSay.history_said if self._has_read else "The history is being read: load the page again."
        return BrokersSay(
            statuses=reading.statuses,
            samples=self._samples,
            lags=self._lags,
            problems=problems,
            history_said=history or said,
        )

    def _read_history(self) -> Samples:
        if self._history is None:
            self._history = StatusHistory(self._connection, self._streams)
        try:
            self._samples = self._history.refresh(clock_ms())
            self._problem, self._has_read = None, True
        except RecountError as error:
            self._history.close()
            self._history, self._problem = None, str(error)
        return self._samples


@dataclass(frozen=True, kw_only=True)
class LeftBehind:
    """One of them. ``status`` None: no driver is at work; ``certificate`` None: no finding is open."""

    name: str
    status: StreamStatus | None
    certificate: Issued | None
    runs: bool


def left_behind(
    reports: str, statuses: Mapping[str, StreamStatus], declarations: Declarations, now_ms: int
) -> list[LeftBehind]:
    """Streams left behind, by name; one whose driver has ended and without an open finding is none."""
    drivers = {status.stream: status for status in undeclared(statuses, declarations)}
    findings = dict(_open_findings(reports, declarations))
    return [
        LeftBehind(
            name=name,
            status=drivers.get(name),
            certificate=findings.get(name),
            runs=name in drivers and is_heard(drivers[name], now_ms),
        )
        for name in sorted({*drivers, *findings})
    ]


def _open_findings(reports: str, declarations: Declarations) -> list[tuple[str, Issued]]:
    """The newest certificates of streams without a declaration, where a finding was open."""
    root = Path(reports) / "certificates"
    names = [folder.name for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []
    newest = [(name, certificates(reports, name, 1)) for name in names if name not in declarations.streams]
    return [(name, found[0]) for name, found in newest if found and found[0].open_findings]
