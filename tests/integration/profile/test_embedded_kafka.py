"""The brokers of the embedded profile keep what they acknowledged, whatever ends them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from tests.eventually import eventually

from recount.profile import daemon
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.runtime.errors import InvalidDeclaration, Terminal


def create(kafka: EmbeddedKafka, topic: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=replicas)])[topic].result(20)


def produce(kafka: EmbeddedKafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all", "message.timeout.ms": 30_000})
    failures: list[object] = []
    producer.produce(topic, value=value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(40) == 0
    assert failures == []


def values(kafka: EmbeddedKafka, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [bytes(message.value()) for message in consumer.consume(count, timeout=30) if not message.error()]
    finally:
        consumer.close()


def test_only_one_or_three_brokers_make_sense(tmp_path: Path, project: Project) -> None:
    with pytest.raises(InvalidDeclaration):
        EmbeddedKafka(home=Home(path=tmp_path), project=project, brokers=2)


def setting(admin: AdminClient, topic: str, name: str) -> str | None:
    """None from a broker that has not heard of the topic yet."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        value: str = admin.describe_configs([resource])[resource].result(20)[name].value
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None
    return value


def test_nothing_runs_after_the_context_and_the_shape_stays(tmp_path: Path, project: Project) -> None:
    home = Home(path=tmp_path)
    with EmbeddedKafka(home=home, project=project):
        assert [process.name for process in daemon.recorded(home)] == ["kafka-1"]
    assert daemon.sweep(home) == 0
    with pytest.raises(Terminal, match="another shape"):
        EmbeddedKafka(home=home, project=project, brokers=3).start()


@pytest.mark.thorough
def test_three_brokers_replicate_and_survive_the_loss_of_one(tmp_path: Path, project: Project) -> None:
    with EmbeddedKafka(home=Home(path=tmp_path), project=project, brokers=3) as kafka:
        create(kafka, "orders", replicas=3)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        assert eventually(lambda: setting(admin, "orders", "min.insync.replicas"), "2") == "2"
        produce(kafka, "orders", b"1")
        kafka.stop_broker(2, patience_s=0)
        produce(kafka, "orders", b"2")
        assert values(kafka, "orders", 2) == [b"1", b"2"]
