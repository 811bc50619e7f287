"""What a certificate says of lookups as of arrival: their answers are no function of the log."""

from __future__ import annotations

from recount.core.joins import StreamTableJoin
from recount.core.reading import records_of
from recount.core.topology import Topology


def lookups_by_arrival(topology: Topology) -> list[str]:
    """Every lookup that is declared ``as_of="arrival"``, in words: fidelity takes what it found from the ledger."""
    return [
        f"{node}, of {', '.join(sorted(records_of(node.right)))}"
        for node in topology.nodes()
        if isinstance(node, StreamTableJoin) and node.as_of == "arrival"
    ]
