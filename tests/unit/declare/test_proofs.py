"""A batch proof: the ids of topics that it keeps, and what is said of a proof that somebody has damaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from tests.batch_proofs import a_proof

from recount.certificate.finding import finding_id
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof, PartitionProof, TopicIds, topics_made_anew


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
