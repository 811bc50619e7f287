"""Every topic a deployment needs: the declared ones, the dead-letter topics of what is read, and Recount's own."""

from __future__ import annotations

from dataclasses import replace

from recount.core.registry import Declarations
from recount.core.topics import Topic
from recount.kafka.platform import platform_topics


def all_topics(declarations: Declarations) -> list[Topic]:
    """Sorted by name; the embedded profile later lowers the replication of all alike."""
    sources = [source.topic for topology in declarations.topologies.values() for source in topology.sources]
    dead_letters = [dead_letter_topic(source) for source in sources]
    topics = {topic.name: topic for topic in (*platform_topics(), *dead_letters, *declarations.topics.values())}
    return [topics[name] for name in sorted(topics)]


def dead_letter_topic(source: Topic) -> Topic:
    """As many partitions and replicas as ``source``; records are deleted after 30 days, never compacted."""
    return replace(
        source,
        name=source.dead_letter_name,
        value=None,
        event_time=None,
        cleanup_policy="delete",
        retention_ms=30 * 86_400_000,
        configs={},
    )
