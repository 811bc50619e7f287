"""What a backfill must correct: the results that late records would have changed, by the interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recount.core.durations import milliseconds
from recount.core.nodes import WindowedAggregate
from recount.core.topology import Topology
from recount.grace.lengthened import lengthened
from recount.play.arrival import Arrival
from recount.play.expected_shop import Rows, expected

_LONG_MS = milliseconds("1 d")
"""More than any planted record is late, and less than lies between the second day and the last records."""


def with_late_records(
    topology: Topology, days: Iterable[Sequence[Arrival]], partitions: Mapping[str, int]
) -> Mapping[str, Rows]:
    """The rows of each sink of ``topology`` had its windows waited for every record."""
    windowed = [node for node in topology.nodes() if isinstance(node, WindowedAggregate)]
    return expected(lengthened(topology, windowed, _LONG_MS), days, partitions).rows
