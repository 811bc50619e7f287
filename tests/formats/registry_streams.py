"""A stream of values of a real registry in tests: its settings, its records, its run and its audit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession
from tests.integration.spark.drivers import committed

from recount.audit.nightly import audited
from recount.core.settings import Settings
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.kafka.connection import Connection
from recount.local.kafka import EmbeddedKafka
from recount.local.ports import free_ports
from recount.local.project import Project
from recount.spark.batch import TopologyWork
from recount.spark.runner import RunOptions, StreamRunner


def settings_for(module: ModuleType, folder: Path, kafka: EmbeddedKafka, project: Project) -> Settings:
    """For the topologies of ``module``, with the address of a registry that does not run yet."""
    return Settings(
        profile="embedded",
        bootstrap_servers=kafka.bootstrap_servers,
        jars=str(project.spark_jars),
        topologies=module.__name__,
        schema_registry=f"http://127.0.0.1:{free_ports(1)[0]}/apis/ccompat/v7",
        **{name: str(folder / name) for name in ("data", "checkpoints", "reports", "logs", "run")},
    )


def port_of(settings: Settings) -> int:
    """That of the registry."""
    return int(settings.schema_registry.split(":")[2].partition("/")[0])


def send(settings: Settings, topic: Topic, values: Sequence[bytes]) -> None:
    """To the topic, with the keys p0, p1, …"""
    producer = Connection.of(settings).producer()
    for number, value in enumerate(values):
        producer.produce(topic.name, key=f"p{number}".encode(), value=value)
    assert producer.flush(60) == 0


def run(spark: SparkSession, settings: Settings, topology: Topology) -> None:
    """To the end of the topics."""
    StreamRunner(spark, settings, TopologyWork(topology, settings.data), RunOptions(available_now=True)).run()


def outcome(spark: SparkSession, settings: Settings, topology: Topology) -> str:
    """That of an audit."""
    return str(json.loads(audited(spark, settings, topology).certificate.read_text())["outcome"])


def letters(settings: Settings, topic: Topic) -> list[str]:
    """The headers of the dead letters of the topic, as text."""
    return [str(message.headers()) for message in committed(Connection.of(settings), topic.dead_letter_name)]
