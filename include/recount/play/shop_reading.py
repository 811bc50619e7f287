"""How far each stream of a deployment has read its topics, by the offsets that its batches have committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recount.core.registry import Declarations
from recount.kafka.connection import Connection
from recount.kafka.offsets import committed_offsets, log_ranges, partitions_of


class ShopReading:
    """Looks at the streams of ``declarations``, whose topics are there."""

    def __init__(self, connection: Connection, declarations: Declarations) -> None:
        self._connection = connection
        self._topics = {name: _topics_of(declarations, name) for name in declarations.streams}
        names = {topic for topics in self._topics.values() for topic in topics}
        self._partitions = {topic: partitions_of(connection, topic) for topic in names}

    def unread(self, streams: Iterable[str] | None = None) -> Mapping[str, int]:
        """Of each of ``streams`` (None: of all) how many records of its topics no batch has committed.

        Each costs a client of Kafka of its own. Raises ``Transient`` where no broker says so.
        """
        places_of = {
            stream: [place for topic in self._topics[stream] for place in self._partitions[topic]]
            for stream in (self._topics if streams is None else streams)
        }
        ends = log_ranges(self._connection, {place for places in places_of.values() for place in places})
        found = {}
        for stream, places in places_of.items():
            read = committed_offsets(self._connection, self._connection.group(stream), places)
            found[stream] = sum(ends[place].end - read.get(place, 0) for place in places)
        return found


def _topics_of(declarations: Declarations, stream: str) -> list[str]:
    if stream in declarations.archives:
        return [declarations.archives[stream].topic.name]
    return [topic for layer in declarations.topologies[stream].layers for topic in layer]
