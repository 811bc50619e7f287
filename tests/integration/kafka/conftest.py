"""A connection to the real broker, topics of one's own, and what an ordinary reader sees."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Message
from tests.eventually import eventually
from tests.integration.engine.drivers import committed

from recount.declare.topics import Topic
from recount.kafka.connection import Connection
from recount.kafka.topics_on_cluster import apply, ids_of, plan

MakeTopic = Callable[..., str]
Read = Callable[[str], list[Message]]


@pytest.fixture
def make_topic(connection: Connection, unique: Callable[[str], str]) -> MakeTopic:
    """Creates a topic like ``make_topic("orders", partitions=2)`` and returns its full name.

    It keeps records for ever: the broker would delete those with a timestamp of years ago at its next check.
    """

    def make(name: str, partitions: int = 1, **declared: object) -> str:
        forever = {"retention_ms": -1, **declared}
        topic = Topic(name=unique(name), key="key", partitions=partitions, **forever)  # type: ignore[arg-type]
        admin = connection.admin()
        apply(admin, plan(admin, [topic], "embedded"))
        # the controller has answered; the broker may learn of the topic only now
        assert eventually(lambda: list(ids_of(connection, [topic.name])), [topic.name]) == [topic.name]
        return topic.name

    return make


@pytest.fixture
def read(connection: Connection) -> Read:
    """All committed records of a topic, partition by partition, in offset order."""
    return partial(committed, connection)
