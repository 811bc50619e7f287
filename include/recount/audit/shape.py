"""Which of the two audits a topology gets: the incremental one of a single aggregation, or the general one."""

from __future__ import annotations

from recount.core.topology import Topology
from recount.recompute.flow import Flow, NotRecomputable

_KEPT_AS_PARTIALS = ("final", "each batch")
"""Emissions for which the stream keeps partial aggregates, which the incremental audit reads for causes."""


def flow_of(topology: Topology) -> Flow | None:
    """The single aggregation over time windows that ``topology`` is; None where it has another shape."""
    try:
        flow = Flow.of(topology)
    except NotRecomputable:
        return None
    is_short = not topology.actions and flow.aggregate.emission.kind in _KEPT_AS_PARTIALS
    return flow if is_short else None
