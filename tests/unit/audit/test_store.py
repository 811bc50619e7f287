"""What audits leave for the next: where another begins, how long rows and snapshots stay, what is vouched for."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import polars as pl
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import a_run, certify, findings

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.snapshots import Snapshots
from recount.audit.carry.store import (
    CORRECTIONS,
    NOTHING,
    RECONCILIATION,
    SNAPSHOTS,
    VERDICTS,
    AuditStore,
    Run,
)
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.integrity.strangers import LeftForBackfills, corrections_kept
from recount.audit.integrity.table_checksums import LeftRows
from recount.audit.night import OF_EARLIER_RELEASES, trim_audits
from recount.backfill.corrections_due import newest_audit
from recount.certificate.finding import PartitionAccount
from recount.declare.columns import AUDIT
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import Terminal
from recount.runtime.settings import Keeping, Settings
from recount.tables.ledger import PartitionProof
from recount.tables.places import Released, Tables

NO_FATES = {"counted": 0, "late": 0, "filtered": 0, "null_key": 0, "dead_lettered": 0}
LEDGER = Ledger(
    tuple(
        a_proof(number, PartitionProof(topic="orders", partition=0, start=10 * number, end=10 * number + 10))
        for number in range(3)
    )
)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path))


@pytest.fixture
def store(tables: Tables) -> AuditStore:
    return AuditStore(tables, "clicks")  # type: ignore[arg-type]  # no Spark takes part


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
    with pytest.raises(Terminal) as refused:
        store.seed_of("gone")
    assert refused.value.remedy == "recount audit --stream clicks --from-the-beginning"


CLICKS = Topology(
    name="clicks",
    sinks=[stream(Topic(name="orders", key="user", value=RecordSchema.of(n=LONG))).to(Topic(name="out", key="user"))],
)


def test_a_backfill_follows_no_audit_of_batches_that_a_restored_stream_has_not(
    store: AuditStore, tables: Tables
) -> None:
    """The stream and Kafka are of Monday, the audits' tables of Thursday: what Thursday's audit missed is gone."""
    for audit, batch, end in (("monday", 1, 20), ("tuesday", 2, 31), ("thursday", 7, 90)):
        audited(store, audit, batch, end)
    for proof in LEDGER.proofs:
        written = CommitProperties(custom_metadata={"userMetadata": proof.to_json()})
        rows = pl.DataFrame({"key": [proof.batch]})
        write_deltalake(tables.state("clicks"), rows, mode="append", commit_properties=written)
    assert newest_audit(store, CLICKS, None).audit == "monday"
    with pytest.raises(Terminal, match="no complete audit"):
        newest_audit(store, CLICKS, "sunday")
    audited(store, "of today", 2, 30)
    assert newest_audit(store, CLICKS, None).audit == "of today"


SNAPSHOT = pl.DataFrame({"part": ["truth"], "name": ["window"], "schema": ["{}"], "rows": [b""]})


def snapshots_after(store: AuditStore, tables: Tables, killed: Sequence[str], audits: Sequence[str]) -> set[str]:
    """Those that are kept after these audits, of which the first ones were killed."""
    for audit in (*killed, *audits):
        store.put_rows(SNAPSHOTS, audit, SNAPSHOT)
        if audit not in killed:
            Snapshots(tables=tables, stream="clicks").keep_newest(audit, 3)  # type: ignore[arg-type]
            store.complete(a_run(audit, finished_ms=store.next_ms()))
    return {one[AUDIT] for one in DeltaTable(tables.audit("clicks", SNAPSHOTS)).partitions()}


@pytest.mark.parametrize(
    "audits",
    [
        ["20260101T010000Z-1", "20260102T010000Z-2", "20260103T010000Z-3", "20260104T010000Z-4"],
        ["try-1", "try-2", "try-3", "20260104T010000Z-4", "20260105T010000Z-5"],
        ["20960101T010000Z-1", "20960102T010000Z-2", "20960103T010000Z-3", "20260104T010000Z-4"],
    ],
)
def test_the_last_ones_are_kept_whatever_people_or_clocks_have_called_them(
    store: AuditStore, tables: Tables, audits: list[str]
) -> None:
    """A night whose name came before theirs lost its own, and the next had to begin at the beginning of the log."""
    assert snapshots_after(store, tables, [], audits) == set(audits[-3:])


def test_one_that_is_at_work_keeps_its_own_and_killed_ones_do_not_pile_up(store: AuditStore, tables: Tables) -> None:
    killed = [f"killed-{number}" for number in range(3)]
    assert snapshots_after(store, tables, killed, ["a", "b", "c", "d"]) == {"b", "c", "d", "killed-2"}


DAY_MS = 86_400_000
KEEPING = Keeping(verdicts="10 d")


def day_of(store: AuditStore, day: int, lineage: Sequence[int], released_ms: int | None = None) -> None:
    """An audit with a verdict on windows that end at 10, 20 and never."""
    for name in (VERDICTS, RECONCILIATION, *OF_EARLIER_RELEASES):
        store.put_rows(name, f"night-{day}", pl.DataFrame({"window_end": [10, 20, None]}))
    released = released_ms and Released(before_ms=released_ms, cut=(0, day), offsets={})
    nights = tuple(f"night-{one}" for one in lineage)
    store.complete(a_run(f"night-{day}", finished_ms=day * DAY_MS, lineage=nights, batch=day, released=released))


def left(tables: Tables, name: str) -> dict[int, list[int | None]]:
    """The ends of windows that are there of each day."""
    rows = pl.scan_delta(tables.audit("clicks", name)).group_by(AUDIT).agg("window_end").collect()
    return {int(audit.removeprefix("night-")): sorted(ends, key=str) for audit, ends in rows.iter_rows()}


def test_an_audit_stays_as_long_as_a_young_one_builds_on_it(store: AuditStore, tables: Tables) -> None:
    def trim(keeping: Keeping = KEEPING) -> None:
        trim_audits(tables, "clicks", keeping, store.runs())

    trim()  # there is nothing to trim
    for day, lineage in ((1, [1]), (2, [1, 2]), (3, [3]), (9, [1, 2, 9]), (12, [12])):
        day_of(store, day, lineage)
    trim()
    assert left(tables, VERDICTS).keys() == {1, 2, 3, 9, 12}
    day_of(store, 14, [14])
    trim()
    assert left(tables, VERDICTS).keys() == {1, 2, 9, 12, 14}
    day_of(store, 20, [20])
    trim(Keeping(verdicts=None))
    trim()
    assert left(tables, VERDICTS).keys() == {12, 14, 20}
    assert [left(tables, name) for name in OF_EARLIER_RELEASES] == [{}, {}]


def test_what_an_audit_compared_goes_by_its_age_though_others_build_on_the_audit(
    store: AuditStore, tables: Tables
) -> None:
    for day, lineage in ((1, [1]), (4, [1, 4]), (12, [1, 4, 12])):
        day_of(store, day, lineage)
    trim_audits(tables, "clicks", KEEPING, store.runs())
    assert left(tables, RECONCILIATION).keys() == {4, 12}
    assert left(tables, VERDICTS).keys() == {1, 4, 12}
    assert [store.has(RECONCILIATION, f"night-{day}") for day in (1, 4)] == [False, True]


def test_windows_that_the_audit_before_the_newest_released_go_from_it_and_those_before(
    store: AuditStore, tables: Tables
) -> None:
    day_of(store, 1, [1], released_ms=20)
    day_of(store, 2, [1, 2], released_ms=30)
    trim_audits(tables, "clicks", KEEPING, store.runs())
    assert left(tables, VERDICTS) == {1: [20, None], 2: [10, 20, None]}
    assert left(tables, RECONCILIATION) == {day: [10, 20, None] for day in (1, 2)}, "it is one whole"


TWO_ROWS = pl.DataFrame({"row": [1, 2]})


@pytest.mark.parametrize("is_of_an_earlier_release", [False, True])
def test_readers_of_a_table_of_many_nights_begin_at_a_checkpoint(
    store: AuditStore, tables: Tables, is_of_an_earlier_release: bool
) -> None:
    path = tables.audit("clicks", VERDICTS)
    if is_of_an_earlier_release:
        write_deltalake(path, TWO_ROWS.with_columns(pl.lit("night-0").alias(AUDIT)), partition_by=[AUDIT])
    for night in range(1, 26):
        store.put_rows(VERDICTS, f"night-{night}", TWO_ROWS)
    table = DeltaTable(path)
    assert table.to_pyarrow_table().num_rows == 2 * (25 + is_of_an_earlier_release)
    checkpoints = [int(file.name.split(".")[0]) for file in Path(path, "_delta_log").glob("*.checkpoint.parquet")]
    assert table.version() - max(checkpoints) < 10


STREAM = "revenue"
REGIONS = pl.DataFrame({"region": ["EU", "US"], "orders": [5, 2]})


def left_by(settings: Settings, audit: str) -> tuple[LeftForBackfills, Run]:
    """What ``audit`` has left for a backfill, and the audit, with its certificate."""
    store = AuditStore(Tables(settings.data), STREAM)
    store.put_rows(CORRECTIONS, audit, REGIONS)
    sums = (corrections_kept(store, audit),)
    certify(Path(settings.reports), {**findings(audit), "built_on": [asdict(one) for one in sums]})
    run = a_run(audit, built_on=sums)
    return LeftForBackfills(settings=settings, stream=STREAM, erased=ErasedKeys(stream=STREAM)), run


def test_rows_for_a_backfill_that_somebody_wrote_to_are_refused_until_they_are_restored(settings: Settings) -> None:
    left, run = left_by(settings, "night-1")
    left.require_unaltered(run)
    table = DeltaTable(Tables(settings.data).audit(STREAM, CORRECTIONS))
    table.update(predicate="region = 'EU'", updates={"orders": "1005"})
    forged = replace(run, built_on=(corrections_kept(AuditStore(Tables(settings.data), STREAM), "night-1"),))
    for row in (run, forged):
        with pytest.raises(Terminal, match="is not what they left"):
            left.require_unaltered(row)
    table.update(predicate="region = 'EU'", updates={"orders": "5"})
    left.require_unaltered(run)


def test_a_certificate_of_an_earlier_release_says_nothing_and_another_version_of_polars_may_hash_otherwise(
    settings: Settings,
) -> None:
    left, run = left_by(settings, "night-1")
    [sums] = run.built_on
    assert msgspec.convert(json.loads(json.dumps([asdict(sums)])), tuple[LeftRows, ...]) == (sums,)
    other = REGIONS.head(1).lazy()
    assert sums.is_altered(CORRECTIONS, other)
    assert not replace(sums, polars="0.1").is_altered(CORRECTIONS, other)
    of_partials = {"partials": asdict(sums.tables[CORRECTIONS])}
    certify(Path(settings.reports), {**findings("night-0"), "built_on": [{**asdict(sums), "tables": of_partials}]})
    left.require_unaltered(a_run("night-0"))
