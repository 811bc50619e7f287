"""Item 1.4: a changed declaration is noticed at the start of its stream, and what changed is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.batch_proofs import a_proof

from recount.declare.aggregates import count
from recount.declare.fingerprint import Declared
from recount.declare.groups import Archive
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.tables.decisions import DeclarationLog, OtherDeclaration
from recount.tables.ledger import BatchProof

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG))


def clicks(size: str) -> Declared:
    flow = stream(CLICKS).windowed_by(tumbling(size, grace="60 s")).aggregate(n=count()).emit_final()
    return Declared.of(Topology(name="clicks", sinks=[flow.to(Topic(name="out", key="user"))]))


HOURLY, TWO_HOURLY = clicks("1 h"), clicks("2 h")


def proof(batch: int, fingerprint: str | None) -> BatchProof:
    return a_proof(batch, fingerprint=fingerprint)


@pytest.fixture
def log(tmp_path: Path) -> DeclarationLog:
    return DeclarationLog(str(tmp_path), "clicks")


def test_the_first_start_records_the_declaration_and_every_other_start_finds_it(log: DeclarationLog) -> None:
    first = log.admit(HOURLY, None)
    assert (first.kind, first.version, first.fingerprint, first.document) == (
        "first",
        1,
        HOURLY.fingerprint,
        HOURLY.document,
    )
    assert log.admit(HOURLY, proof(0, HOURLY.fingerprint)) == first
    assert log.all() == [first]


def test_a_window_of_another_size_is_refused_with_both_sizes_and_both_remedies(log: DeclarationLog) -> None:
    log.admit(HOURLY, None)
    with pytest.raises(OtherDeclaration) as refused:
        log.require(TWO_HOURLY, proof(0, HOURLY.fingerprint))
    assert "window size of the aggregation by the record key: 1 h -> 2 h" in refused.value.what
    assert "recount reset clicks" in refused.value.remedy
    assert "recount upgrade clicks" in refused.value.remedy
    assert len(log.all()) == 1


def test_a_ledger_of_another_declaration_than_the_recorded_one_is_refused(log: DeclarationLog) -> None:
    with pytest.raises(OtherDeclaration):
        log.admit(HOURLY, proof(3, TWO_HOURLY.fingerprint))
    log.admit(HOURLY, None)
    with pytest.raises(OtherDeclaration):
        log.admit(HOURLY, proof(3, TWO_HOURLY.fingerprint))


def test_batches_of_earlier_releases_belong_to_the_declaration_that_is_found(log: DeclarationLog) -> None:
    assert log.admit(HOURLY, proof(7, None)).kind == "found"
    with pytest.raises(OtherDeclaration):
        log.require(TWO_HOURLY, proof(7, None))


def test_an_upgrade_admits_the_new_declaration_at_its_cut_only(log: DeclarationLog) -> None:
    log.admit(HOURLY, None)
    log.enact("upgrade", TWO_HOURLY, after=(0, 5), closed_ms=9)
    assert log.admit(TWO_HOURLY, proof(5, HOURLY.fingerprint)).closed_ms == 9
    assert log.admit(TWO_HOURLY, proof(6, TWO_HOURLY.fingerprint)).after == (0, 5)
    with pytest.raises(OtherDeclaration):
        log.admit(TWO_HOURLY, proof(6, HOURLY.fingerprint))
    with pytest.raises(OtherDeclaration):
        log.admit(HOURLY, proof(5, HOURLY.fingerprint))


def test_a_reset_that_was_begun_must_be_finished_before_a_start(log: DeclarationLog) -> None:
    log.admit(HOURLY, None)
    log.enact("reset begun", TWO_HOURLY, version=2, begins={"clicks": {0: 7}}, published={"out": {0: 3}})
    with pytest.raises(OtherDeclaration, match="recount reset clicks --yes"):
        log.require(TWO_HOURLY, None)
    log.enact("reset", TWO_HOURLY, version=2, begins={"clicks": {0: 7}}, published={"out": {0: 3}})
    enacted = log.admit(TWO_HOURLY, None)
    assert (enacted.version, enacted.starts, enacted.published) == (2, {("clicks", 0): 7}, {"out": {0: 3}})


def test_an_archive_has_a_declaration_like_every_stream(tmp_path: Path) -> None:
    log = DeclarationLog(str(tmp_path), "archive-clicks")
    assert log.admit(Declared.of(Archive(topic=CLICKS)), None).document["topic"] == "clicks"
