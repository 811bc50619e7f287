"""Item 1.4: the audit judges batches by their own declaration, and what a version wrote by that version."""

from __future__ import annotations

from pathlib import Path

import pytest

from recount.audit.in_force import InForce
from recount.audit.ledger import Ledger
from recount.core.aggregates import count
from recount.core.fingerprint import Declared
from recount.core.ledger import BatchProof
from recount.core.schema import LONG, RecordSchema
from recount.core.topics import Topic
from recount.core.topology import Topology, stream
from recount.core.windows import tumbling
from recount.declarations import DeclarationLog, OtherDeclaration
from recount.kafka.offsets import LogRange


def clicks(size: str = "1 h", grace: str = "60 s") -> Topology:
    flow = stream(Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG)))
    counted = flow.windowed_by(tumbling(size, grace=grace)).aggregate(n=count()).emit_final()
    return Topology(name="clicks", sinks=[counted.to(Topic(name="out", key="user"))])


def proof(batch: int, topology: Topology | None) -> BatchProof:
    return BatchProof(
        stream="clicks",
        generation=0,
        batch=batch,
        checkpoint_id="c",
        lease_epoch=1,
        batch_timestamp_ms=batch,
        partitions=(),
        frontier_ms=None,
        fingerprint=Declared.of(topology).fingerprint if topology else None,
    )


def test_an_audit_with_another_declaration_than_the_one_in_force_is_refused(tmp_path: Path) -> None:
    DeclarationLog(str(tmp_path), "clicks").admit(Declared.of(clicks()), None)
    assert InForce.of(clicks(), str(tmp_path)).section()["stream_version"] == 1
    with pytest.raises(OtherDeclaration, match="1 h -> 2 h"):
        InForce.of(clicks("2 h"), str(tmp_path))


def test_batches_of_another_declaration_are_not_judged_and_those_of_earlier_releases_are(tmp_path: Path) -> None:
    known = InForce.of(clicks(), str(tmp_path))
    known.require_made_by(Ledger((proof(0, None), proof(1, clicks()))))
    with pytest.raises(OtherDeclaration, match="batch 0/1"):
        known.require_made_by(Ledger((proof(0, clicks()), proof(1, clicks("2 h")))))


def test_what_was_written_before_a_version_began_is_not_its_own(tmp_path: Path) -> None:
    log = DeclarationLog(str(tmp_path), "clicks")
    assert InForce.of(clicks(), str(tmp_path)).own("out", {0: LogRange(start=0, end=9)}) == {
        0: LogRange(start=0, end=9)
    }
    log.enact("reset", Declared.of(clicks()), version=2, begins={"clicks": {0: 4}}, published={"out": {0: 7, 1: 5}})
    known = InForce.of(clicks(), str(tmp_path))
    spans = {0: LogRange(start=2, end=9), 1: LogRange(start=6, end=8), 2: LogRange(start=0, end=3)}
    assert known.own("out", spans) == {
        0: LogRange(start=7, end=9),
        1: LogRange(start=6, end=8),
        2: LogRange(start=0, end=3),
    }
    assert (known.begins("clicks"), known.begins("other")) == ({0: 4}, {})


def test_after_an_upgrade_windows_are_closed_as_far_as_they_were(tmp_path: Path) -> None:
    log = DeclarationLog(str(tmp_path), "clicks")
    assert InForce.of(clicks(), str(tmp_path)).closing(50) == 50
    log.enact("upgrade", Declared.of(clicks()), after=(0, 3), closed_ms=100)
    known = InForce.of(clicks(), str(tmp_path))
    assert [known.closing(at) for at in (None, 50, 100, 101)] == [None, 100, 100, 101]
    assert (known.after, known.section()["judged_after_batch"]) == ((0, 3), [0, 3])
