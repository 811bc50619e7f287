"""A changed declaration is noticed; batches are judged by their own, and a release counts as its certificate says."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import a_run, certify, findings

from recount.audit.carry.store import AuditStore
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.in_force import InForce, certified_runs, removed_by_now
from recount.declare.aggregates import count
from recount.declare.fingerprint import Declared
from recount.declare.groups import Archive
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.kafka.offsets import LogRange
from recount.runtime.settings import Settings
from recount.tables.decisions import DeclarationLog, OtherDeclaration
from recount.tables.ledger import BatchProof, PartitionProof
from recount.tables.places import Released, Tables

OF_USERS = Topic(name="declared", key="user", value=RecordSchema.of(n=LONG))


def declared(size: str) -> Declared:
    flow = stream(OF_USERS).windowed_by(tumbling(size, grace="60 s")).aggregate(n=count()).emit_final()
    return Declared.of(Topology(name="declared", sinks=[flow.to(Topic(name="out", key="user"))]))


HOURLY, TWO_HOURLY = declared("1 h"), declared("2 h")


def made_by(batch: int, fingerprint: str | None) -> BatchProof:
    return a_proof(batch, fingerprint=fingerprint)


@pytest.fixture
def log(tmp_path: Path) -> DeclarationLog:
    return DeclarationLog(str(tmp_path), "declared")


def test_the_first_start_records_the_declaration_and_every_other_start_finds_it(log: DeclarationLog) -> None:
    first = log.admit(HOURLY, None)
    assert (first.kind, first.version) == ("first", 1)
    assert (first.fingerprint, first.document) == (HOURLY.fingerprint, HOURLY.document)
    assert log.admit(HOURLY, made_by(0, HOURLY.fingerprint)) == first
    assert log.all() == [first]


def test_a_window_of_another_size_is_refused_with_both_sizes_and_both_remedies(log: DeclarationLog) -> None:
    log.admit(HOURLY, None)
    with pytest.raises(OtherDeclaration) as refused:
        log.require(TWO_HOURLY, made_by(0, HOURLY.fingerprint))
    assert "window size of the aggregation by the record key: 1 h -> 2 h" in refused.value.what
    assert "recount reset declared" in refused.value.remedy
    assert "recount upgrade declared" in refused.value.remedy
    assert len(log.all()) == 1


def test_a_ledger_of_another_declaration_than_the_recorded_one_is_refused(log: DeclarationLog) -> None:
    with pytest.raises(OtherDeclaration):
        log.admit(HOURLY, made_by(3, TWO_HOURLY.fingerprint))
    log.admit(HOURLY, None)
    with pytest.raises(OtherDeclaration):
        log.admit(HOURLY, made_by(3, TWO_HOURLY.fingerprint))


def test_batches_of_earlier_releases_belong_to_the_declaration_that_is_found(log: DeclarationLog) -> None:
    assert log.admit(HOURLY, made_by(7, None)).kind == "found"
    with pytest.raises(OtherDeclaration):
        log.require(TWO_HOURLY, made_by(7, None))


def test_an_upgrade_admits_the_new_declaration_at_its_cut_only(log: DeclarationLog) -> None:
    log.admit(HOURLY, None)
    log.enact("upgrade", TWO_HOURLY, after=(0, 5), closed_ms=9)
    assert log.admit(TWO_HOURLY, made_by(5, HOURLY.fingerprint)).closed_ms == 9
    assert log.admit(TWO_HOURLY, made_by(6, TWO_HOURLY.fingerprint)).after == (0, 5)
    with pytest.raises(OtherDeclaration):
        log.admit(TWO_HOURLY, made_by(6, HOURLY.fingerprint))
    with pytest.raises(OtherDeclaration):
        log.admit(HOURLY, made_by(5, HOURLY.fingerprint))


def test_a_reset_that_was_begun_must_be_finished_before_a_start(log: DeclarationLog) -> None:
    log.admit(HOURLY, None)
    log.enact("reset begun", TWO_HOURLY, version=2, begins={"declared": {0: 7}}, published={"out": {0: 3}})
    with pytest.raises(OtherDeclaration, match="recount reset declared --yes"):
        log.require(TWO_HOURLY, None)
    log.enact("reset", TWO_HOURLY, version=2, begins={"declared": {0: 7}}, published={"out": {0: 3}})
    enacted = log.admit(TWO_HOURLY, None)
    assert (enacted.version, enacted.starts, enacted.published) == (2, {("declared", 0): 7}, {"out": {0: 3}})


def test_an_archive_has_a_declaration_like_every_stream(tmp_path: Path) -> None:
    log = DeclarationLog(str(tmp_path), "archive-clicks")
    assert log.admit(Declared.of(Archive(topic=OF_USERS)), None).document["topic"] == "declared"


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
    log = DeclarationLog(str(tmp_path), "clicks")
    log.admit(Declared.of(clicks()), None)
    assert InForce.of(clicks(), str(tmp_path)).section(Ledger(()))["stream_version"] == 1
    with pytest.raises(OtherDeclaration, match="1 h -> 2 h"):
        InForce.of(clicks("2 h"), str(tmp_path))
    log.enact("upgrade", Declared.of(clicks(grace="90 s")), after=(0, 3))
    with pytest.raises(OtherDeclaration, match="grace"):
        InForce.of(clicks(), str(tmp_path))  # the former code judges nothing after an upgrade


def test_batches_of_another_declaration_are_not_judged_and_those_of_earlier_releases_are(tmp_path: Path) -> None:
    known = InForce.of(clicks(), str(tmp_path))
    known.require_made_by(Ledger((proof(0, None), proof(1, clicks()))))
    with pytest.raises(OtherDeclaration, match="batch 0/1") as refused:
        known.require_made_by(Ledger((proof(0, clicks()), proof(1, clicks("2 h")))))
    assert "recount reset clicks" in refused.value.remedy


def test_what_was_written_before_a_version_began_is_not_its_own(tmp_path: Path) -> None:
    log = DeclarationLog(str(tmp_path), "clicks")
    whole = {0: LogRange(start=0, end=9)}
    assert InForce.of(clicks(), str(tmp_path)).own("out", whole) == whole
    log.enact("reset", Declared.of(clicks()), version=2, begins={"clicks": {0: 4}}, published={"out": {0: 7, 1: 5}})
    known = InForce.of(clicks(), str(tmp_path))
    spans = {0: LogRange(start=2, end=9), 1: LogRange(start=6, end=8), 2: LogRange(start=0, end=3)}
    assert known.own("out", spans) == {**spans, 0: LogRange(start=7, end=9)}
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
    added = [(one["sink"], one["after_batch"]) for one in said["added_sinks"]]
    assert added == [("side-0", [0, 1]), ("side-1", [1, 0])]


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


RELEASED = Released(before_ms=100, cut=(0, 3), offsets={"orders": {0: 5}})
FORGED = Released(before_ms=2**60, cut=(0, 3), offsets={"orders": {0: 2**60, 1: 7}})
NIGHT = a_run("night-1", batch=3, frontier_ms=900)


def counted(settings: Settings, row: Released | None, certificate: dict[str, Any] | None) -> Released | None:
    """What the one audit has released whose row and certificate say so."""
    AuditStore(Tables(settings.data), "revenue").complete(replace(NIGHT, released=row))
    if certificate is not None:
        certify(Path(settings.reports), {**findings("night-1"), **certificate})
    [run] = certified_runs(settings, "revenue")
    return run.released


@pytest.mark.parametrize("row", [None, RELEASED, FORGED])
def test_the_certificate_counts_whatever_the_row_says(settings: Settings, row: Released | None) -> None:
    assert counted(settings, row, {"released": asdict(RELEASED)}) == RELEASED
    assert counted(settings, row, {"released": None}) is None


def test_a_row_without_its_certificate_has_released_nothing(settings: Settings) -> None:
    assert counted(settings, RELEASED, None) is None
    certify(Path(settings.reports), {**findings("night-2"), "released": asdict(RELEASED)})
    folder = Path(settings.reports) / "certificates" / "revenue"
    (folder / "night-2.json").rename(folder / "night-1.json")
    assert counted(settings, RELEASED, None) is None


def test_the_stream_may_have_removed_what_audits_before_the_newest_have_released() -> None:
    early, late = replace(NIGHT, released=RELEASED), replace(NIGHT, released=replace(RELEASED, before_ms=200))
    assert removed_by_now([]) is removed_by_now([late]) is None
    assert removed_by_now([early, late, NIGHT]) == late.released
    assert removed_by_now([early, late]) == early.released
