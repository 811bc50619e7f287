"""The output of a contender as a reader with ``read_committed`` sees it: how many records the visible results count."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from bench.flow import PARTITIONS
from recount.kafka.connection import Connection


class _Result(msgspec.Struct):
    window_start: int
    orders: int


_DECODER = msgspec.json.Decoder(_Result)


@dataclass(kw_only=True)
class VisibleResults:
    """Follows an output topic from its beginning; the last result of a key and window replaces those before."""

    consumer: Consumer
    counted: int = 0
    records: int = 0
    _orders: dict[tuple[bytes, int], int] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, connection: Connection, topic: str) -> VisibleResults:
        """The results in ``topic``, none of them read yet."""
        settings = {"enable.partition.eof": True, "fetch.wait.max.ms": 5, "log_level": 0}
        consumer = connection.consumer("benchmark", settings)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        return cls(consumer=consumer)

    def read(self, timeout_s: float) -> bool:
        """Take what is there, waiting up to ``timeout_s`` for it; says whether all partitions are at their end."""
        for message in self.consumer.consume(10_000, timeout_s):
            self._take(message)
        return len(self._ended) == PARTITIONS

    def read_all(self) -> int:
        """Read to the end; returns how many records the results count."""
        while not self.read(1.0):
            pass
        self.consumer.close()
        return self.counted

    def _take(self, message: Message) -> None:
        error, partition, value = message.error(), message.partition(), message.value()
        assert partition is not None
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(partition)
            return
        self._ended.discard(partition)
        assert value is not None
        result = _DECODER.decode(value)
        place = (message.key() or b"", result.window_start)
        self.counted += result.orders - self._orders.get(place, 0)
        self._orders[place] = result.orders
        self.records += 1
