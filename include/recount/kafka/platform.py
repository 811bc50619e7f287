"""The topics Recount itself needs, declared like any other."""

from __future__ import annotations

from recount.core.topics import Topic

STATUS = "recount.status"
HISTORY = "recount.history"
CONTROL = "recount.control"


def platform_topics() -> tuple[Topic, ...]:
    """The last status of every driver, the history of these, and the orders to drivers; one partition keeps order."""
    return (
        Topic(name=STATUS, key="stream", partitions=1, cleanup_policy="compact", retention_ms=-1),
        Topic(name=HISTORY, key="stream", partitions=1, retention_ms=7 * 86_400_000),
        Topic(name=CONTROL, key="stream", partitions=1, cleanup_policy="compact", retention_ms=-1),
    )
