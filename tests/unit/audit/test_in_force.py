"""Item 1.4: the audit judges batches by their own declaration, and what a version wrote by that version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.batch_proofs import a_proof

from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.in_force import InForce
from recount.declare.aggregates import count
from recount.declare.fingerprint import Declared
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.kafka.offsets import LogRange
from recount.tables.decisions import DeclarationLog, OtherDeclaration
from recount.tables.ledger import BatchProof, PartitionProof


def clicks(size: str = "1 h", grace: str = "60 s") -> Topology:
    flow = stream(Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG)))
    counted = flow.windowed_by(tumbling(size, grace=grace)).aggregate(n=count()).emit_final()
    return Topology(name="clicks", sinks=[counted.to(Topic(name="out", key="user"))])


def with_side(many: int) -> Topology:
    """With so many further sinks."""
    flow = stream(Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG)))
    further = [flow.to(Topic(name=f"side-{number}", key="user")) for number in range(many)]
    return replace(clicks(), sinks=[*clicks().sinks, *further])


def proof(batch: int, topology: Topology | None) -> BatchProof:
    return a_proof(batch, fingerprint=Declared.of(topology).fingerprint if topology else None)


def test_an_audit_with_another_declaration_than_the_one_in_force_is_refused(tmp_path: Path) -> None:
    DeclarationLog(str(tmp_path), "clicks").admit(Declared.of(clicks()), None)
    assert InForce.of(clicks(), str(tmp_path)).section(Ledger(()))["stream_version"] == 1
    with pytest.raises(OtherDeclaration, match="1 h -> 2 h"):
        InForce.of(clicks("2 h"), str(tmp_path))


def test_batches_of_another_declaration_are_not_judged_and_those_of_earlier_releases_are(tmp_path: Path) -> None:
    known = InForce.of(clicks(), str(tmp_path))
    known.require_made_by(Ledger((proof(0, None), proof(1, clicks()))))
    with pytest.raises(OtherDeclaration, match="batch 0/1") as refused:
        known.require_made_by(Ledger((proof(0, clicks()), proof(1, clicks("2 h")))))
    assert "recount reset clicks" in refused.value.remedy


def test_the_former_code_judges_nothing_after_an_upgrade(tmp_path: Path) -> None:
    log = DeclarationLog(str(tmp_path), "clicks")
    log.admit(Declared.of(clicks()), None)
    log.enact("upgrade", Declared.of(clicks(grace="90 s")), after=(0, 3))
    with pytest.raises(OtherDeclaration, match="grace"):
        InForce.of(clicks(), str(tmp_path))


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
    assert known.own_ranges("out", {0: (0, 7), 1: (0, 4)}) == {0: (7, 7), 1: (0, 4)}, "1 was made anew, and is shorter"
    assert (known.begins("clicks"), known.begins("other")) == ({0: 4}, {})


def test_after_an_upgrade_windows_are_closed_as_far_as_they_were(tmp_path: Path) -> None:
    log = DeclarationLog(str(tmp_path), "clicks")
    assert InForce.of(clicks(), str(tmp_path)).closing(50) == 50
    log.enact("upgrade", Declared.of(clicks()), after=(0, 3), closed_ms=100)
    known = InForce.of(clicks(), str(tmp_path))
    assert [known.closing(at) for at in (None, 50, 100, 101)] == [None, 100, 100, 101]
    assert (known.after, known.section(Ledger(()))["judged_after_batch"]) == ((0, 3), [0, 3])


def test_batches_before_a_sink_was_added_are_those_of_the_declaration_without_it(tmp_path: Path) -> None:
    log, stages = DeclarationLog(str(tmp_path), "clicks"), [clicks(), *map(with_side, (1, 2))]
    log.admit(Declared.of(clicks("2 h")), None)
    log.enact("reset", Declared.of(stages[0]), version=2)
    log.enact("upgrade", Declared.of(stages[1]), after=(0, 1), added={"side-0": (0, 1)})
    log.enact("upgrade", Declared.of(stages[2]), after=(1, 0), added={"side-0": (0, 1), "side-1": (1, 0)})
    known = InForce.of(stages[2], str(tmp_path))
    made_by = [(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 1), (1, 1, 2)]
    proofs = [replace(proof(batch, stages[stage]), generation=generation) for generation, batch, stage in made_by]
    known.require_made_by(Ledger(tuple(proofs)))
    for number, one in enumerate(proofs):
        other = proofs[-1] if number == 0 else proofs[0]
        wrong = replace(one, fingerprint=other.fingerprint if one.fingerprint != other.fingerprint else "other")
        with pytest.raises(OtherDeclaration, match=f"batch {one.generation}/{one.batch}"):
            known.require_made_by(Ledger((wrong,)))
    assert known.done_before(Ledger(tuple(proofs))) == {"side-0": 2, "side-1": 4}
    assert known.read_since(Ledger(tuple(proofs))) == {}
    assert [known.has_begun(topic, (0, 2)) for topic in ("out", "side-0", "side-1")] == [True, True, False]
    said = known.section(Ledger(tuple(proofs)))
    assert said["judged_after_batch"] is None
    assert [(one["sink"], one["after_batch"]) for one in said["added_sinks"]] == [
        ("side-0", [0, 1]),
        ("side-1", [1, 0]),
    ]


def test_a_field_that_was_added_is_read_from_where_the_batches_before_ended(tmp_path: Path) -> None:
    log = DeclarationLog(str(tmp_path), "clicks")
    log.admit(Declared.of(clicks()), None)
    log.enact("upgrade", Declared.of(clicks()), after=(0, 1), added_fields={"clicks": {"n": (0, 1)}})
    parts = [PartitionProof(topic="clicks", partition=0, start=3 * batch, end=3 * batch + 3) for batch in range(3)]
    ledger = Ledger(tuple(replace(proof(batch, clicks()), partitions=(part,)) for batch, part in enumerate(parts)))
    known = InForce.of(clicks(), str(tmp_path))
    assert known.read_since(ledger) == {"clicks": {"n": {0: 6}}}
    assert known.section(ledger)["added_fields"] == [
        {"topic": "clicks", "field": "n", "after_batch": [0, 1], "from_offsets": {0: 6}}
    ]
