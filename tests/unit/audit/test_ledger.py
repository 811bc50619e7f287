"""Up to which batch a live stream is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import a_run
from tests.unit.engine.ledger_scene import ROWS, STREAM, LedgerScene, proof_of

from recount.audit.cut import auditable
from recount.audit.cut.auditable import judgeable_offsets, settled_since
from recount.audit.cut.audited_ledger import Ledger
from recount.certificate.finding import finding_id
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
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


def test_where_nobody_knows_what_was_published_every_batch_is_judged() -> None:
    assert LEDGER.up_to({}) == LEDGER
    assert LEDGER.up_to({("orders", 1): 10}).proofs == LEDGER.proofs[:2]


def test_a_batch_that_was_judged_can_stand_as_if_it_had_read_nothing() -> None:
    standing = LEDGER.standing_at((0, 1))
    assert (standing.stands, standing.ranges) == (True, {"orders": {0: (20, 20), 1: (10, 10)}})
    assert [part.fates for part in standing.proofs[0].partitions] == [0, 0]
    assert not LEDGER.between((0, 0), (0, 1)).stands


def test_the_ledger_is_read_in_order_wherever_its_proofs_lie(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.commit(0, 1, 2)
    scene.ledger.move()
    scene.commit(0, 1, generation=1)
    found = Ledger.read(Tables(str(tmp_path)), STREAM)
    assert found.proofs == (*map(proof_of, (0, 1, 2)), proof_of(0, generation=1), proof_of(1, generation=1))


def test_a_ledger_that_was_never_moved_is_read_from_the_log(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.commit(0, 1)
    Path(scene.ledger.table.path).rename(tmp_path / "as in earlier releases")
    assert Ledger.read(Tables(str(tmp_path)), STREAM).proofs == (proof_of(0), proof_of(1))


def test_a_stream_that_never_ran_has_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(Terminal) as refused:
        Ledger.read(Tables(str(tmp_path)), STREAM)
    assert refused.value.given == str(tmp_path / "streams" / STREAM / "state")


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
    tables, before = Tables(str(tmp_path)), {"clicks": "a", "out": "a"}
    proof = replace(proof_of(0), topic_ids=before)
    LedgerScene(tmp_path).state.append(ROWS, writer="c", version=0, metadata=proof.to_json())
    if accepts:
        [found] = topics_made_anew([before, now])
        told = {"finding": finding_id(STREAM, found), "audit": "night-0", "by": "Ada", "reason": "a copy", "at_ms": 1}
        write_deltalake(tables.acceptances(STREAM), pl.DataFrame([told]))
    monkeypatch.setattr(auditable, "published_offsets", lambda _connection, _topology: {("clicks", 0): published})
    monkeypatch.setattr(
        auditable, "ids_of", lambda _connection, topics: {one: now[one] for one in topics if one in now}
    )
    assert judgeable_offsets(Connection(bootstrap_servers="127.0.0.1:1"), tables, COPIES) == {("clicks", 0): reached}


@pytest.mark.parametrize(("now", "refused"), [({"clicks": "a"}, True), ({"clicks": "b"}, False)])
def test_kafka_that_is_older_than_the_ledger_is_told_unless_the_topic_was_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: TopicIds, *, refused: bool
) -> None:
    """Kafka was restored from a backup, the tables were not: batches that it lacks would be judged by nobody."""
    tables = Tables(str(tmp_path))
    proof = replace(proof_of(0), topic_ids={"clicks": "a"})
    LedgerScene(tmp_path).state.append(ROWS, writer="c", version=0, metadata=proof.to_json())
    monkeypatch.setattr(auditable, "published_offsets", lambda _connection, _topology: {("clicks", 0): 7})
    monkeypatch.setattr(auditable, "ids_of", lambda _connection, _topics: now)
    nowhere = Connection(bootstrap_servers="127.0.0.1:1")
    if not refused:
        assert judgeable_offsets(nowhere, tables, COPIES) == {("clicks", 0): 7}
        return
    with pytest.raises(Terminal) as error:
        judgeable_offsets(nowhere, tables, COPIES)
    assert "clicks-0@7 of 10" in str(error.value)
