"""``recount up``, ``status`` and ``down`` as a person calls them, and as a crash leaves them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from tests.eventually import eventually

from recount.profile import daemon
from recount.profile.daemon import LOOPBACK, is_free
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project, Running
from recount.runtime.errors import Terminal

RECOUNT = str(Path(sys.executable).with_name("recount"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(path=tmp_path / "home")
    yield home
    daemon.sweep(home, patience_s=1)


def recount(home: Home, project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RECOUNT_HOME": str(home.path)}
    return subprocess.run(
        [RECOUNT, *arguments], cwd=project.root, env=environment, capture_output=True, text=True, timeout=120
    )


def test_up_status_and_down(home: Home, project: Project) -> None:
    assert recount(home, project, "status").returncode == 1
    assert recount(home, project, "up", "--no-airflow").returncode == 0
    assert recount(home, project, "status").returncode == 0
    (broker,) = daemon.recorded(home)

    again = recount(home, project, "up", "--no-airflow")
    assert again.returncode == 0
    assert "already up" in again.stdout
    assert list(daemon.recorded(home)) == [broker]

    assert recount(home, project, "down").returncode == 0
    assert not broker.alive
    assert recount(home, project, "status").returncode == 1
    assert "nothing was running" in recount(home, project, "down").stdout


@pytest.mark.thorough
def test_up_starts_only_what_has_ended_and_at_the_ports_that_it_had(home: Home, project: Project) -> None:
    recount(home, project, "up", "--no-airflow")
    (broker,) = daemon.recorded(home)
    before = Running.read(home)
    # as a driver or an audit that is at work
    at_work = daemon.Daemon.start(home, "at-work", ["sleep", "600"], os.environ)
    os.kill(broker.pid, signal.SIGKILL)

    status = recount(home, project, "status")
    assert status.returncode == 1
    assert "ENDED" in status.stdout

    up = recount(home, project, "up")
    assert up.returncode == 0, up.stderr
    assert "kafka-1 has ended" in up.stdout
    assert "keeps the shape in which it was started" in up.stdout, "there is no Airflow in it"
    assert at_work.alive
    again = {process.name: process for process in daemon.recorded(home)}
    assert again["at-work"] == at_work
    assert again["kafka-1"].alive
    assert again["kafka-1"].pid != broker.pid
    assert Running.read(home) == before


@pytest.mark.thorough
def test_up_says_so_where_another_process_has_taken_a_port_and_ends_nothing(home: Home, project: Project) -> None:
    recount(home, project, "up", "--no-airflow")
    (broker,) = daemon.recorded(home)
    at_work = daemon.Daemon.start(home, "at-work", ["sleep", "600"], os.environ)
    daemon.end([psutil.Process(broker.pid)], patience_s=0)
    running = Running.read(home)
    assert running
    port = running.ports["kafka"][0]
    assert eventually(lambda: is_free(port), True)
    with socket.create_server((LOOPBACK, port)):
        up = recount(home, project, "up", "--no-airflow")
    assert up.returncode == 1
    assert f"port {port} of {LOOPBACK} is in use" in up.stderr
    assert at_work.alive


@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing_behind(home: Home, project: Project, interruption: signal.Signals) -> None:
    environment = {**os.environ, "RECOUNT_HOME": str(home.path)}
    up = subprocess.Popen([RECOUNT, "up", "--no-airflow"], cwd=project.root, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not list(home.run.glob("kafka-1.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (broker,) = (process for process in daemon.recorded(home) if process.name == "kafka-1")
    up.send_signal(interruption)
    assert up.wait(60) != 0
    assert not broker.alive
    assert daemon.sweep(home) == 0


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
