"""A batch ledger: up to which batch it is judged, and that it holds by itself; each rule fails when it is broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import a_run
from tests.unit.engine.ledger_scene import ROWS, STREAM, LedgerScene, proof_of

from recount.audit.cut import auditable
from recount.audit.cut.auditable import judgeable_offsets, settled_since
from recount.audit.cut.audited_ledger import Ledger, ledger_faults, topic_faults
from recount.certificate.finding import finding_id
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.kafka.connection import Connection
from recount.runtime.errors import Terminal
from recount.tables.ledger import BatchProof, PartitionProof, TopicIds, topics_made_anew
from recount.tables.places import Tables

COPIES = Topology(
    name=STREAM,
    sinks=[
        stream(Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))).to(Topic(name="out", key="user"))
    ],
)


def batch(number: int, *ends: int) -> BatchProof:
    """A batch that left partition 0, 1, … at these offsets."""
    parts = [
        PartitionProof(topic="orders", partition=partition, start=0, end=end, records=end, counted=end)
        for partition, end in enumerate(ends)
    ]
    return a_proof(number, *parts, batch_timestamp_ms=1_000 * number)


LEDGER = Ledger((batch(0, 10, 10), batch(1, 20, 10), batch(2, 20, 20)))


def test_a_batch_whose_end_is_beyond_what_had_been_published_is_not_judged_yet() -> None:
    assert LEDGER.up_to({("orders", 0): 20, ("orders", 1): 10}).proofs == LEDGER.proofs[:2]
    assert LEDGER.up_to({("orders", 0): 19, ("orders", 1): 10}).proofs == LEDGER.proofs[:1]
    assert LEDGER.up_to({("orders", 1): 10}).proofs == LEDGER.proofs[:2]
    assert LEDGER.up_to({}) == LEDGER, "nobody knows what was published"


def test_a_batch_that_was_judged_can_stand_as_if_it_had_read_nothing() -> None:
    standing = LEDGER.standing_at((0, 1))
    assert (standing.stands, standing.ranges) == (True, {"orders": {0: (20, 20), 1: (10, 10)}})
    assert [part.fates for part in standing.proofs[0].partitions] == [0, 0]
    assert not LEDGER.between((0, 0), (0, 1)).stands


def test_the_ledger_is_read_in_order_wherever_its_proofs_lie(tmp_path: Path) -> None:
    with pytest.raises(Terminal) as refused:
        Ledger.read(Tables(str(tmp_path)), STREAM)
    assert refused.value.given == str(tmp_path / "streams" / STREAM / "state"), "it never ran"
    scene = LedgerScene(tmp_path)
    scene.commit(0, 1)
    moved = Path(scene.ledger.table.path)
    moved.rename(tmp_path / "as in earlier releases")
    assert Ledger.read(Tables(str(tmp_path)), STREAM).proofs == (proof_of(0), proof_of(1))
    (tmp_path / "as in earlier releases").rename(moved)
    scene.commit(2)
    scene.ledger.move()
    scene.commit(0, 1, generation=1)
    found = Ledger.read(Tables(str(tmp_path)), STREAM)
    assert found.proofs == (*map(proof_of, (0, 1, 2)), proof_of(0, generation=1), proof_of(1, generation=1))


@pytest.mark.parametrize(("moved", "later"), [(False, 0), (True, 0), (True, 2)])
def test_a_part_of_the_ledger_is_read_wherever_its_proofs_lie(tmp_path: Path, moved: bool, later: int) -> None:
    scene = LedgerScene(tmp_path)
    scene.commit(0, 1, 2, 3)
    if moved:
        scene.ledger.move()
        scene.commit(*range(4, 4 + later))
    tables, last = Tables(str(tmp_path)), 3 + later
    for first in (0, 2, 3, last):
        found = Ledger.read(tables, STREAM, (0, first))
        assert found.proofs == tuple(proof_of(batch) for batch in range(first, last + 1))
    assert Ledger.read(tables, STREAM, (1, 0)).proofs == ()
    assert Ledger.newest(tables, STREAM) == proof_of(last)


@pytest.mark.parametrize("moved", [0, 2, 4])
def test_the_last_batch_that_was_recorded_by_some_time_is_found_wherever_it_lies(tmp_path: Path, moved: int) -> None:
    scene = LedgerScene(tmp_path)
    scene.commit(*range(moved))
    scene.ledger.move()
    scene.pass_hours()
    scene.commit(*range(moved, 4))
    found = [scene.proofs.last_recorded_by(at_ms) for at_ms in (-1, 0, 999, 1_000, 3_000, 9_000)]
    assert [entry and entry.proof.batch for entry in found] == [None, 0, 0, 1, 3, 3]


@pytest.mark.parametrize(
    ("last", "end_ms", "found"),
    [(None, None, None), (3, None, None), (1, None, 3), (1, 3_000, 2), (1, 2_000, None), (2, 3_001, 3)],
)
def test_a_night_reads_the_ledger_from_the_last_cut_on(
    tmp_path: Path, last: int | None, end_ms: int | None, found: int | None
) -> None:
    LedgerScene(tmp_path).commit(0, 1, 2, 3)
    runs = [] if last is None else [a_run(f"night-{batch}", batch=batch) for batch in (0, last)]
    told = settled_since(runs, Tables(str(tmp_path)), COPIES, {("clicks", 0): 40}, end_ms)
    assert (told is None) == (found is None)
    if told is not None:
        ledger, cut = told
        assert ledger.proofs == tuple(proof_of(batch) for batch in range(last or 0, 4)), "with the proof before"
        assert cut == proof_of(found or 0)


@pytest.mark.parametrize(
    ("published", "now", "accepts", "reached"),
    [
        (20, {"clicks": "a", "out": "b"}, False, 20),
        (10, {"clicks": "b"}, False, 10),
        (20, {"clicks": "b"}, False, 10),
        (20, {"clicks": "b"}, True, 20),
        (20, {}, False, 20),
    ],
    ids=["in flight", "done", "in flight, and the stream is refused", "accepted meanwhile", "brokers have no ids"],
)
def test_a_batch_in_flight_is_waited_for_unless_the_stream_waits_for_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: int, now: TopicIds, accepts: bool, reached: int
) -> None:
    """A cluster was moved after a driver had died between its two commits."""
    if accepts:
        [found] = topics_made_anew([{"clicks": "a", "out": "a"}, now])
        told = {"finding": finding_id(STREAM, found), "audit": "night-0", "by": "Ada", "reason": "a copy", "at_ms": 1}
        write_deltalake(Tables(str(tmp_path)).acceptances(STREAM), pl.DataFrame([told]))
    assert judgeable(tmp_path, monkeypatch, published, now) == {("clicks", 0): reached}


def judgeable(folder: Path, monkeypatch: pytest.MonkeyPatch, published: int, now: TopicIds) -> Mapping[Any, int]:
    """Up to where a stream is judged whose one batch is up to 10, of topics that have the ids ``now``."""
    proof = replace(proof_of(0), topic_ids={"clicks": "a", "out": "a"})
    LedgerScene(folder).state.append(ROWS, writer="c", version=0, metadata=proof.to_json())
    monkeypatch.setattr(auditable, "published_offsets", lambda _connection, _topology: {("clicks", 0): published})
    monkeypatch.setattr(auditable, "ids_of", lambda _, topics: {one: now[one] for one in topics if one in now})
    return judgeable_offsets(Connection(bootstrap_servers="127.0.0.1:1"), Tables(str(folder)), COPIES)


def test_kafka_that_is_older_than_the_ledger_is_told_unless_the_topic_was_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka was restored from a backup, the tables were not: batches that it lacks would be judged by nobody."""
    assert judgeable(tmp_path / "anew", monkeypatch, 7, {"clicks": "b"}) == {("clicks", 0): 7}
    with pytest.raises(Terminal) as error:
        judgeable(tmp_path / "older", monkeypatch, 7, {"clicks": "a"})
    assert "clicks-0@7 of 10" in str(error.value)


