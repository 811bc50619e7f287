"""A small flow with all that goes wrong: out of order, late, null keys, bad records, a lagging partition."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from recount.declare.aggregates import average, count, first, total
from recount.declare.expressions import col
from recount.declare.flow import stream
from recount.declare.schema import LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import session, tumbling
from recount.kafka.connection import Connection
from recount.kafka.topic_drift import dead_letter_topic, platform_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.kafka.transaction import KafkaRecord

PARTITIONS = 3
START_MS = 1_700_000_000_000
STEP_MS = 100
"""Between two records of a partition: a window of 10 s holds a hundred of them."""


def purchases_topic(name: str) -> Topic:
    schema = RecordSchema.of(id=STRING, region=STRING, amount=decimal(12, 2), required=("id", "amount"))
    return Topic(name=name, key="id", value=schema, partitions=PARTITIONS, retention_ms=-1)


def revenue(name: str, source: Topic, *, grace: str = "2 s") -> Topology:
    """Revenue by region in windows of 10 s, written to the topic ``<name>-revenue``."""
    results = Topic(name=f"{name}-revenue", key="region", partitions=2, retention_ms=-1)
    return Topology(
        name=name,
        sinks=[
            stream(source)
            .select_key(region=col("region"))
            .windowed_by(tumbling("10 s", grace=grace))
            .aggregate(purchases=count(), revenue=total("amount"))
            .emit_final()
            .to(results)
        ],
    )


def deliveries_topic(name: str) -> Topic:
    return Topic(name=name, key="id", value=RecordSchema.of(days=LONG), partitions=PARTITIONS, retention_ms=-1)


def journeys(name: str, source: Topic, deliveries: Topic) -> Topology:
    """Each purchase with its delivery, if it has one; and of each region its busy times, with what was sold in them."""
    delivered = Topic(name=f"{name}-delivered", key="id", partitions=2, retention_ms=-1)
    busy = Topic(name=f"{name}-busy", key="region", partitions=2, retention_ms=-1)
    bought = stream(source)
    return Topology(
        name=name,
        sinks=[
            bought.left_join(stream(deliveries), before="10 s", after="10 s", grace="2 s").to(delivered),
            bought.select_key(region=col("region"))
            .windowed_by(session("300 ms", grace="2 s"))
            .aggregate(purchases=count(), mean=average("amount"), first_id=first("id"))
            .emit_final()
            .to(busy),
        ],
    )


def create_topics(connection: Connection, topologies: Iterable[Topology]) -> None:
    topics = {topic.name: topic for topic in platform_topics()}
    for topology in topologies:
        read = [source.topic for source in topology.sources]
        dead_letters = [replace(dead_letter_topic(topic), retention_ms=-1) for topic in read]
        topics |= {topic.name: topic for topic in (*read, *dead_letters, *(sink.topic for sink in topology.sinks))}
    admin = connection.admin()
    apply(admin, plan(admin, topics.values(), "embedded"))


def purchases(topic: str, start: int, length: int, seed: int = 7, *, step_ms: int = STEP_MS) -> Iterator[KafkaRecord]:
    """Records ``start`` to ``start + length`` of the flow; partition 2 is 15 s behind the others."""
    for number in range(start, start + length):
        chance = random.Random(f"{seed}/{number}")
        partition = number % PARTITIONS
        time_ms = START_MS + number // PARTITIONS * step_ms - (15_000 if partition == 2 else 0)
        time_ms -= 15_000 if chance.random() < 0.02 else chance.randrange(2_000)
        value = {
            "id": str(number),
            "region": chance.choice(["EU", "US", "APAC", "Österreich", None]),
            "amount": chance.randrange(10_000) / 100,
        }
        text = b"{broken" if chance.random() < 0.01 else json.dumps(value).encode()
        yield KafkaRecord(
            topic=topic, key=str(number).encode(), value=text, partition=partition, timestamp_ms=max(time_ms, START_MS)
        )


def deliveries(topic: str, of: Iterable[KafkaRecord]) -> Iterator[KafkaRecord]:
    """A delivery for every other purchase, up to 12 s after it: the last ones come too late for it."""
    for number, purchase in enumerate(of):
        if number % 2:
            after_ms = random.Random(number).randrange(12_000)
            value = json.dumps({"days": after_ms // 1_000}).encode()
            yield purchase._replace(topic=topic, value=value, timestamp_ms=(purchase.timestamp_ms or 0) + after_ms)


def produce(connection: Connection, records: Iterable[KafkaRecord]) -> None:
    producer = connection.producer()
    for record in records:
        assert record.partition is not None
        producer.produce(
            record.topic,
            key=record.key,
            value=record.value,
            partition=record.partition,
            timestamp=record.timestamp_ms or 0,
            headers=[("source", b"purchases")],
        )
    assert producer.flush(30) == 0
