"""Differences of rows whose key lies in several partitions: the order of its records can be why they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recount.audit.causes import OUTPUT
from recount.audit.completeness import COMPLETENESS
from recount.core.keys_in_partitions import in_several_partitions
from recount.core.topology import Topology
from recount.core.verdict import Difference
from recount.recompute.graph.recomputed import Recomputed

_OF_ROWS = (OUTPUT, COMPLETENESS)


def with_partitions(differences: Sequence[Difference], topology: Topology, truth: Recomputed) -> list[Difference]:
    """``differences``, with the partitions in the cause of those whose key lies in several, and an offset in each.

    Of topologies with an operator to which the order of a record key's records means something, and of the log that was
    recomputed; a key that changed partition between two audits lies in one there.
    """
    topics = [source.topic.name for source in topology.sources if in_several_partitions(topology, source.topic.name)]
    keys = {one.key for one in differences if one.kind in _OF_ROWS and one.key is not None}
    if not topics or not keys:
        return list(differences)
    places = truth.partitions_of(topics, keys)
    return [_with(one, places.get(one.key, ())) if one.kind in _OF_ROWS and one.key else one for one in differences]


def _with(difference: Difference, places: Sequence[str]) -> Difference:
    if not places:
        return difference
    said = f"this key lies in several partitions, whose order counts: first at {', '.join(places)}"
    return replace(
        difference,
        cause=f"{difference.cause}; {said}" if difference.cause else said,
        evidence=(*difference.evidence, *(one for one in places if one not in difference.evidence)),
    )
