"""The archive of a topic: its raw log in Delta, which outlives the topic's retention."""

from __future__ import annotations

from dataclasses import dataclass, field

from recount.core.errors import require, require_each
from recount.core.limits import Health, require_health
from recount.core.topics import Topic

LONGEST_ARCHIVED = 234
"""Airflow's names of DAGs have at most 250 characters: ``stream__archive-`` and the name of the topic."""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """Every record of ``topic`` as it came (topic, partition, offset, timestamp, key, value, headers), exactly once.

    Runs as a stream of its own named ``archive-<topic>``; nothing is decoded, so no record can be bad.
    """

    topic: Topic
    health: Health = field(default_factory=Health)

    def __post_init__(self) -> None:
        require_each("archive", [self.topic], Topic, expected="a topic", remedy="Archive(topic=orders)")
        require(
            len(self.topic.name) <= LONGEST_ARCHIVED,
            "archive",
            given=self.topic.name,
            expected=f"a topic whose name has at most {LONGEST_ARCHIVED} characters: it is in the name of a DAG",
            remedy="write the records to a topic with a shorter name, and archive that",
        )
        require_health(self.health)

    @property
    def name(self) -> str:
        """The name of the stream that writes the archive."""
        return f"archive-{self.topic.name}"
