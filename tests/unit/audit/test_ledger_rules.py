"""A batch ledger holds by itself; each rule fails when it is broken, and only then."""

from __future__ import annotations

from dataclasses import replace

from tests.batch_proofs import a_proof

from recount.audit.cut.audited_ledger import ledger_faults, topic_faults
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.tables.ledger import BatchProof, PartitionProof

IDLE_AFTER_MS = 300_000
ORDERS, CUSTOMERS = (
    Topic(name=name, key="id", value=RecordSchema.of(**{f"{name}_text": STRING})) for name in ("orders", "customers")
)
PLAIN = Topology(name="s", sinks=[stream(ORDERS).to(Topic(name="out", key="id"))], idle_after="5 min")
LOOKING_UP = Topology(
    name="s",
    sinks=[stream(ORDERS).left_join_table(table(CUSTOMERS)).to(Topic(name="out", key="id"))],
    idle_after="5 min",
)


def part(partition: int = 0, **told: object) -> PartitionProof:
    """Ten records of one partition, all counted, with stream time 1000 ms, read at 10 000 ms."""
    claims = {"start": 0, "end": 10, "records": 10, "counted": 10, "stream_time_ms": 1_000, "last_read_ms": 10_000}
    return PartitionProof(topic="orders", partition=partition, **{**claims, **told})  # type: ignore[arg-type]


def batch(number: int, *parts: PartitionProof, **told: object) -> BatchProof:
    return a_proof(number, *parts, **{"batch_timestamp_ms": 10_000, "frontier_ms": 1_000, **told})


FIRST = batch(0, part(0), part(1))
SECOND = batch(1, part(0, start=10, end=20), part(1, start=10, end=20))


def verdicts(*proofs: BatchProof, topology: Topology = PLAIN) -> list[str]:
    return [fault.verdict for fault in ledger_faults(None, proofs, topology)]


def test_batches_that_follow_each_other_have_no_fault() -> None:
    assert verdicts(FIRST, SECOND) == []
    assert ledger_faults(FIRST, (SECOND,), PLAIN) == []


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


def test_a_partition_that_was_silent_long_enough_must_be_idle() -> None:
    quiet = part(1, start=10, end=10, records=0, counted=0)
    read = part(0, start=10, end=20, last_read_ms=10_000 + IDLE_AFTER_MS)
    at_the_bound = batch(1, read, quiet, batch_timestamp_ms=10_000 + IDLE_AFTER_MS)
    assert verdicts(FIRST, at_the_bound) == ["idle claim"]
    assert verdicts(FIRST, at_the_bound, topology=LOOKING_UP) == ["idle claim"]
    before = replace(at_the_bound, batch_timestamp_ms=10_000 + IDLE_AFTER_MS - 1)
    read_then = replace(read, last_read_ms=before.batch_timestamp_ms)
    assert verdicts(FIRST, replace(before, partitions=(read_then, quiet))) == []


def test_a_topic_that_a_batch_may_not_have_asked_need_not_be_idle() -> None:
    later_ms = 10_000 + IDLE_AFTER_MS
    customers = replace(part(0), topic="customers")
    silent = part(0, start=10, end=10, records=0, counted=0)
    read = replace(customers, start=10, end=20, last_read_ms=later_ms)
    proofs = batch(0, customers, part(0)), batch(1, read, silent, batch_timestamp_ms=later_ms)
    assert verdicts(*proofs, topology=LOOKING_UP) == []
    assert verdicts(*proofs) == ["idle claim"]
    nothing = replace(read, end=10, records=0, counted=0, last_read_ms=10_000, idle=True)
    none_read = replace(proofs[1], partitions=(nothing, silent))
    assert verdicts(proofs[0], none_read, topology=LOOKING_UP) == ["idle claim"]


def test_a_topic_has_one_id_in_the_batch_before_in_those_that_are_judged_and_now() -> None:
    first, second = (replace(one, topic_ids={"orders": "a", "revenue": "r"}) for one in (FIRST, SECOND))
    same = {"orders": "a", "revenue": "r"}
    assert topic_faults(None, (first, second), same) == []
    assert topic_faults(first, (second,), same) == []
    told = [
        topic_faults(None, (first, second), {**same, "orders": "b"}),
        topic_faults(first, (replace(second, topic_ids={"orders": "b"}),), {"orders": "b"}),
        topic_faults(None, (first, replace(second, topic_ids={"orders": "b"})), {"orders": "b"}),
    ]
    assert [[(one.place, one.expected, one.actual) for one in found] for found in told] == [[("orders", "a", "b")]] * 3
