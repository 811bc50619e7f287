"""At which complete audit another one begins, by the ledger that there is now."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import CommitProperties, write_deltalake
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import a_run

from recount.audit.carry.store import NOTHING, AuditStore
from recount.audit.cut.audited_ledger import Ledger
from recount.backfill.single_backfill import newest_audit
from recount.certificate.finding import PartitionAccount
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import Terminal
from recount.tables.ledger import PartitionProof
from recount.tables.places import Tables

NO_FATES = {"counted": 0, "late": 0, "filtered": 0, "null_key": 0, "dead_lettered": 0}
LEDGER = Ledger(
    tuple(
        a_proof(number, PartitionProof(topic="orders", partition=0, start=10 * number, end=10 * number + 10))
        for number in range(3)
    )
)


@pytest.fixture
def store(tmp_path: Path) -> AuditStore:
    return AuditStore(None, Tables(str(tmp_path)), "clicks")


def audited(store: AuditStore, audit: str, batch: int, end: int, checkpoint_id: str = "c") -> None:
    """A complete audit up to ``batch``, which had read orders up to ``end``."""
    account = PartitionAccount(topic="orders", partition=0, start=0, end=end, stream_time_ms=end, **NO_FATES)
    store.put_findings(audit, [account], [], [])
    store.complete(a_run(audit, finished_ms=store.next_ms(), batch=batch, checkpoint_id=checkpoint_id))


def test_an_audit_begins_at_one_before_its_cut_and_stands_at_the_newest_of_its_cut(store: AuditStore) -> None:
    for audit, batch, end in (("one", 1, 20), ("two", 2, 30), ("again", 2, 30)):
        audited(store, audit, batch, end)
    assert [store.seed_for(LEDGER, (0, cut)).lineage for cut in (1, 2, 3)] == [(), ("one",), ("again",)]
    assert [store.seed_at(LEDGER, (0, cut)).lineage for cut in (0, 1, 2)] == [(), ("one",), ("again",)]
    assert store.seed_at(LEDGER, (0, 2)).stream_times == {0: 30}
    assert store.seed_at(LEDGER, (0, 2), lambda run: run.audit != "again").lineage == ("two",)


def test_an_audit_of_another_ledger_is_none_to_stand_at(store: AuditStore) -> None:
    """The tables were restored from a backup, and the batch was made again, of other records."""
    audited(store, "of the lost batch", 2, 31)
    audited(store, "of the former version", 2, 30, checkpoint_id="former")
    assert store.seed_at(LEDGER, (0, 2)) == store.seed_for(LEDGER, (0, 3)) == NOTHING


def test_the_remedy_for_a_seed_that_is_gone_can_be_typed(store: AuditStore) -> None:
    with pytest.raises(Terminal) as refused:
        store.seed_of("gone")
    assert refused.value.remedy == "recount audit --stream clicks --from-the-beginning"


CLICKS = Topology(
    name="clicks",
    sinks=[stream(Topic(name="orders", key="user", value=RecordSchema.of(n=LONG))).to(Topic(name="out", key="user"))],
)


def test_a_backfill_follows_no_audit_of_batches_that_a_restored_stream_has_not(
    store: AuditStore, tmp_path: Path
) -> None:
    """The stream and Kafka are of Monday, the audits' tables of Thursday: what Thursday's audit missed is gone."""
    for audit, batch, end in (("monday", 1, 20), ("tuesday", 2, 31), ("thursday", 7, 90)):
        audited(store, audit, batch, end)
    for proof in LEDGER.proofs:
        written = CommitProperties(custom_metadata={"userMetadata": proof.to_json()})
        rows = pl.DataFrame({"key": [proof.batch]})
        write_deltalake(Tables(str(tmp_path)).state("clicks"), rows, mode="append", commit_properties=written)
    assert newest_audit(store, CLICKS, None).audit == "monday"
    with pytest.raises(Terminal, match="no complete audit"):
        newest_audit(store, CLICKS, "sunday")
    audited(store, "of today", 2, 30)
    assert newest_audit(store, CLICKS, None).audit == "of today"
