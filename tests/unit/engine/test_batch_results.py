"""What a driver tells of late and bad records counts every batch, however fast they follow each other."""

from __future__ import annotations

from tests.batch_proofs import a_proof

from recount.engine.exchange.work import BatchResult
from recount.tables.ledger import PartitionProof


def result(batch: int, late: int, dead_lettered: int) -> BatchResult:
    part = PartitionProof(topic="orders", partition=0, start=0, end=9, late=late, dead_lettered=dead_lettered)
    proof = a_proof(batch, part, part)
    return BatchResult(proof=proof, kafka_ms=0, delta_ms=0)


def test_totals_hold_the_batches_that_no_progress_report_was_seen_of() -> None:
    first = result(0, late=1, dead_lettered=2).after(None)
    third = result(2, late=0, dead_lettered=1).after(result(1, late=2, dead_lettered=0).after(first))
    assert (third.late_total, third.dead_letters_total) == (6, 6)
