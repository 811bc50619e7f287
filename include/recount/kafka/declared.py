"""Every topic a deployment needs: the declared ones, the dead-letter topics of what is read, and Recount's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from recount.core.errors import require
from recount.core.registry import Declarations
from recount.core.topics import CREATE_TIME, FARTHEST_AHEAD, TIMESTAMP_TYPE, Topic
from recount.core.topology import Topology
from recount.kafka.platform import platform_topics
from recount.kafka.topic_drift import LEAST_IN_SYNC_REPLICAS, LEAST_REPLICATION_FACTOR

_KAFKA_TAKES_MS = 3_600_000
"""What brokers take of records ahead of their clock where the topic says nothing, since Kafka 4."""
_CLOCKS_APART_MS = 3_600_000
_OWN_TIME = {TIMESTAMP_TYPE: CREATE_TIME}


def all_topics(declarations: Declarations, named: Callable[[str], str] = str) -> list[Topic]:
    """Sorted by name, ``owned`` where a topology writes to it; the embedded profile later lowers the replication.

    ``named`` says what the installation calls its own topics (``Connection.own``). Raises ``InvalidDeclaration`` where
    a sink writes to one of these.
    """
    topologies = declarations.topologies.values()
    read = [source.topic for topology in topologies for source in topology.sources]
    written = [topic for topology in topologies for topic in _written(topology)]
    platform = platform_topics(named)
    taken = sorted({topic.name for topic in platform} & {topic.name for topic in written})
    require(
        not taken,
        "topic name",
        given=f"a sink writes to {', '.join(taken)}",
        expected=f"another name than those of Recount's own topics: {', '.join(topic.name for topic in platform)}",
        remedy="give the sink another topic, or the installation another RECOUNT_PREFIX",
    )
    ours = [*platform, *map(dead_letter_topic, read), *written]
    topics = {topic.name: topic for topic in (*declarations.topics.values(), *ours)}
    return [topics[name] for name in sorted(topics)]


def _written(topology: Topology) -> Iterator[Topic]:
    """What ``topology`` writes to. Results have the times of records: up to ``max_future`` ahead of the clock.

    A cluster can have ``LogAppendTime`` as its default: then each result would have another time than the log gives it.
    """
    ahead_ms = topology.max_future_ms
    limit = {FARTHEST_AHEAD: str(ahead_ms + _CLOCKS_APART_MS)} if ahead_ms > _KAFKA_TAKES_MS else {}
    for node in topology.written:
        yield replace(node.topic, owned=True, configs={**_OWN_TIME, **limit, **node.topic.configs})


def dead_letter_topic(source: Topic) -> Topic:
    """As many partitions as ``source``; records are deleted after 30 days, never compacted.

    It has as many replicas, or as many as a topic of ours must have: ``source`` can be one of others that has fewer.
    """
    return replace(
        source,
        replication_factor=max(source.replication_factor, LEAST_REPLICATION_FACTOR),
        min_insync_replicas=max(source.min_insync_replicas, LEAST_IN_SYNC_REPLICAS),
        name=source.dead_letter_name,
        value=None,
        encoding="json",
        key_form="text",
        event_time=None,
        cleanup_policy="delete",
        retention_ms=30 * 86_400_000,
        configs={},
        owned=True,
    )
