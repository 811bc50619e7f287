"""Results that Kafka deletes as soon as they are written: their event time is older than their topic's retention.

Brokers delete records of a topic whose ``cleanup.policy`` has ``delete`` by the time of the record, which for a result
is its event time, ``retention.ms`` after it. So results of 2013 in a topic that keeps seven days are gone at the
broker's next check, within five minutes; the Delta table has them.
"""

from __future__ import annotations

from recount.core.durations import readable
from recount.core.instants import told_time
from recount.core.quantities import quantity
from recount.core.topics import UNLIMITED_RETENTION_MS, Topic

REMEDY = "declare retention_ms=-1, or one that is longer than the data is old, and `recount topics --apply`"


def kept_for_ms(topic: Topic) -> int | None:
    """How long after its time a record of ``topic`` is deleted; None where none is, by its age."""
    is_kept = topic.cleanup_policy == "compact" or topic.retention_ms == UNLIMITED_RETENTION_MS
    return None if is_kept else topic.retention_ms


def oldest_kept_ms(topic: Topic, now_ms: int) -> int | None:
    """The time before which brokers delete records of ``topic`` at ``now_ms``; None where they delete none."""
    kept_ms = kept_for_ms(topic)
    return None if kept_ms is None else now_ms - kept_ms


def deleted_at_once(topic: Topic, results: int, of: int, first_ms: int) -> str:
    """The warning: so many ``results`` ``of`` all, the oldest at ``first_ms``, were too old for ``topic``."""
    return (
        f"{results:,} of {quantity(of, 'result')} in {topic.name} were older than its retention when they were written"
        f" ({readable(topic.retention_ms)}; the first is of {told_time(first_ms)}): Kafka deletes them; {REMEDY}"
    )


def will_be_deleted(topic: Topic, source: str, first_ms: int) -> str:
    """The warning before a start: ``source`` has records from ``first_ms`` on, whose results ``topic`` cannot keep."""
    return (
        f"{source} has records of {told_time(first_ms)}, and {topic.name} keeps results for "
        f"{readable(topic.retention_ms)} after their event time: Kafka would delete theirs at once; {REMEDY}"
    )
