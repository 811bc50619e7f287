"""A batch proof that somebody has damaged is named by its commit, whatever is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from tests.batch_proofs import a_proof

from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof, PartitionProof

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
