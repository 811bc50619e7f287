"""The benchmark's own broker: topics made and removed, bytes on disk, what it cost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.jobs import orders_topic
from recount.declare.topics import Topic
from recount.kafka.connection import Connection
from recount.kafka.topic_drift import dead_letter_topic, platform_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.profile.daemon import recorded
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running broker that nobody else uses."""

    home: Home
    connection: Connection

    @property
    def pid(self) -> int:
        """The broker's process."""
        return next(daemon.pid for daemon in recorded(self.home) if daemon.name == "kafka-1")

    def create(self, topics: Iterable[Topic]) -> None:
        """Create topics."""
        admin = self.connection.admin()
        apply(admin, plan(admin, topics, "embedded"))

    def create_source(self, name: str) -> None:
        """Create a topic of orders with its dead-letter topic, and those that Recount needs for itself."""
        source = orders_topic(name)
        self.create([source, dead_letter_topic(source), *platform_topics()])

    def remove(self, word: str) -> None:
        """Delete every topic whose name contains ``word``; returns when they are gone."""
        admin = self.connection.admin()
        names = self._named(admin, word)
        for deleted in admin.delete_topics(names).values() if names else ():
            with contextlib.suppress(KafkaException):
                deleted.result()
        while self._named(admin, word):
            time.sleep(0.1)

    def log_bytes(self, word: str) -> int:
        """The size of the logs of all topics whose name contains ``word``."""
        data = self.home.kafka / "broker-1" / "data"
        return sum(folder_bytes(folder, "*.log") for folder in data.glob(f"*{word}*"))

    @staticmethod
    def _named(admin: AdminClient, word: str) -> list[str]:
        return [name for name in admin.list_topics(timeout=15).topics if word in name]


@contextmanager
def cluster(folder: Path, project: Project) -> Iterator[Cluster]:
    """A broker of our own in ``folder``, stopped and removed in the end."""
    home = Home(path=folder)
    try:
        with EmbeddedKafka(home=home, project=project) as kafka:
            yield Cluster(home=home, connection=Connection(bootstrap_servers=kafka.bootstrap_servers))
    finally:
        home.delete()


def folder_bytes(folder: Path, pattern: str = "*") -> int:
    """The size of the files below ``folder``; files that vanish meanwhile do not count."""
    total = 0
    for path in folder.rglob(pattern):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total
