"""What must hold inside a batch ledger by itself; each rule says what it found wrong, where."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from recount.core.joins import StreamTableJoin
from recount.core.ledger import BatchProof, PartitionProof
from recount.core.topic_ids import TopicIds, topics_made_anew
from recount.core.topology import Topology
from recount.core.verdict import Difference

LEDGER = "batch ledger"


def ledger_faults(before: BatchProof | None, proofs: tuple[BatchProof, ...], topology: Topology) -> list[Difference]:
    """All broken rules in ``proofs``, which follow the batch ``before`` (None: they are the stream's first)."""
    in_turn = any(isinstance(node, StreamTableJoin) and node.as_of == "event" for node in topology.nodes())
    faults = [fault for proof in proofs for fault in _within(proof)]
    chain = proofs if before is None else (before, *proofs)
    for former, proof in pairwise(chain):
        faults += _batches_follow(former, proof)
        faults += _ranges_follow(former, proof)
    reached = before.frontier_ms if before else None
    for previous, proof in zip((before, *proofs), proofs, strict=False):
        faults += _idle_follows(previous, proof, topology.idle_after_ms, in_turn=in_turn)
        faults += _frontier_follows(reached, proof)
        reached = proof.frontier_ms
    return faults


def topic_faults(before: BatchProof | None, proofs: tuple[BatchProof, ...], now: TopicIds) -> list[Difference]:
    """The topics that were made anew between two of these batches, or since the last: ``now`` they have these ids."""
    chain = proofs if before is None else (before, *proofs)
    return topics_made_anew([*(proof.topic_ids for proof in chain), now])


def _within(proof: BatchProof) -> Iterator[Difference]:
    for part in proof.partitions:
        if part.records != part.fates:
            yield _fault(proof, part, "unbalanced", f"records = {part.records}", f"sum of fates = {part.fates}")
        if part.records > part.end - part.start:
            yield _fault(proof, part, "unbalanced", f"at most {part.end - part.start} records", str(part.records))


def _batches_follow(former: BatchProof, proof: BatchProof) -> Iterator[Difference]:
    follows = proof.order == (former.generation, former.batch + 1)
    begins = proof.generation == former.generation + 1 and proof.checkpoint_id != former.checkpoint_id
    if not follows and not begins:
        expected = f"batch {former.generation}/{former.batch + 1}"
        yield _fault(proof, None, "not contiguous", expected, f"batch {proof.generation}/{proof.batch}")


def _ranges_follow(former: BatchProof, proof: BatchProof) -> Iterator[Difference]:
    ends = former.ends
    for part in proof.partitions:
        expected = ends.pop((part.topic, part.partition), part.start)
        if part.start != expected:
            yield _fault(proof, part, "not contiguous", f"from offset {expected}", f"from offset {part.start}")
    for topic, partition in ends:
        yield _fault(proof, None, "not contiguous", f"{topic}-{partition}", "partition is missing")


def _idle_follows(
    former: BatchProof | None, proof: BatchProof, idle_after_ms: int, *, in_turn: bool
) -> Iterator[Difference]:
    """``in_turn``: topics are read one after the other, so that one of which nothing was read may not have been asked.

    Whether it was, the ledger does not say; so of such a topic a claim may be missing, though none may be early.
    """
    known = {(part.topic, part.partition): part for part in former.partitions} if former else {}
    read_of = {part.topic for part in proof.partitions if part.records}
    for part in proof.partitions:
        before = known.get((part.topic, part.partition))
        read = part.records > 0 or before is None
        last_read_ms = proof.batch_timestamp_ms if read or before is None else before.last_read_ms
        if part.last_read_ms != last_read_ms:
            yield _fault(proof, part, "idle clock", f"last read at {last_read_ms} ms", f"{part.last_read_ms} ms")
        quiet_ms = proof.batch_timestamp_ms - (last_read_ms or 0)
        is_idle = not part.records and quiet_ms >= idle_after_ms
        was_asked = not in_turn or not read_of or part.topic in read_of
        if part.idle and not is_idle:
            yield _fault(proof, part, "idle claim", f"idle after {idle_after_ms} ms", f"idle after {quiet_ms} ms")
        if is_idle and was_asked and not part.idle:
            yield _fault(proof, part, "idle claim", f"idle after {idle_after_ms} ms", f"awake after {quiet_ms} ms")


def _frontier_follows(reached_ms: int | None, proof: BatchProof) -> Iterator[Difference]:
    awake = [part.stream_time_ms for part in proof.partitions if not part.idle]
    known = [time for time in awake if time is not None]
    lowest = min(known) if known and len(known) == len(awake) else None
    expected = max((time for time in (reached_ms, lowest) if time is not None), default=None)
    if proof.frontier_ms != expected:
        yield _fault(proof, None, "frontier", f"{expected} ms", f"{proof.frontier_ms} ms")


def _fault(proof: BatchProof, part: PartitionProof | None, verdict: str, expected: str, actual: str) -> Difference:
    place = f"batch {proof.generation}/{proof.batch}"
    return Difference(
        kind=LEDGER,
        place=f"{place}, {part.topic}-{part.partition}" if part else place,
        verdict=verdict,
        expected=expected,
        actual=actual,
        cause="the stream's own account of the batch contradicts itself",
    )