IDLE_AFTER_MS = 300_000
OF_ORDERS, CUSTOMERS = (
    Topic(name=name, key="id", value=RecordSchema.of(**{f"{name}_text": STRING})) for name in ("orders", "customers")
)
PLAIN = Topology(name="s", sinks=[stream(OF_ORDERS).to(Topic(name="out", key="id"))], idle_after="5 min")
LOOKING_UP = Topology(
    name="s",
    sinks=[stream(OF_ORDERS).left_join_table(table(CUSTOMERS)).to(Topic(name="out", key="id"))],
    idle_after="5 min",
)


def part(partition: int = 0, **told: object) -> PartitionProof:
    """Ten records of one partition, all counted, with stream time 1000 ms, read at 10 000 ms."""
    claims = {"start": 0, "end": 10, "records": 10, "counted": 10, "stream_time_ms": 1_000, "last_read_ms": 10_000}
    return PartitionProof(topic="orders", partition=partition, **{**claims, **told})  # type: ignore[arg-type]


def judged(number: int, *parts: PartitionProof, **told: object) -> BatchProof:
    return a_proof(number, *parts, **{"batch_timestamp_ms": 10_000, "frontier_ms": 1_000, **told})


FIRST = judged(0, part(0), part(1))
SECOND = judged(1, part(0, start=10, end=20), part(1, start=10, end=20))


