"""Brokers' answers about all streams, without waiting for brokers that are down, and streams left behind.

Streams left behind are declared no longer and need care: their drivers run, or their findings are open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recount.declare.registry import Declarations
from recount.kafka.connection import Connection
from recount.kafka.lags import StreamLag
from recount.kafka.leases import is_heard, undeclared
from recount.kafka.status import Samples, StatusHistory, StreamStatus
from recount.pages.issued import Issued, certificates
from recount.runtime.errors import RecountError
from recount.runtime.times import clock_ms
from recount.serve.broker_reading import BrokerReader, PatientCall

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
