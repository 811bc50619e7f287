"""How far each stream of a long run has come, once a second, and how long it stood still after a fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from recount.declare.topology import Topology
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection

_EVERY_S = 1.0


class ProgressWatch(threading.Thread):
    """Asks Kafka for the committed offsets of each stream; a context manager: started on entry, stopped on exit."""

    def __init__(self, connection: Connection, topologies: Sequence[Topology]) -> None:
        super().__init__(name="progress watch", daemon=True)
        self._asked: Mapping[str, tuple[Consumer, list[TopicPartition]]] = {
            topology.name: (
                connection.consumer(connection.group(topology.name)),
                [
                    TopicPartition(source.topic.name, partition)
                    for source in topology.sources
                    for partition in range(source.topic.partitions)
                ],
            )
            for topology in topologies
        }
        self._seen: dict[str, list[tuple[float, float, int]]] = {name: [] for name in self._asked}
        self._over = threading.Event()

    def __enter__(self) -> ProgressWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        for consumer, _partitions in self._asked.values():
            consumer.close()

    def run(self) -> None:
        """Until it is stopped; an answer that does not come, while a broker is away, is passed over."""
        while not self._over.wait(_EVERY_S):
            for stream, (consumer, partitions) in self._asked.items():
                asked_s = time.monotonic()
                try:
                    answers = consumer.committed(partitions, REQUEST_TIMEOUT_S)
                except KafkaException:
                    continue
                read = sum(max(0, answer.offset) for answer in answers)
                self._seen[stream].append((asked_s, time.monotonic(), read))

    def read(self, stream: str) -> int:
        """How many offsets the stream's last known commits cover."""
        seen = self._seen[stream]
        return seen[-1][2] if seen else 0

    def pause_s(self, stream: str, since_s: float) -> float | None:
        """From ``since_s`` (monotonic) until the stream was seen to have committed more; None as long as it has not."""
        after = [(answered_s, read) for asked_s, answered_s, read in self._seen[stream] if asked_s >= since_s]
        grown = (answered_s for answered_s, read in after if read > after[0][1])
        moved_s = next(grown, None)
        return None if moved_s is None else moved_s - since_s
