"""The rows of a stream's sinks of which a person has accepted what differs."""

from __future__ import annotations

from collections.abc import Iterable

from recount.audit.causes import OUTPUT
from recount.audit.completeness import CORRECTION
from recount.audit.register import places_of
from recount.core.finding import Finding
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.topology import Topology

ROW = ("sink", "key", WINDOW_START, WINDOW_END, "origin")
AcceptedRow = tuple[str, str | None, int | None, int | None, str | None]
"""A row as ``ROW`` names it, the sink by its topic."""


def accepted_rows(topology: Topology, accepted: Iterable[Finding], place: str) -> list[AcceptedRow]:
    """Those of findings about outputs in ``place``, each once."""
    places = places_of(topology)
    found = [(places.get(one.difference.place), one) for one in accepted if one.difference.kind == OUTPUT]
    return sorted({_row(one, where[1]) for where, one in found if where is not None and where[0] == place}, key=str)


def accepted_corrections(accepted: Iterable[Finding]) -> list[AcceptedRow]:
    """Those of findings about corrections of backfills."""
    return sorted({_row(one, one.difference.place) for one in accepted if one.difference.kind == CORRECTION}, key=str)


def _row(finding: Finding, sink: str) -> AcceptedRow:
    one = finding.difference
    return (sink, one.key, one.window_start, one.window_end, one.origin)
