"""How far each stream of a deployment has read its topics, by the offsets that its batches have committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recount.core.registry import Declarations
from recount.kafka.connection import Connection
from recount.kafka.lags import lags_of


class ShopReading:
    """Looks at the streams of ``declarations``, whose topics are there."""

    def __init__(self, connection: Connection, declarations: Declarations) -> None:
        self._connection = connection
        self._topics = declarations.read_topics

    def unread(self, streams: Iterable[str] | None = None) -> Mapping[str, int]:
        """Of each of ``streams`` (None: of all) how many records of its topics no batch has committed.

        Raises ``Transient`` where no broker says so.
        """
        asked = {stream: self._topics[stream] for stream in (self._topics if streams is None else streams)}
        return {stream: lag.records for stream, lag in lags_of(self._connection, asked).items()}
