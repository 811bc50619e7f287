"""A results topic that was made anew is told from one that has grown, and a hole in a log is refused."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from confluent_kafka import IsolationLevel
from deltalake import CommitProperties, write_deltalake
from tests.batch_proofs import a_proof

from recount.audit import kept
from recount.audit.kept import require_grown, require_no_hole
from recount.core.errors import Terminal
from recount.core.ledger import PartitionProof
from recount.core.tables import Tables
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange, Partition


def test_a_topic_that_ends_where_the_last_audit_ended_or_later_has_grown() -> None:
    require_grown("revenue", {0: 10, 1: 0}, {0: LogRange(start=10, end=10), 1: LogRange(start=0, end=3)})


@pytest.mark.parametrize("spans", [{0: LogRange(start=0, end=9)}, {1: LogRange(start=0, end=20)}, {}])
def test_a_topic_that_ends_before_the_last_audit_did_is_another(spans: dict[int, LogRange]) -> None:
    with pytest.raises(Terminal) as refused:
        require_grown("revenue", {0: 10}, spans)
    assert "--from-the-beginning" in str(refused.value)


@pytest.mark.parametrize(("decides", "end"), [(0, 12), (3, 12), (None, 7)])
def test_what_lies_behind_an_open_transaction_is_waited_for_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, decides: int | None, end: int
) -> None:
    """Streams that read one topic share its dead letters: one that was killed hid those of the others for a minute."""
    pauses: list[float] = []

    def ranges(
        _: Connection, places: list[Partition], isolation: IsolationLevel | None = None
    ) -> dict[Partition, LogRange]:
        is_open = isolation is None and (decides is None or len(pauses) < decides)
        return {place: LogRange(start=2, end=7 if is_open and place[1] else 12) for place in places}

    monkeypatch.setattr(kept, "partitions_of", lambda _, topic: [(topic, 0), (topic, 1)])
    monkeypatch.setattr(kept, "log_ranges", ranges)
    monkeypatch.setattr(kept.time, "sleep", pauses.append)
    monkeypatch.setattr(kept.time, "monotonic", lambda: sum(pauses))
    found = kept.decided(Connection(bootstrap_servers="127.0.0.1:1"), "orders.dlq")
    assert found == {0: LogRange(start=2, end=12), 1: LogRange(start=2, end=end)}
    assert 75 <= sum(pauses) < 80 if decides is None else len(pauses) == decides


@pytest.fixture
def archived(tmp_path: Path) -> Tables:
    """Offsets 10 to 30 of partition 0 are archived; partition 1 came with the second batch."""
    tables = Tables(str(tmp_path))
    first = PartitionProof(topic="orders", partition=0, start=10, end=20)
    parts = (
        PartitionProof(topic="orders", partition=0, start=20, end=30),
        PartitionProof(topic="orders", partition=1, start=5, end=6),
    )
    for proof in (a_proof(0, first), a_proof(1, *parts)):
        written = CommitProperties(custom_metadata={"userMetadata": proof.to_json()})
        rows = pl.DataFrame({"offset": [proof.batch]})
        write_deltalake(tables.archive("orders"), rows, mode="append", commit_properties=written)
    return tables


def test_what_left_kafka_is_in_the_archive(archived: Tables) -> None:
    require_no_hole(archived, "orders", {0: (10, 30), 1: (0, 6)})
    require_no_hole(archived, "never-archived", {})


@pytest.mark.parametrize("gone", [{0: (9, 20)}, {0: (10, 31)}, {1: (0, 7)}, {2: (0, 1)}])
def test_a_hole_between_archive_and_kafka_is_refused_with_its_offsets(
    archived: Tables, gone: dict[int, tuple[int, int]]
) -> None:
    with pytest.raises(Terminal) as refused:
        require_no_hole(archived, "orders", gone)
    assert str(next(iter(gone.values()))) in str(refused.value)
    assert "archive-orders" in str(refused.value.remedy)
