"""The archive of a topic: its raw log in Delta, which outlives the topic's retention."""

from __future__ import annotations

from dataclasses import dataclass, field

from recount.core.errors import require_each
from recount.core.limits import Health, require_health
from recount.core.topics import Topic


@dataclass(frozen=True, kw_only=True)
class Archive:
    """Every record of ``topic`` as it came (topic, partition, offset, timestamp, key, value, headers), exactly once.

    Runs as a stream of its own named ``archive-<topic>``; nothing is decoded, so no record can be bad.
    """

    topic: Topic
    health: Health = field(default_factory=Health)

    def __post_init__(self) -> None:
        require_each("archive", [self.topic], Topic, expected="a topic", remedy="Archive(topic=orders)")
        require_health(self.health)

    @property
    def name(self) -> str:
        """The name of the stream that writes the archive."""
        return f"archive-{self.topic.name}"
