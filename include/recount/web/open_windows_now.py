"""Which windows of a stream still take records, by how far its newest batch has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recount.core.ledger import BatchProof
from recount.core.nodes import Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.core.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.core.topology import Topology
from recount.core.windows import TimeWindows

_AT_ONCE = (Source, Filter, WithFields, SelectKey, Select, FlatMap, Merge, Peek, Repartition, Through)
"""Operators that hold no record back."""


@dataclass(frozen=True, kw_only=True)
class OpenWindows:
    """Of one aggregation: ``number`` windows, the first starting at ``first_ms``, the last ending at ``last_end_ms``.

    ``reason`` says why they cannot be told; then there is no number.
    """

    operator: str
    reason: str | None = None
    number: int | None = None
    first_ms: int | None = None
    last_end_ms: int | None = None


def open_windows(topology: Topology, newest: BatchProof) -> list[OpenWindows]:
    """Of every windowed aggregation of ``topology``, after the batch ``newest``."""
    return [_of(node, newest) for node in topology.nodes() if isinstance(node, WindowedAggregate) and node.has_bounds]


def _of(node: WindowedAggregate, newest: BatchProof) -> OpenWindows:
    times = [part.stream_time_ms for part in newest.partitions if part.stream_time_ms is not None]
    reason = _why_not(node, newest)
    if reason or not isinstance(node.windows, TimeWindows) or newest.frontier_ms is None or not times:
        return OpenWindows(operator=str(node), reason=reason)
    windows, advance = node.windows, node.windows.advance_ms
    # the first start at which a window is open: its end and the grace lie beyond the frontier
    first = max(windows.first_start_ms, newest.frontier_ms - windows.size_ms - windows.grace_ms + 1)
    first += -(first - windows.first_start_ms) % advance
    last = max(times) - (max(times) - windows.first_start_ms) % advance
    if last < first:
        return OpenWindows(operator=str(node), number=0)
    number = (last - first) // advance + 1
    return OpenWindows(operator=str(node), number=number, first_ms=first, last_end_ms=last + windows.size_ms)


def _why_not(node: WindowedAggregate, newest: BatchProof) -> str | None:
    if not isinstance(node.windows, TimeWindows):
        return "the records of each key decide which windows there are."
    if not all(isinstance(above, _AT_ONCE) for above in _above(node)):
        return "an operator above holds records back, so that they are not counted here."
    if newest.frontier_ms is None:
        return "a partition has not had a record yet, so time has not come anywhere."
    return None


def _above(node: Node) -> Iterator[Node]:
    for one in node.inputs:
        yield one
        yield from _above(one)
