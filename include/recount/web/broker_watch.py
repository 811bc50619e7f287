"""What the brokers say of all streams, for pages that do not wait for brokers that do not answer."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from recount.core.errors import RecountError
from recount.kafka.connection import Connection
from recount.kafka.lags import StreamLag
from recount.kafka.status import StreamStatus
from recount.kafka.status_history import Samples, StatusHistory
from recount.serve.broker_reading import BrokerReader
from recount.serve.patient_call import PatientCall

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
            self._samples = self._history.refresh(time.time_ns() // 1_000_000)
            self._problem, self._has_read = None, True
        except RecountError as error:
            self._history.close()
            self._history, self._problem = None, str(error)
        return self._samples
