"""Up to which batch a live stream is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.batch_proofs import a_proof
from tests.unit.spark.ledger_scene import STREAM, LedgerScene, proof_of

from recount.audit.ledger import Ledger
from recount.core.errors import Terminal
from recount.core.ledger import BatchProof, PartitionProof
from recount.core.tables import Tables


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
