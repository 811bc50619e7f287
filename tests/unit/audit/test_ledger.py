"""Up to which batch a live stream is judged."""

from __future__ import annotations

from recount.audit.ledger import Ledger
from recount.core.ledger import BatchProof, PartitionProof


def batch(number: int, *ends: int) -> BatchProof:
    """A batch that left partition 0, 1, … at these offsets."""
    parts = [
        PartitionProof(topic="orders", partition=partition, start=0, end=end, records=end, counted=end)
        for partition, end in enumerate(ends)
    ]
    return BatchProof(
        stream="s",
        generation=0,
        batch=number,
        checkpoint_id="c",
        lease_epoch=1,
        batch_timestamp_ms=1_000 * number,
        partitions=tuple(parts),
        frontier_ms=None,
    )


LEDGER = Ledger((batch(0, 10, 10), batch(1, 20, 10), batch(2, 20, 20)))


def test_a_batch_whose_end_is_beyond_what_had_been_published_is_not_judged_yet() -> None:
    assert LEDGER.up_to({("orders", 0): 20, ("orders", 1): 10}).proofs == LEDGER.proofs[:2]
    assert LEDGER.up_to({("orders", 0): 19, ("orders", 1): 10}).proofs == LEDGER.proofs[:1]


def test_where_nobody_knows_what_was_published_every_batch_is_judged() -> None:
    assert LEDGER.up_to({}) == LEDGER
    assert LEDGER.up_to({("orders", 1): 10}).proofs == LEDGER.proofs[:2]
