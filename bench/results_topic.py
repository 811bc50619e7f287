"""The output of a contender as a reader with ``read_committed`` sees it: how many records the visible results count."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from bench.flow import PARTITIONS
from bench.routes import ONE_TOPIC, Routes
from recount.kafka.connection import Connection


class _Result(msgspec.Struct):
    window_start: int | None = None
    orders: int = 1
    region: str | None = None


_DECODER = msgspec.json.Decoder(_Result)


@dataclass(kw_only=True)
class VisibleResults:
    """Follows the topics whose names begin with ``output``; of a key and window the last result counts.

    ``repeated`` of the results had one before them. A result in another topic than its route leads to does not count.
    """

    consumer: Consumer
    output: str
    routes: Routes
    counted: int = 0
    records: int = 0
    _orders: dict[tuple[bytes, int | None], int] = field(default_factory=dict)
    _ended: set[tuple[str, int]] = field(default_factory=set)

    @classmethod
    def of(cls, connection: Connection, output: str, routes: Routes = ONE_TOPIC) -> VisibleResults:
        """The results in all topics of ``output``, none of them read yet."""
        settings = {"enable.partition.eof": True, "fetch.wait.max.ms": 5, "log_level": 0}
        consumer = connection.consumer("benchmark", settings)
        topics = [output + ending for ending in routes.endings]
        consumer.assign([TopicPartition(topic, partition, 0) for topic in topics for partition in range(PARTITIONS)])
        return cls(consumer=consumer, output=output, routes=routes)

    @property
    def repeated(self) -> int:
        """How many of the results took the place of one before."""
        return self.records - len(self._orders)

    def read(self, timeout_s: float) -> bool:
        """Take what is there, waiting up to ``timeout_s`` for it; says whether all partitions are at their end."""
        for message in self.consumer.consume(10_000, timeout_s):
            self._take(message)
        return len(self._ended) == PARTITIONS * len(self.routes.endings)

    def read_all(self) -> int:
        """Read to the end; returns how many records the results count."""
        while not self.read(1.0):
            pass
        self.consumer.close()
        return self.counted

    def _take(self, message: Message) -> None:
        error, topic, partition, value = message.error(), message.topic(), message.partition(), message.value()
        assert topic is not None
        assert partition is not None
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._ended.add((topic, partition))
            return
        self._ended.discard((topic, partition))
        assert value is not None
        result = _DECODER.decode(value)
        if topic != self.output + self.routes.ending(result.region):
            return
        place = (message.key() or b"", result.window_start)
        self.counted += result.orders - self._orders.get(place, 0)
        self._orders[place] = result.orders
        self.records += 1
