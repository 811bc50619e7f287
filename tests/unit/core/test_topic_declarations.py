"""What the declaration of a topic says, and what it refuses."""

from __future__ import annotations

import pytest

from recount.core.errors import InvalidDeclaration
from recount.core.registry import declared
from recount.core.topics import UNLIMITED_RETENTION_MS, Topic


def test_a_compacted_topic_keeps_the_last_record_of_each_key_for_ever() -> None:
    assert Topic(name="totals", key="id", cleanup_policy="compact").retention_ms == UNLIMITED_RETENTION_MS
    assert Topic(name="totals", key="id", cleanup_policy="compact,delete").retention_ms == 7 * 86_400_000


def test_a_retention_beside_compaction_alone_is_refused() -> None:
    with pytest.raises(InvalidDeclaration, match="compact,delete"):
        Topic(name="totals", key="id", cleanup_policy="compact", retention_ms=3_600_000)


def test_a_topic_that_is_written_on_the_way_is_declared_too() -> None:
    assert "visits" in declared("topologies.clicks").topics
