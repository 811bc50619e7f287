"""Where an audit stands when the log of what it is to judge is not there any more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import a_run

from recount.audit.carry.store import NOTHING, Seed
from recount.audit.cut import kept_log
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.kept_log import Reach, StretchLog
from recount.certificate.finding import covers, finding_id
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange
from recount.runtime.errors import Terminal
from recount.tables.ledger import BatchProof, PartitionProof
from recount.tables.places import Tables

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
    for module in (kept_log, kept_log):
        monkeypatch.setattr(module, "kept", lambda _connection, _topic: spans)
    nowhere = Connection(bootstrap_servers="127.0.0.1:1")
    return StretchLog(connection=nowhere, tables=Tables(str(folder)), sources={"orders": "kafka"})


def test_a_stretch_that_is_there_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_from(tmp_path, monkeypatch, {0: LogRange(start=10, end=30)})
    assert log.reach(LEDGER, seed_at(FIRST), THIRD, seed_at(THIRD)) == Reach(seed=seed_at(FIRST), cut=THIRD)


def test_a_stretch_that_was_judged_and_has_expired_since_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream stood still for longer than the topic is kept, and each night was refused."""
    log = log_from(tmp_path, monkeypatch, {0: LogRange(start=30, end=30)})
    assert log.reach(LEDGER, seed_at(SECOND), THIRD, seed_at(THIRD)) == Reach(seed=seed_at(THIRD), cut=THIRD)


@pytest.mark.parametrize("seed", [NOTHING, seed_at(SECOND)])
def test_a_stretch_that_has_expired_before_it_was_judged_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: Seed
) -> None:
    log = log_from(tmp_path, monkeypatch, {0: LogRange(start=30, end=30)})
    assert log.reach(LEDGER, seed, THIRD, NOTHING) == Reach(seed=seed, cut=THIRD)
    with pytest.raises(Terminal, match="expired"):
        log.require(LEDGER.between(seed.order, THIRD.order))


@pytest.mark.parametrize("spans", [{0: LogRange(start=0, end=29)}, {0: LogRange(start=0, end=0)}, {}])
def test_where_the_log_was_cut_short_the_audit_stands_at_the_one_before_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: Mapping[int, LogRange]
) -> None:
    log = log_from(tmp_path, monkeypatch, spans)
    reach = log.reach(LEDGER, seed_at(FIRST), THIRD, NOTHING)
    assert (reach.seed, reach.cut) == (seed_at(FIRST), FIRST)
    [short] = reach.short
    assert (short.place, short.verdict, short.evidence) == ("orders-0", "cut short", ("orders-0@30",))


def test_where_all_of_it_was_judged_before_it_was_cut_short_the_audit_says_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_from(tmp_path, monkeypatch, {0: LogRange(start=0, end=1)})
    reach = log.reach(LEDGER, seed_at(SECOND), THIRD, seed_at(THIRD))
    assert (reach.seed, reach.cut, len(reach.short)) == (seed_at(THIRD), THIRD, 1)


def test_a_log_that_was_cut_short_before_any_audit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_from(tmp_path, monkeypatch, {0: LogRange(start=0, end=1)})
    assert log.reach(LEDGER, NOTHING, THIRD, NOTHING) == Reach(seed=NOTHING, cut=THIRD)
    with pytest.raises(Terminal, match="ends before"):
        log.require(LEDGER)


def test_who_has_accepted_a_log_that_was_cut_short_has_accepted_it_however_far_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for end in (1, 29):
        log = log_from(tmp_path, monkeypatch, {0: LogRange(start=0, end=end)})
        found += log.reach(LEDGER, seed_at(FIRST), THIRD, NOTHING).short
    accepted, later = found
    assert finding_id("revenue", accepted) == finding_id("revenue", later)
    assert covers(accepted, later)


def test_an_audit_that_begins_behind_the_last_batch_asks_for_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_from(tmp_path, monkeypatch, {})
    reach = log.reach(LEDGER, seed_at(THIRD), THIRD, NOTHING)
    assert reach == Reach(seed=seed_at(THIRD), cut=THIRD)
    log.require(LEDGER.standing_at(reach.cut.order))
