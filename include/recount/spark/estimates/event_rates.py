"""Records a second of event time, from the proofs of a stream's batches."""

from __future__ import annotations

from collections.abc import Sequence

from recount.core.ledger import BatchProof

NEWEST_BATCHES = 200
"""Of how many of the newest batches a stream's figures are."""


def event_rates(proofs: Sequence[BatchProof]) -> dict[str, float]:
    """By topic, from ``proofs`` of which the newest is the first.

    Records of all batches but the oldest, over how far stream time came in them: 600 records in a minute are 10/s.
    """
    oldest, newer = proofs[-1], proofs[:-1]
    rates = {}
    for topic in {part.topic for part in oldest.partitions}:
        records = sum(part.records for proof in newer for part in proof.partitions if part.topic == topic)
        passed_ms = _reached_ms(proofs[0], topic) - _reached_ms(oldest, topic)
        if records and passed_ms > 0:
            rates[topic] = records * 1_000 / passed_ms
    return rates


def _reached_ms(proof: BatchProof, topic: str) -> int:
    return max((part.stream_time_ms or 0 for part in proof.partitions if part.topic == topic), default=0)
