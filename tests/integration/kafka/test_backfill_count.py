"""How many backfills of a stream are on Kafka is known, however its sinks are declared."""

from __future__ import annotations

import uuid

import pytest
from tests.integration.kafka.conftest import MakeTopic, Read

from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.kafka.backfill_count import backfill_counter, backfills_of, published_backfills
from recount.kafka.connection import BACKFILL_SLOT, Connection
from recount.kafka.offsets import Partition
from recount.kafka.transaction import KafkaRecord, OutputTransaction


class Backfilled:
    """A stream with two sinks, ``orders`` and ``returns``, and its backfills."""

    def __init__(self, connection: Connection, name: str, orders: str, returns: str) -> None:
        source = stream(Topic(name="sales", key="till", value=RecordSchema.of(till=STRING)))
        sinks = [source.to(Topic(name=topic, key="till")) for topic in (orders, returns)]
        self.connection, self.orders, self.returns = connection, orders, returns
        self.topology = Topology(name=name, sinks=sinks)
        self.reordered = Topology(name=name, sinks=sinks[::-1])

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
        """As an audit and as the next backfill are told, with the sinks in either order."""
        both, output = (self.topology, self.reordered), self.open()
        asked = {published_backfills(self.connection, topology) for topology in both}
        return asked | {backfills_of(output, self.connection, topology) for topology in both}


@pytest.fixture
def backfilled(connection: Connection, make_topic: MakeTopic) -> Backfilled:
    return Backfilled(connection, f"stream-{uuid.uuid4().hex}", make_topic("orders"), make_topic("returns"))


def test_the_order_of_the_sinks_does_not_count(backfilled: Backfilled, read: Read) -> None:
    counter = backfill_counter(backfilled.connection)
    assert backfilled.counts() == {0}
    assert [backfilled.publish(number, counter) for number in (0, 1, 1)] == ["committed", "committed", "replayed"]
    assert backfilled.counts() == {2}
    backfilled.expire()
    assert backfilled.counts() == {2}
    assert [record.value() for record in read(backfilled.orders)] == [b"0", b"1"]


def test_what_was_counted_by_the_topic_of_a_sink_counts(backfilled: Backfilled) -> None:
    for number in range(2):
        assert backfilled.publish(number, (backfilled.returns, 0)) == "committed"
    assert backfilled.counts() == {2}
    assert backfilled.publish(2, backfill_counter(backfilled.connection)) == "committed"
    assert backfilled.counts() == {3}
    backfilled.expire()
    assert backfilled.counts() == {3}


def test_a_stream_of_actions_alone_has_no_backfills(backfilled: Backfilled) -> None:
    topic = Topic(name="sales", key="till", value=RecordSchema.of(till=STRING))
    topology = Topology(name=backfilled.topology.name, actions=[stream(topic).foreach(print)])
    assert published_backfills(backfilled.connection, topology) == 0