def verdicts(*proofs: BatchProof, topology: Topology = PLAIN) -> list[str]:
    return [fault.verdict for fault in ledger_faults(None, proofs, topology)]


def test_batches_that_follow_each_other_have_no_fault() -> None:
    assert verdicts(FIRST, SECOND) == []
    assert ledger_faults(FIRST, (SECOND,), PLAIN) == []


def test_a_missing_batch_and_a_gap_between_ranges_are_not_contiguous() -> None:
    assert verdicts(FIRST, replace(SECOND, batch=2)) == ["not contiguous"]
    gap = replace(SECOND, partitions=(part(0, start=11, end=20, records=9, counted=9), SECOND.partitions[1]))
    assert verdicts(FIRST, gap) == ["not contiguous"]
    assert verdicts(FIRST, judged(1, SECOND.partitions[0])) == ["not contiguous"]


def test_a_new_generation_begins_with_a_new_checkpoint() -> None:
    assert verdicts(FIRST, replace(SECOND, generation=1, batch=0, checkpoint_id="d")) == []
    assert verdicts(FIRST, replace(SECOND, generation=1, batch=0)) == ["not contiguous"]


def test_records_without_a_fate_or_beyond_the_offsets_do_not_balance() -> None:
    assert verdicts(judged(0, part(counted=9))) == ["unbalanced"]
    assert verdicts(judged(0, part(records=11, counted=11))) == ["unbalanced"]


def test_the_frontier_is_the_smallest_stream_time_and_never_falls_back() -> None:
    assert verdicts(judged(0, part(0), part(1, stream_time_ms=900), frontier_ms=1_000)) == ["frontier"]
    assert verdicts(judged(0, part(0), part(1, stream_time_ms=900), frontier_ms=900)) == []
    slower = replace(SECOND, partitions=(part(0, start=10, end=20, stream_time_ms=900), SECOND.partitions[1]))
    assert verdicts(FIRST, replace(slower, frontier_ms=900)) == ["frontier"]
    assert verdicts(FIRST, replace(slower, frontier_ms=1_000)) == []


def test_a_partition_without_a_record_holds_the_frontier_back() -> None:
    silent = part(1, end=0, records=0, counted=0, stream_time_ms=None)
    assert verdicts(judged(0, part(0), silent, frontier_ms=None)) == []
    assert verdicts(judged(0, part(0), silent, frontier_ms=1_000)) == ["frontier"]


def test_a_partition_is_idle_only_after_idle_after_without_a_record() -> None:
    def later(after_ms: int, **told: object) -> BatchProof:
        quiet = part(1, start=10, end=10, records=0, counted=0, idle=True, **told)
        moving = part(0, start=10, end=20, stream_time_ms=2_000, last_read_ms=10_000 + after_ms)
        return judged(1, moving, quiet, batch_timestamp_ms=10_000 + after_ms, frontier_ms=2_000)

    assert verdicts(FIRST, later(IDLE_AFTER_MS - 1)) == ["idle claim"]
    assert verdicts(FIRST, later(IDLE_AFTER_MS)) == []
    assert verdicts(FIRST, later(IDLE_AFTER_MS, last_read_ms=9_999)) == ["idle clock"]


def test_a_partition_that_was_silent_long_enough_must_be_idle() -> None:
    quiet = part(1, start=10, end=10, records=0, counted=0)
    read = part(0, start=10, end=20, last_read_ms=10_000 + IDLE_AFTER_MS)
    at_the_bound = judged(1, read, quiet, batch_timestamp_ms=10_000 + IDLE_AFTER_MS)
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
    proofs = judged(0, customers, part(0)), judged(1, read, silent, batch_timestamp_ms=later_ms)
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
