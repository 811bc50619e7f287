"""How many backfills of a stream are on Kafka is known, also once the offsets of its group have expired."""

from __future__ import annotations

import uuid

import pytest
from tests.integration.kafka.conftest import MakeTopic, Read

from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.kafka.connection import BACKFILL_SLOT, Connection
from recount.kafka.offsets import Partition
from recount.kafka.positions import backfill_counter, backfills_of, published_backfills
from recount.kafka.transaction import KafkaRecord, OutputTransaction


class Backfilled:
    """A stream that writes to ``orders``, and its backfills."""

    def __init__(self, connection: Connection, name: str, orders: str) -> None:
        source = stream(Topic(name="sales", key="till", value=RecordSchema.of(till=STRING)))
        self.connection, self.orders = connection, orders
        self.topology = Topology(name=name, sinks=[source.to(Topic(name=orders, key="till"))])

    def open(self) -> OutputTransaction:
        group = self.connection.backfill_group(self.topology.name)
        return OutputTransaction(self.connection, self.topology.name, BACKFILL_SLOT, group=group)

    def publish(self, number: int, counter: Partition) -> str:
        return self.open().commit_once(
            [KafkaRecord(topic=self.orders, key=b"till", value=b"%d" % number)],
            start_offsets={counter: number},
            end_offsets={counter: number + 1},
            batch=f"backfill {number}",
        )

    def expire(self) -> None:
        """What seven days without a backfill do."""
        [gone] = self.connection.admin().delete_consumer_groups([f"recount.{self.topology.name}.backfill"]).values()
        gone.result()

    def counts(self) -> set[int]:
        """As an audit and as the next backfill read it."""
        return {
            published_backfills(self.connection, self.topology),
            backfills_of(self.open(), self.connection),
        }


@pytest.fixture
def backfilled(connection: Connection, make_topic: MakeTopic) -> Backfilled:
    return Backfilled(connection, f"stream-{uuid.uuid4().hex}", make_topic("orders"))


def test_each_backfill_counts_once_and_also_after_the_offsets_expired(backfilled: Backfilled, read: Read) -> None:
    counter = backfill_counter(backfilled.connection)
    assert backfilled.counts() == {0}
    assert [backfilled.publish(number, counter) for number in (0, 1, 1)] == ["committed", "committed", "replayed"]
    assert backfilled.counts() == {2}
    backfilled.expire()
    assert backfilled.counts() == {2}
    assert [record.value() for record in read(backfilled.orders)] == [b"0", b"1"]
