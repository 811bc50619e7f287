"""A results topic that was made anew is told from one that has grown, and a hole in a log is refused."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from confluent_kafka import IsolationLevel
from deltalake import CommitProperties, write_deltalake
from tests.batch_proofs import a_proof

from recount.audit.cut import kept_log
from recount.audit.cut.kept_log import require_kept, require_no_hole, still_seen, written_so_far
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange, Partition
from recount.runtime.errors import Terminal
from recount.tables.ledger import PartitionProof
from recount.tables.places import Tables


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_topic_that_ends_where_the_last_audit_ended_or_later_is_read_on(is_anew: bool) -> None:
    """One that was made anew can be a copy of the cluster: what was read is not read again."""
    spans = {0: LogRange(start=10, end=10), 1: LogRange(start=0, end=3)}
    assert still_seen("revenue", {0: 10, 1: 0}, spans, is_anew=is_anew) == {0: 10, 1: 0}


SHORTER = [{0: LogRange(start=0, end=9)}, {1: LogRange(start=0, end=20)}, {}]


@pytest.mark.parametrize("spans", SHORTER)
def test_a_topic_that_ends_before_the_last_audit_did_is_refused(spans: dict[int, LogRange]) -> None:
    with pytest.raises(Terminal) as refused:
        still_seen("revenue", {0: 10}, spans, is_anew=False)
    assert "--from-the-beginning" in str(refused.value)


@pytest.mark.parametrize("spans", SHORTER)
def test_a_topic_that_was_made_anew_and_is_shorter_is_read_from_its_first_record(spans: dict[int, LogRange]) -> None:
    assert still_seen("revenue", {0: 10}, spans, is_anew=True) == {}


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

    monkeypatch.setattr(kept_log, "partitions_of", lambda _, topic: [(topic, 0), (topic, 1)])
    monkeypatch.setattr(kept_log, "log_ranges", ranges)
    monkeypatch.setattr(kept_log.time, "sleep", pauses.append)
    monkeypatch.setattr(kept_log.time, "monotonic", lambda: sum(pauses))
    found = kept_log.decided(Connection(bootstrap_servers="127.0.0.1:1"), "orders.dlq")
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


NOWHERE = Connection(bootstrap_servers="127.0.0.1:1")


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka has the offsets from 5 to 9 of the only partition of orders."""
    span = LogRange(start=5, end=9)
    monkeypatch.setattr(kept_log, "partitions_of", lambda _, topic: [(topic, 0)])
    monkeypatch.setattr(kept_log, "log_ranges", lambda _, places, *_isolation: dict.fromkeys(places, span))


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("ranges", [{}, {0: (5, 9)}, {0: (12, 12)}, {0: (2, 2)}, {1: (3, 3)}])
def test_what_kafka_has_of_a_stretch_can_be_judged(tmp_path: Path, ranges: dict[int, tuple[int, int]]) -> None:
    require_kept(NOWHERE, Tables(str(tmp_path)), "orders", ranges, "kafka")


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("ranges", "what"),
    [({0: (4, 9)}, "expired"), ({0: (5, 10)}, "ends before"), ({0: (10, 12)}, "ends before"), ({1: (0, 1)}, "ends")],
)
def test_what_kafka_has_not_of_a_stretch_is_refused_and_the_way_out_is_named(
    tmp_path: Path, ranges: dict[int, tuple[int, int]], what: str
) -> None:
    with pytest.raises(Terminal, match=what) as refused:
        require_kept(NOWHERE, Tables(str(tmp_path)), "orders", ranges, "kafka")
    assert "recount reset" in refused.value.remedy


@pytest.mark.usefixtures("orders")
def test_a_topic_that_was_made_anew_has_had_the_offsets_that_the_stream_has_read() -> None:
    """Letters about them are not about no record."""
    last = a_proof(0, PartitionProof(topic="orders", partition=0, start=0, end=20))
    assert written_so_far(NOWHERE, ["orders"], last) == {"orders": {0: (0, 20)}}
    assert written_so_far(NOWHERE, ["orders"], a_proof(0)) == {"orders": {0: (0, 9)}}


@pytest.mark.usefixtures("orders")
def test_a_partition_that_a_topic_has_no_more_is_not_read_from_kafka() -> None:
    assert kept_log._kafka_since(NOWHERE, "orders", {0: (5, 9), 1: (7, 7)}) == {0: 5, 1: 7}
