"""What of a log is still there: a topic that was made anew or cut short, a hole, and where an audit then stands."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest
from confluent_kafka import IsolationLevel
from deltalake import CommitProperties, write_deltalake
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import a_run

from recount.audit.carry.store import NOTHING, Seed
from recount.audit.cut import kept_log
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.kept_log import Reach, StretchLog, require_kept, require_no_hole, still_seen, written_so_far
from recount.certificate.finding import covers, finding_id
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange, Partition
from recount.runtime.errors import Terminal
from recount.tables.ledger import BatchProof, PartitionProof
from recount.tables.places import Tables


def span(start: int, end: int) -> LogRange:
    return LogRange(start=start, end=end)


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_topic_that_ends_where_the_last_audit_ended_or_later_is_read_on(is_anew: bool) -> None:
    """One that was made anew can be a copy of the cluster: what was read is not read again."""
    spans = {0: span(10, 10), 1: span(0, 3)}
    assert still_seen("revenue", {0: 10, 1: 0}, spans, is_anew=is_anew) == {0: 10, 1: 0}


@pytest.mark.parametrize("spans", [{0: span(0, 9)}, {1: span(0, 20)}, {}])
def test_a_topic_that_is_shorter_is_refused_unless_it_was_made_anew_and_then_read_from_its_first_record(
    spans: dict[int, LogRange],
) -> None:
    with pytest.raises(Terminal) as refused:
        still_seen("revenue", {0: 10}, spans, is_anew=False)
    assert "--from-the-beginning" in str(refused.value)
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
        return {place: span(2, 7 if is_open and place[1] else 12) for place in places}

    monkeypatch.setattr(kept_log, "partitions_of", lambda _, topic: [(topic, 0), (topic, 1)])
    monkeypatch.setattr(kept_log, "log_ranges", ranges)
    monkeypatch.setattr(kept_log.time, "sleep", pauses.append)
    monkeypatch.setattr(kept_log.time, "monotonic", lambda: sum(pauses))
    found = kept_log.decided(Connection(bootstrap_servers="127.0.0.1:1"), "orders.dlq")
    assert found == {0: span(2, 12), 1: span(2, end)}
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
    monkeypatch.setattr(kept_log, "partitions_of", lambda _, topic: [(topic, 0)])
    monkeypatch.setattr(kept_log, "log_ranges", lambda _, places, *_isolation: dict.fromkeys(places, span(5, 9)))


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("ranges", "what"),
    [
        *[(kept, None) for kept in ({}, {0: (5, 9)}, {0: (12, 12)}, {0: (2, 2)}, {1: (3, 3)})],
        *[
            ({0: (4, 9)}, "expired"),
            ({0: (5, 10)}, "ends before"),
            ({0: (10, 12)}, "ends before"),
            ({1: (0, 1)}, "ends"),
        ],
    ],
)
def test_what_kafka_has_of_a_stretch_can_be_judged_and_for_what_it_has_not_the_way_out_is_named(
    tmp_path: Path, ranges: dict[int, tuple[int, int]], what: str | None
) -> None:
    with pytest.raises(Terminal, match=what) if what else nullcontext() as refused:
        require_kept(NOWHERE, Tables(str(tmp_path)), "orders", ranges, "kafka")
    assert refused is None or "recount reset" in refused.value.remedy


@pytest.mark.usefixtures("orders")
def test_a_topic_that_was_made_anew_has_had_the_offsets_that_the_stream_has_read() -> None:
    """Letters about them are not about no record; a partition that it has no more is not read from Kafka."""
    last = a_proof(0, PartitionProof(topic="orders", partition=0, start=0, end=20))
    assert written_so_far(NOWHERE, ["orders"], last) == {"orders": {0: (0, 20)}}
    assert written_so_far(NOWHERE, ["orders"], a_proof(0)) == {"orders": {0: (0, 9)}}
    assert kept_log._kafka_since(NOWHERE, "orders", {0: (5, 9), 1: (7, 7)}) == {0: 5, 1: 7}


LEDGER = Ledger(
    tuple(
        a_proof(number, PartitionProof(topic="orders", partition=0, start=10 * number, end=10 * number + 10))
        for number in range(3)
    )
)
FIRST, SECOND, THIRD = LEDGER.proofs


def seed_at(proof: BatchProof) -> Seed:
    run = a_run(f"night-{proof.batch}", finished_ms=proof.batch, batch=proof.batch)
    return Seed(run=run, stream_times={})


def log_from(folder: Path, monkeypatch: pytest.MonkeyPatch, spans: Mapping[int, LogRange]) -> StretchLog:
    """Kafka holds ``spans`` of orders, of which there is no archive."""
    monkeypatch.setattr(kept_log, "kept", lambda _connection, _topic: spans)
    return StretchLog(connection=NOWHERE, tables=Tables(str(folder)), sources={"orders": "kafka"})


@pytest.mark.parametrize(
    ("spans", "seed", "standing", "reached", "cut", "refused"),
    [
        ({0: span(10, 30)}, seed_at(FIRST), seed_at(THIRD), seed_at(FIRST), THIRD, None),
        ({0: span(30, 30)}, seed_at(SECOND), seed_at(THIRD), seed_at(THIRD), THIRD, None),
        ({0: span(30, 30)}, seed_at(SECOND), NOTHING, seed_at(SECOND), THIRD, "expired"),
        ({0: span(30, 30)}, NOTHING, NOTHING, NOTHING, THIRD, "expired"),
        ({0: span(0, 1)}, NOTHING, NOTHING, NOTHING, THIRD, "ends before"),
        ({}, seed_at(THIRD), NOTHING, seed_at(THIRD), THIRD, None),
    ],
    ids=["there", "judged and expired", "expired", "expired, the first night", "cut short", "nothing to judge"],
)
def test_an_audit_reaches_what_is_there_and_stands_where_all_was_judged_before(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spans: Mapping[int, LogRange],
    seed: Seed,
    standing: Seed,
    reached: Seed,
    cut: BatchProof,
    refused: str | None,
) -> None:
    """A stream stood still for longer than its topic is kept, and each night was refused."""
    log = log_from(tmp_path, monkeypatch, spans)
    assert log.reach(LEDGER, seed, THIRD, standing) == Reach(seed=reached, cut=cut)
    with pytest.raises(Terminal, match=refused) if refused else nullcontext():
        log.require(
            LEDGER.standing_at(cut.order) if reached.order == cut.order else LEDGER.between(reached.order, cut.order)
        )


@pytest.mark.parametrize("spans", [{0: span(0, 29)}, {0: span(0, 0)}, {}])
def test_where_the_log_was_cut_short_the_audit_stands_at_the_one_before_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: Mapping[int, LogRange]
) -> None:
    log = log_from(tmp_path, monkeypatch, spans)
    reach = log.reach(LEDGER, seed_at(FIRST), THIRD, NOTHING)
    assert (reach.seed, reach.cut) == (seed_at(FIRST), FIRST)
    [short] = reach.short
    assert (short.place, short.verdict, short.evidence) == ("orders-0", "cut short", ("orders-0@30",))
    later = log.reach(LEDGER, seed_at(SECOND), THIRD, seed_at(THIRD))
    assert (later.seed, later.cut, len(later.short)) == (seed_at(THIRD), THIRD, 1), "though all of it was judged"


def test_who_has_accepted_a_log_that_was_cut_short_has_accepted_it_however_far_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [accepted], [later] = (
        log_from(tmp_path, monkeypatch, {0: span(0, end)}).reach(LEDGER, seed_at(FIRST), THIRD, NOTHING).short
        for end in (1, 29)
    )
    assert finding_id("revenue", accepted) == finding_id("revenue", later)
    assert covers(accepted, later)
