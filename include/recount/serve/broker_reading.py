"""What Kafka says of streams at a scrape: the last status of each, and where the topics that they read end.

Kafka's client waits long for brokers that do not answer. A scrape does not: what has not come in time is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.offsets import log_ranges
from recount.kafka.status import StatusBoard, StreamStatus
from recount.serve.patient_call import PatientCall

Partition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class BrokerReading:
    """``statuses`` by stream; ``ends`` are the next offsets to be written or decided, by partition."""

    statuses: Mapping[str, StreamStatus] = field(default_factory=dict)
    ends: Mapping[Partition, int] = field(default_factory=dict)


class BrokerReader:
    """Asks the brokers in a thread of its own, one question at a time, for at most ``patience_s`` seconds."""

    def __init__(self, connection: Connection, patience_s: float = 5.0) -> None:
        self._connection = connection
        self._ask: PatientCall[BrokerReading] = PatientCall("brokers", patience_s)
        self._board: StatusBoard | None = None

    @property
    def problem(self) -> str | None:
        """Why the last reading is None."""
        return self._ask.problem

    def __call__(self, partitions: Collection[Partition]) -> BrokerReading | None:
        """The newest reading; None where the brokers have not answered in time."""
        return self._ask(lambda: self._read(partitions))

    def _read(self, partitions: Collection[Partition]) -> BrokerReading:
        if self._board is None:
            self._board = StatusBoard(self._connection)
        try:
            statuses = self._board.latest()
            known = self._connection.admin().list_topics(timeout=REQUEST_TIMEOUT_S).topics
            # a topic that was deleted says nothing, and the others do
            there = [(topic, part) for topic, part in partitions if topic in known and part in known[topic].partitions]
            ends = {place: span.end for place, span in log_ranges(self._connection, there).items()}
        except BaseException:
            self._board.close()
            self._board = None
            raise
        return BrokerReading(statuses=statuses, ends=ends)
