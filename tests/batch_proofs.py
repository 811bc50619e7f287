"""Proofs of batches for tests in which only some of what a proof says matters."""

from __future__ import annotations

from typing import Any

from recount.tables.ledger import BatchProof, PartitionProof


def a_proof(batch: int, *partitions: PartitionProof, **said: Any) -> BatchProof:
    """The batch of this number over ``partitions``; what it has besides can be ``said``."""
    always = {
        "stream": "clicks",
        "generation": 0,
        "checkpoint_id": "c",
        "lease_epoch": 1,
        "batch_timestamp_ms": batch,
        "frontier_ms": None,
    }
    return BatchProof(batch=batch, partitions=partitions, **{**always, **said})
