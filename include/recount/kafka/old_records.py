"""Sources whose first records are older than the topics of their results keep anything: asked of Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import cache

from recount.core.errors import RecountError
from recount.core.reading import records_of
from recount.core.schema import BadRecord, RecordSchema
from recount.core.short_lived import oldest_kept_ms, will_be_deleted
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.offsets import log_ranges, messages, partitions_of

_TRIED = 20
"""Offsets at the beginning of a partition that are read: the first can be a transaction marker, or no good record."""


def short_lived_results(connection: Connection, topologies: Iterable[Topology]) -> Iterator[str]:
    """A warning for each sink and source of ``topologies`` of which Kafka would delete the first results at once.

    Topics that are not there, or that this user may not read, are passed over.
    """
    now_ms = time.time_ns() // 1_000_000
    topologies = list(topologies)
    topics = {source.topic.name: source.topic for topology in topologies for source in topology.sources}
    first_ms = cache(lambda name: _first_ms(connection, topics[name]))
    for topology in topologies:
        for sink in topology.written:
            oldest_ms = oldest_kept_ms(sink.topic, now_ms)
            for name in sorted(records_of(sink)) if oldest_ms is not None else ():
                at_ms = first_ms(name)
                if at_ms is not None and oldest_ms is not None and at_ms < oldest_ms:
                    yield will_be_deleted(sink.topic, name, at_ms)


def _first_ms(connection: Connection, topic: Topic) -> int | None:
    """The least event time of the first good records of the partitions of ``topic``; None where there are none."""
    try:
        found = log_ranges(connection, partitions_of(connection, topic.name))
        times = [
            _event_time_ms(topic, message.timestamp()[1], message.value())
            for place, span in found.items()
            for message in messages(
                connection, *place, span.start, min(span.start + _TRIED, span.end), "read_committed"
            )
        ]
    except RecountError:
        return None
    return min((at_ms for at_ms in times if at_ms is not None), default=None)


def _event_time_ms(topic: Topic, timestamp_ms: int, value: bytes | None) -> int | None:
    if topic.event_time is None:
        return timestamp_ms
    if value is None or topic.is_of_registry or not isinstance(topic.value, RecordSchema):
        return None
    try:
        at_ms = topic.value.decode(value, (), None)[topic.event_time]
    except BadRecord:
        return None
    return at_ms if isinstance(at_ms, int) and at_ms >= 0 else None
