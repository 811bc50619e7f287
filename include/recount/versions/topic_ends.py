"""What Kafka holds of topics at this moment: of those that exist."""

from __future__ import annotations

from collections.abc import Iterable

from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.offsets import LogRange, log_ranges, partitions_of


def spans_of(connection: Connection, topics: Iterable[str]) -> dict[str, dict[int, LogRange]]:
    """By topic and partition the first offset that is kept, and the one after the last."""
    admin = connection.admin()
    there = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    found: dict[str, dict[int, LogRange]] = {}
    for topic in topics:
        if topic in there:
            ranges = log_ranges(connection, partitions_of(connection, topic))
            found[topic] = {partition: span for (_, partition), span in ranges.items()}
    return found


def ends_of(connection: Connection, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """By topic and partition the offset of the next record."""
    spans = spans_of(connection, topics)
    return {topic: {part: span.end for part, span in found.items()} for topic, found in spans.items()}
