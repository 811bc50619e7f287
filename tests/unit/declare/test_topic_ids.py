"""A topic that was made anew is told from one that has grown by the id that Kafka gave it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import pytest
from tests.batch_proofs import a_proof

from recount.certificate.finding import finding_id
from recount.tables.ledger import BatchProof, TopicIds, topics_made_anew


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


def test_two_changes_are_two_findings_and_the_same_one_is_the_same() -> None:
    [once], [again], [further] = (
        topics_made_anew([{"orders": before}, {"orders": now}]) for before, now in (("a", "b"), ("a", "b"), ("a", "c"))
    )
    assert finding_id("revenue", once) == finding_id("revenue", again) != finding_id("revenue", further)


def test_a_proof_keeps_the_ids_and_one_of_an_earlier_release_knows_none() -> None:
    proof = a_proof(0, topic_ids={"orders": "a"})
    assert BatchProof.from_json(proof.to_json()) == proof
    earlier = {name: value for name, value in asdict(proof).items() if name != "topic_ids"}
    read = BatchProof.from_json(json.dumps({"recount": "batch", **earlier}))
    assert read is not None
    assert read.topic_ids == {}
