"""A batch ledger holds by itself; each rule fails when it is broken, and only then."""

from __future__ import annotations

from dataclasses import replace

from recount.audit.ledger_rules import ledger_faults
from recount.core.ledger import BatchProof, PartitionProof

IDLE_AFTER_MS = 300_000


def part(partition: int = 0, **told: object) -> PartitionProof:
    """Ten records of one partition, all counted, with stream time 1000 ms, read at 10 000 ms."""
    claims = {"start": 0, "end": 10, "records": 10, "counted": 10, "stream_time_ms": 1_000, "last_read_ms": 10_000}
    return PartitionProof(topic="orders", partition=partition, **{**claims, **told})  # type: ignore[arg-type]


def batch(number: int, *parts: PartitionProof, **told: object) -> BatchProof:
    claims = {"generation": 0, "checkpoint_id": "c", "batch_timestamp_ms": 10_000, "frontier_ms": 1_000}
    return BatchProof(stream="s", batch=number, lease_epoch=1, partitions=parts, **{**claims, **told})  # type: ignore[arg-type]


FIRST = batch(0, part(0), part(1))
SECOND = batch(1, part(0, start=10, end=20), part(1, start=10, end=20))


def verdicts(*proofs: BatchProof) -> list[str]:
    return [fault.verdict for fault in ledger_faults(None, proofs, IDLE_AFTER_MS)]


def test_batches_that_follow_each_other_have_no_fault() -> None:
    assert verdicts(FIRST, SECOND) == []
    assert ledger_faults(FIRST, (SECOND,), IDLE_AFTER_MS) == []


def test_a_missing_batch_and_a_gap_between_ranges_are_not_contiguous() -> None:
    assert verdicts(FIRST, replace(SECOND, batch=2)) == ["not contiguous"]
    gap = replace(SECOND, partitions=(part(0, start=11, end=20, records=9, counted=9), SECOND.partitions[1]))
    assert verdicts(FIRST, gap) == ["not contiguous"]
    assert verdicts(FIRST, batch(1, SECOND.partitions[0])) == ["not contiguous"]


def test_a_new_generation_begins_with_a_new_checkpoint() -> None:
    assert verdicts(FIRST, replace(SECOND, generation=1, batch=0, checkpoint_id="d")) == []
    assert verdicts(FIRST, replace(SECOND, generation=1, batch=0)) == ["not contiguous"]


def test_records_without_a_fate_or_beyond_the_offsets_do_not_balance() -> None:
    assert verdicts(batch(0, part(counted=9))) == ["unbalanced"]
    assert verdicts(batch(0, part(records=11, counted=11))) == ["unbalanced"]


def test_the_frontier_is_the_smallest_stream_time_and_never_falls_back() -> None:
    assert verdicts(batch(0, part(0), part(1, stream_time_ms=900), frontier_ms=1_000)) == ["frontier"]
    assert verdicts(batch(0, part(0), part(1, stream_time_ms=900), frontier_ms=900)) == []
    slower = replace(SECOND, partitions=(part(0, start=10, end=20, stream_time_ms=900), SECOND.partitions[1]))
    assert verdicts(FIRST, replace(slower, frontier_ms=900)) == ["frontier"]
    assert verdicts(FIRST, replace(slower, frontier_ms=1_000)) == []


def test_a_partition_without_a_record_holds_the_frontier_back() -> None:
    silent = part(1, end=0, records=0, counted=0, stream_time_ms=None)
    assert verdicts(batch(0, part(0), silent, frontier_ms=None)) == []
    assert verdicts(batch(0, part(0), silent, frontier_ms=1_000)) == ["frontier"]


def test_a_partition_is_idle_only_after_idle_after_without_a_record() -> None:
    def later(after_ms: int, **told: object) -> BatchProof:
        quiet = part(1, start=10, end=10, records=0, counted=0, idle=True, **told)
        moving = part(0, start=10, end=20, stream_time_ms=2_000, last_read_ms=10_000 + after_ms)
        return batch(1, moving, quiet, batch_timestamp_ms=10_000 + after_ms, frontier_ms=2_000)

    assert verdicts(FIRST, later(IDLE_AFTER_MS - 1)) == ["idle claim"]
    assert verdicts(FIRST, later(IDLE_AFTER_MS)) == []
    assert verdicts(FIRST, later(IDLE_AFTER_MS, last_read_ms=9_999)) == ["idle clock"]
