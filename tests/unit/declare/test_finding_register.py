"""Item 1.1: a violation is never forgotten. A finding is open until it is repaired or accepted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from tests.batch_proofs import a_proof

from recount.certificate.finding import (
    Acceptance,
    Difference,
    Register,
    covers,
    difference_from,
    finding_id,
    found_repaired,
    register,
    sightings,
    standing,
)
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof, PartitionProof, TopicIds, topics_made_anew

LOST = Difference(
    kind="output",
    place="table outputs/revenue",
    verdict="lost",
    key="EU",
    window_start=0,
    window_end=300_000,
    expected='{"orders":5}',
    cause="the result was not written here",
)
UNACCOUNTED = Difference(
    kind="offsets",
    place="orders-0",
    verdict="unaccounted",
    expected="9 offsets explained",
    actual="1 without explanation",
    evidence=("orders-0@[0, 9)",),
)
ID = finding_id("revenue", LOST)
YES, NO = (lambda _: True), (lambda _: False)


class Nights:
    """Audits one after the other, each at the next batch unless told otherwise."""

    def __init__(self) -> None:
        self.seen: list = []
        self.accepted: list[Acceptance] = []
        self.number = 0

    def audit(self, *differences: Difference, batch: int | None = None, in_order=YES) -> None:  # type: ignore[no-untyped-def]
        self.number += 1
        cut = (0, self.number if batch is None else batch)
        repaired = found_repaired(self.register, "revenue", differences, cut, in_order)
        self.seen += sightings(
            "revenue", differences, audit=f"night-{self.number}", at_ms=self.number, cut=cut, repaired=repaired
        )

    def accept(self, finding: str = ID) -> None:
        one = Acceptance(finding=finding, audit=self.register[finding].last_audit, by="Ada", reason="known", at_ms=0)
        self.accepted.append(one)

    @property
    def register(self) -> Register:
        return register(self.seen, self.accepted)

    @property
    def states(self) -> dict[str, str]:
        return {one.difference.verdict: one.state for one in self.register.values()}


@pytest.fixture
def nights() -> Nights:
    return Nights()


def test_a_finding_stays_open_while_no_audit_finds_its_place_in_order(nights: Nights) -> None:
    nights.audit(LOST)
    nights.audit(in_order=NO)
    assert nights.states == {"lost": "open"}
    assert nights.register[ID].first_audit == nights.register[ID].last_audit == "night-1"


def test_an_audit_that_finds_its_place_in_order_closes_a_finding_and_is_named(nights: Nights) -> None:
    nights.audit(LOST)
    nights.audit()
    assert nights.states == {"lost": "repaired"}
    assert nights.register[ID].repaired_audit == "night-2"
    assert [one.id for one in standing(nights.register, "night-2").repaired] == [ID]
    assert standing(nights.register, "night-3").repaired_before == 1


def test_an_audit_that_judged_less_far_closes_nothing(nights: Nights) -> None:
    nights.audit(LOST, batch=7)
    nights.audit(batch=6)
    assert nights.states == {"lost": "open"}
    nights.audit(batch=7)
    assert nights.states == {"lost": "repaired"}


def test_an_accepted_finding_stays_accepted_while_it_is_what_was_accepted(nights: Nights) -> None:
    nights.audit(LOST)
    nights.accept()
    nights.audit(replace(LOST, cause="another batch read it"))
    assert nights.states == {"lost": "accepted"}
    taken = nights.register[ID].acceptance
    assert taken is not None
    assert (taken.by, taken.reason) == ("Ada", "known")
    assert nights.register[ID].difference.cause == LOST.cause


@pytest.mark.parametrize(
    "later",
    [
        [replace(LOST, expected='{"orders":6}')],
        [replace(LOST, actual="1")],
        [replace(LOST, evidence=("revenue-0@9",))],
        [None, LOST],
    ],
    ids=["another value expected", "another one there", "another place", "repaired, and there again"],
)
def test_an_acceptance_covers_what_was_accepted_until_it_is_repaired(
    nights: Nights, later: list[Difference | None]
) -> None:
    nights.audit(LOST)
    nights.accept()
    for difference in later:
        nights.audit(*([] if difference is None else [difference]))
    assert nights.states == {"lost": "open"}


def test_another_verdict_on_the_same_row_is_another_finding(nights: Nights) -> None:
    nights.audit(LOST)
    nights.accept()
    nights.audit(replace(LOST, verdict="altered"), in_order=NO)
    assert nights.states == {"lost": "accepted", "altered": "open"}


def test_findings_are_told_apart_by_stream_verdict_and_place_and_not_by_evidence_but_for_stretches_of_the_log() -> None:
    extra, duplicated = (finding_id("revenue", replace(LOST, verdict=one)) for one in ("extra", "duplicated"))
    assert extra == duplicated != ID, "of one family"
    assert finding_id("clicks", LOST) != ID
    assert finding_id("revenue", replace(LOST, evidence=("revenue-0@3",))) == ID
    later = replace(UNACCOUNTED, evidence=("orders-0@[9, 20)",))
    assert finding_id("revenue", later) != finding_id("revenue", UNACCOUNTED)


def test_what_was_accepted_covers_fewer_copies_but_not_more() -> None:
    twice, thrice = (replace(LOST, evidence=tuple(f"revenue-0@{n}" for n in range(copies))) for copies in (2, 3))
    assert covers(thrice, twice)
    assert not covers(twice, thrice)
    assert covers(twice, replace(twice, evidence=(*twice.evidence, "batch 0/1 read 3 of orders-0@[0, 2]")))


def test_a_difference_comes_back_from_its_document(nights: Nights) -> None:
    nights.audit(UNACCOUNTED)
    [finding] = nights.register.values()
    assert difference_from(finding.document()) == UNACCOUNTED


@pytest.mark.parametrize(
    ("told", "changes"),
    [
        ([], []),
        ([{"orders": "a"}], []),
        ([{"orders": "a"}, {"orders": "a"}], []),
        ([{"orders": "a"}, {"orders": "b"}], [("orders", "a", "b")]),
        ([{"orders": "a"}, {"orders": "b"}, {"orders": "b"}], [("orders", "a", "b")]),
        ([{"orders": "a"}, {"orders": "b"}, {"orders": "c"}], [("orders", "a", "b"), ("orders", "b", "c")]),
        ([{"orders": "a", "users": "u"}, {"orders": "a", "users": "v"}], [("users", "u", "v")]),
    ],
)
def test_each_change_of_an_id_is_named(told: Sequence[TopicIds], changes: list[tuple[str, str, str]]) -> None:
    assert [(one.place, one.expected, one.actual) for one in topics_made_anew(told)] == changes


@pytest.mark.parametrize("unknown", [{}, {"users": "u"}])
def test_where_no_id_is_known_the_last_known_one_counts(unknown: TopicIds) -> None:
    assert topics_made_anew([unknown, {"orders": "a"}, unknown, {"orders": "a"}]) == []
    [found] = topics_made_anew([{"orders": "a"}, unknown, {"orders": "b"}])
    assert (found.expected, found.actual) == ("a", "b")


def test_a_proof_keeps_the_ids_and_one_of_an_earlier_release_knows_none() -> None:
    proof = a_proof(0, topic_ids={"orders": "a"})
    assert BatchProof.from_json(proof.to_json()) == proof
    earlier = {name: value for name, value in asdict(proof).items() if name != "topic_ids"}
    read = BatchProof.from_json(json.dumps({"recount": "batch", **earlier}))
    assert read is not None
    assert read.topic_ids == {}


PROOF: dict[str, Any] = json.loads(a_proof(0, PartitionProof(topic="clicks", partition=0, start=0, end=3)).to_json())


def without(field: str) -> str:
    return json.dumps({name: value for name, value in PROOF.items() if name != field})


DAMAGED = [
    "{no JSON",
    "{" * 100_000,
    *map(without, ["partitions", "version", "stream", "batch"]),
    *(
        json.dumps({**PROOF, **other})
        for other in (
            {"partitions": 5},
            {"partitions": [5]},
            {"partitions": [{"topic": "clicks"}]},
            {"appended": []},
            {"appended": {"late": []}},
            {"batch": "0"},
            {"more": 1},
            {"version": 2},
        )
    ),
]


@pytest.mark.parametrize("said", DAMAGED)
def test_a_damaged_proof_is_refused_with_its_place(said: str) -> None:
    with pytest.raises(Terminal) as refused:
        BatchProof.from_json(said, "version 3 of the table clicks")
    assert refused.value.given == 2 or "version 3 of the table clicks" in str(refused.value.given)


@pytest.mark.parametrize("said", [None, "", "text", "{}", '{"by": "hand"}'])
def test_what_others_say_of_a_commit_is_no_proof(said: str | None) -> None:
    assert BatchProof.from_json(said) is None


def test_a_damaged_commit_of_a_state_table_is_named_by_table_and_version(tmp_path: Path) -> None:
    rows, state = pa.table({"n": [1]}), str(tmp_path / "state")
    for said in (json.dumps(PROOF), without("partitions")):
        write_deltalake(
            state, rows, mode="append", commit_properties=CommitProperties(custom_metadata={"userMetadata": said})
        )
    with pytest.raises(Terminal) as refused:
        list(Proofs(state=state).newest_first())
    assert f"version 1 of the table {state}" in str(refused.value.given)
