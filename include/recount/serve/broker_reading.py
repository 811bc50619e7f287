"""Reading of what Kafka says of streams at a scrape: the last status of each, and how far it is behind.

Kafka's client waits long for brokers that do not answer. A scrape does not: its calls run in threads of their own, and
what has not come in time is left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from confluent_kafka import KafkaException

from recount.kafka.connection import Connection
from recount.kafka.lags import LagWatch, StreamLag, lags_of
from recount.kafka.offsets import Partition
from recount.kafka.positions import last_position, position_key
from recount.kafka.status import StatusBoard, StreamStatus
from recount.runtime.errors import RecountError

Result = TypeVar("Result")


_LOG = logging.getLogger(__name__)
_POSITION_KEPT_S = 300.0


_POSITION_PATIENCE_S = 2.0


class PatientCall(Generic[Result]):
    """Makes one call at a time and waits for at most ``patience_s`` seconds; ``what`` names whom it asks.

    While a call that took longer still runs, nobody waits for another one.
    """

    def __init__(self, what: str, patience_s: float) -> None:
        self.problem: str | None = None
        self._what = what
        self._patience_s = patience_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=what)
        self._overdue: Future[Result] | None = None

    def __call__(self, call: Callable[[], Result]) -> Result | None:
        """The result of ``call``; None where it did not come in time or failed, and then ``problem`` says why."""
        if self._overdue is not None and not self._overdue.done():
            return None
        asked = self._pool.submit(call)
        try:
            found = asked.result(self._patience_s)
        except Late:
            if not asked.cancel():
                self._overdue = asked
            self.problem = f"the {self._what} have not answered within {self._patience_s:g} s"
        except (RecountError, KafkaException) as error:
            self.problem = f"the {self._what} cannot be asked: {error}"
        else:
            self.problem = None
            return found
        _LOG.warning("%s", self.problem)
        return None


@dataclass(frozen=True, kw_only=True)
class BrokerReading:
    """``statuses`` and ``lags`` by stream; a status has the lag that is given here, not the driver's.

    Of lags that the brokers did not say in time there are none.
    """

    statuses: Mapping[str, StreamStatus] = field(default_factory=dict)
    lags: Mapping[str, StreamLag] = field(default_factory=dict)


class BrokerReader:
    """Asks the brokers in threads of its own, one question at a time, for at most ``patience_s`` seconds.

    ``topics`` are those that each stream reads. All who ask within seconds get the same lags.
    """

    def __init__(self, connection: Connection, topics: Mapping[str, Collection[str]], patience_s: float = 5.0) -> None:
        self._connection = connection
        self._ask: PatientCall[Mapping[str, StreamStatus]] = PatientCall("brokers", patience_s)
        self._ask_lags: PatientCall[Mapping[str, StreamLag]] = PatientCall("leaders of partitions", patience_s)
        self._lags = LagWatch(lambda asked: lags_of(connection, asked, self._read_to))
        for stream, read in topics.items():
            self._lags.follow(stream, read)
        self._board: StatusBoard | None = None
        self._statuses: Mapping[str, StreamStatus] = {}
        self._positions: dict[str, tuple[float, Mapping[Partition, int]]] = {}

    @property
    def problem(self) -> str | None:
        """Why the last reading is None."""
        return self._ask.problem

    @property
    def lag_problem(self) -> str | None:
        """Why the last reading has no lags."""
        return self._ask_lags.problem

    def __call__(self) -> BrokerReading | None:
        """The newest reading; None where the brokers have not answered in time."""
        statuses = self._ask(self._read)
        if statuses is None:
            return None
        self._statuses = statuses
        lags = self._ask_lags(self._lags.now) or {}
        told = {
            name: replace(status, lag=lags[name].records, lag_at_ms=lags[name].at_ms) if name in lags else status
            for name, status in statuses.items()
        }
        return BrokerReading(statuses=told, lags=lags)

    def _read(self) -> Mapping[str, StreamStatus]:
        if self._board is None:
            self._board = StatusBoard(self._connection)
        try:
            return self._board.latest()
        except BaseException:
            self._board.close()
            self._board = None
            raise

    def _read_to(self, stream: str) -> Mapping[Partition, int]:
        """Where a stream stands whose group has no offsets: Kafka forgets them some days after the last commit."""
        if stream not in self._statuses:
            return {}
        asked_s, found = self._positions.get(stream, (float("-inf"), {}))
        if time.monotonic() - asked_s > _POSITION_KEPT_S:
            found = self._last_position(stream)
            self._positions[stream] = time.monotonic(), found
        return found

    def _last_position(self, stream: str) -> Mapping[Partition, int]:
        key = position_key(self._connection, self._connection.group(stream))
        try:
            position = last_position(self._connection, key, patience_s=_POSITION_PATIENCE_S)
        except RecountError:
            return {}
        return {} if position is None else {place: end for place, (_, end) in position.spans.items()}
