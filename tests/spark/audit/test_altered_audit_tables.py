"""Whoever can write to one table of the audits of a single aggregation changes no result, and is found."""

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tests.spark.audit.clinic import EVE, NOAH, Clinic, clinic_of
from tests.spark.audit.stage import Stage, trim

from recount.audit.carry.store import CORRECTIONS, SNAPSHOTS
from recount.audit.certificate.certificate_files import load
from recount.audit.compare.correction_claims import COMPLETE_TEXT
from recount.audit.night import CertifiedAudit
from recount.backfill.carrying_out import CarryingOut, Repaired
from recount.declare.columns import AUDIT, BATCH
from recount.declare.operators.nodes import KEY, WINDOW_END
from recount.engine.commit.batch import TopologyWork
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import RUNS


@pytest.fixture
def clinic(spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path) -> Clinic:
    """Only its bills are run: fees by patient, a single aggregation."""
    return clinic_of(spark, kafka, project, tmp_path)


def a_night(clinic: Clinic, number: int) -> CertifiedAudit:
    """A visit of Eve for 5, and one of Noah that closes its window; the first night another of Eve, for 2, too late."""
    minute = 20 * number
    late = [] if number else [(EVE, 1.0, 2.0)]
    clinic.visits([(EVE, minute + 1, 5.0), (NOAH, minute + 12, 1.0), *late])
    clinic.bills.run()
    return clinic.bills.audit()


def rewrite(path: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Write to the table at ``path`` what ``change`` makes of its rows."""
    write_deltalake(DeltaTable(path), change(pl.read_delta(path)), mode="overwrite")


def backfill(clinic: Clinic) -> Repaired:
    bills = clinic.bills
    return CarryingOut.of(bills.settings, bills.topology).run()


def test_what_somebody_altered_is_taken_by_no_backfill_no_erasure_and_no_later_audit(clinic: Clinic) -> None:
    stream = clinic.bills.topology.name
    corrections, snapshots = (clinic.tables.audit(stream, name) for name in (CORRECTIONS, SNAPSHOTS))
    honest = a_night(clinic, 0).findings
    assert (honest.differences, [miss.key for miss in honest.misses]) == ((), [EVE])
    rewrite(corrections, lambda rows: rows.with_columns(pl.col(COMPLETE_TEXT).str.replace("7.00", "1007.00")))
    with pytest.raises(Terminal, match="is not what they left"):
        backfill(clinic)
    [asked] = clinic.erasure(NOAH, stream).streams
    with pytest.raises(Terminal, match=f"audits/{stream}/corrections has other rows"):
        asked.run()

    second = a_night(clinic, 1)
    assert (second.findings.differences, load(second.certificate)["seed"]) == ((), honest.audit)
    assert backfill(clinic).corrections == 1
    corrected = pl.read_delta(clinic.tables.corrections("bills"))
    assert corrected.select(KEY, "fees").rows() == [(EVE, Decimal("7.00"))]

    name = second.findings.audit
    rewrite(snapshots, lambda rows: rows.filter((pl.col(AUDIT) != name) | pl.col("rows").is_null()))
    third = a_night(clinic, 2)
    assert (third.findings.differences, load(third.certificate)["seed"]) == ((), honest.audit)


HUGE = 2**60


@pytest.fixture
def brief(clinic: Clinic) -> Stage:
    """The bills, of which none is kept once it is judged."""
    bills = clinic.bills
    return replace(bills, topology=replace(bills.topology, retention="1 ms"))


def a_day(brief: Stage, number: int, *, batches: int = 2) -> CertifiedAudit:
    """A visit of Eve in each batch, ten minutes after the one before."""
    for batch in range(batches):
        brief.produce([("visits", 0, EVE, 20 * number + 10 * batch, {"note": "n", "fee": 5.0})])
        brief.run()
    return brief.audit()


def trimmed(brief: Stage) -> list[int]:
    """The ends of the windows whose results are left when the driver has removed what it may."""
    trim(brief)
    return sorted(pl.read_delta(brief.tables.output("bills"))[WINDOW_END].to_list())


@pytest.mark.thorough
def test_a_forged_release_in_the_row_of_an_audit_lets_neither_stream_nor_audit_forget_anything(brief: Stage) -> None:
    days = [a_day(brief, number) for number in (0, 1)]
    released = [load(day.certificate)["released"]["before_ms"] for day in days]
    left = trimmed(brief)
    assert left[0] >= released[0] < released[1]

    def forged(text: str) -> str:
        document = json.loads(text)
        return json.dumps({**document, "released": {**document["released"], "before_ms": HUGE}})

    runs = brief.tables.audit(brief.topology.name, RUNS)
    rewrite(runs, lambda rows: rows.with_columns(pl.col("document").map_elements(forged, pl.String)))
    assert trimmed(brief) == left
    night = a_day(brief, 2)
    assert night.findings.differences == ()
    assert released[1] < load(night.certificate)["released"]["before_ms"] < HUGE
    assert trimmed(brief)[-1] > released[1]
    assert night.findings.counts["delta match"] > 0, "its results are judged"


@pytest.mark.thorough
def test_a_forged_old_batch_releases_no_more_than_was_certified_for_it(brief: Stage) -> None:
    days = [a_day(brief, number) for number in (0, 1)]
    TopologyWork(brief.topology, brief.settings.data).tables.ledger.move()

    def forged(text: str) -> str:
        document = json.loads(text)
        return json.dumps({**document, "frontier_ms": HUGE} if document["batch"] == 2 else document)

    def forge(rows: pl.DataFrame) -> pl.DataFrame:
        last = pl.col(BATCH) == 3
        told = pl.col("proof").map_elements(forged, pl.String)
        return rows.with_columns(told, recorded_ms=pl.when(last).then(HUGE).otherwise("recorded_ms"))

    rewrite(brief.tables.ledger(brief.topology.name), forge)
    night = a_day(brief, 2, batches=1)
    assert night.findings.differences == ()
    assert night.findings.released is not None
    assert night.findings.released.before_ms == load(days[1].certificate)["cut"]["frontier_ms"]
