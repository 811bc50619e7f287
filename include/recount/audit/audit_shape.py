"""Which of the two audits a topology gets, and the line by which a night says that it refused a stream."""

from __future__ import annotations

import re

from recount.declare.topology import Topology
from recount.recompute.single_flow import Flow, NotRecomputable

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


_FINAL = re.compile(r"(\S+): not audited, and no retry can help: (.*)")


def not_audited(stream: str, why: str, *, final: bool) -> str:
    """The line; ``final`` where a human must act."""
    return f"{stream}: not audited{', and no retry can help' if final else ''}: {why}"


def refused_in(line: str) -> tuple[str, str] | None:
    """The stream that a final refusal names, and why; None in every other line."""
    found = _FINAL.fullmatch(line.strip())
    return (found[1], found[2]) if found else None
