"""What of a ledger the recompute must know beside the log: how far each batch had read, and whom it waited for."""

from __future__ import annotations

from recount.audit.ledger import Ledger
from recount.core.joins import StreamTableJoin
from recount.core.topology import Topology
from recount.recompute.graph.frontiers import BatchEnds
from recount.recompute.graph.lookups import TableEnds


def batch_ends(ledger: Ledger) -> list[BatchEnds]:
    """Every batch: where it ended, and which partitions were not idle after it."""
    return [
        BatchEnds(
            ends=proof.ends,
            awake=frozenset((part.topic, part.partition) for part in proof.partitions if not part.idle),
        )
        for proof in ledger.proofs
    ]


def table_ends(ledger: Ledger, topology: Topology) -> list[TableEnds] | None:
    """For the records of every batch, how far it read everything else; None where no operator asks for it."""
    if not any(isinstance(node, StreamTableJoin) and node.grace_ms is None for node in topology.nodes()):
        return None
    return [
        TableEnds(topic=part.topic, partition=part.partition, start=part.start, end=part.end, read=batch.ends)
        for proof, batch in zip(ledger.proofs, batch_ends(ledger), strict=True)
        for part in proof.partitions
        if part.start < part.end
    ]
