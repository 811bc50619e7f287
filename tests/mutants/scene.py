"""A scene: a topology and a log in which one of its rules comes to its boundary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.unit.engine.engine import NOW_MS
from tests.unit.engine.random_topology_logs import Event

from recount.declare.topology import Topology

PARTITIONS = 2
LATEST_MS = NOW_MS + 3_600_000
"""The last event time that is not absurd in a batch of ``NOW_MS``, with the default ``max_future``."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A topology and its log, as the ``batches`` cut it, each with the time recorded for it in ``times_ms``.

    ``falls_back``: a partition that was idle ends behind the others. The interpreter's frontier goes back with it, so
    that results leave later than in the stream: it is not asked what they are then. ``is_interpreted``: the interpreter
    can read the values; those of a schema registry it cannot.
    """

    name: str
    topology: Topology
    batches: tuple[tuple[Event, ...], ...]
    times_ms: Sequence[int] = ()
    falls_back: bool = False
    is_interpreted: bool = True

    @property
    def partitions(self) -> dict[str, int]:
        """Of each topic that is read."""
        return {source.topic.name: PARTITIONS for source in self.topology.sources}

    @property
    def log(self) -> tuple[Event, ...]:
        """All records in the order of arrival."""
        return tuple(event for batch in self.batches for event in batch)

    def time_ms(self, batch: int) -> int:
        """The time recorded for a batch."""
        return self.times_ms[batch] if self.times_ms else NOW_MS
