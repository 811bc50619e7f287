"""A key is erased from streams on a real broker: nothing at rest names it any more, and later audits stay green."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tests.integration.spark.drivers import committed
from tests.spark.audit.clinic import NOAH, ZOE, Clinic, clinic_of, dead_files, files_naming
from tests.spark.audit.stage import Stage

from recount.audit.certificate import load, verify_file
from recount.core.erasure import Erasure
from recount.core.own_columns import REVISION
from recount.erasures import ErasureLog
from recount.local.kafka import EmbeddedKafka
from recount.local.project import Project

pytestmark = pytest.mark.timeout(900)
"""Streams and audits run for real: minutes where other work shares the machine."""

BEFORE = [(ZOE, 0, 10.0), (NOAH, 1, 20.0), (ZOE, 4, 1.0), (ZOE, 9, 2.0), (NOAH, 12, 5.0), (ZOE, 1, 99.0), (ZOE, 12, 3.0)]
"""The sixth visit comes too late."""
AFTER = [(ZOE, 13, 4.0), (NOAH, 13, 6.0), (NOAH, 20, 7.0)]


@pytest.fixture
def clinic(tiny: None, spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path) -> Clinic:
    """After its first day, which is proved."""
    clinic = clinic_of(spark, kafka, project, tmp_path)
    clinic.visits(BEFORE)
    clinic.run()
    for stage in clinic.stages:
        assert stage.audit().findings.differences == ()
    return clinic


def zoes(clinic: Clinic, table: str) -> pl.DataFrame:
    rows = pl.read_delta(clinic.tables.output(table))
    return rows.filter(pl.any_horizontal(pl.col(pl.String) == ZOE))


def test_nothing_at_rest_names_an_erased_key_and_every_later_audit_is_a_match(clinic: Clinic) -> None:
    assert files_naming(clinic.settings.data, ZOE)
    counts = clinic.erasure(ZOE).counts()
    assert counts[clinic.bills.topology.name]["outputs/bills"] == 3
    assert counts[clinic.bills.topology.name]["late"] == 1
    assert counts[clinic.notes.topology.name]["outputs/notes"] == 5
    assert counts[clinic.archive.name] == {f"archive/{clinic.archive.topic.name}": 5}
    clinic.erase(ZOE)
    assert files_naming(clinic.settings.data, ZOE) == []
    assert dead_files(clinic.settings.data) == []
    archived = pl.read_delta(clinic.tables.archive(clinic.archive.topic.name)).filter(pl.col("erased"))
    assert archived.select(pl.len(), pl.col("key", "value").null_count()).row(0) == (5, 5, 5)
    last = list(committed(clinic.notes.connection, clinic.notes.written("notes").topic.name))[-1]
    assert (last.key(), last.value()) == (ZOE.encode(), None)

    for stage in clinic.stages:
        quiet = stage.audit()
        assert quiet.findings.differences == ()
        document = load(quiet.certificate)
        assert (document["outcome"], document["batches"]) == ("match", 0)
        [told] = document["erasures"]
        assert (told["by"], told["reason"], told["state"]) == ("Ada", "asked to be forgotten", "done")
        assert Erasure(**told).is_of(ZOE)
        assert ZOE not in quiet.certificate.read_text()
        verify_file(quiet.certificate)

    clinic.visits(AFTER)
    clinic.run()
    for stage in clinic.stages:
        assert stage.audit().findings.differences == ()
    assert zoes(clinic, "bills")[REVISION].to_list() == [0]
    assert zoes(clinic, "notes").height == 1
    for stage in clinic.stages:
        whole = stage.audit(from_the_beginning=True)
        assert whole.findings.differences == ()
        assert load(whole.certificate)["begins_after_erasure"] == told_erasure(clinic, stage)

    clinic.erase(ZOE)
    assert files_naming(clinic.settings.data, ZOE) == []
    clinic.visits([(ZOE, 30, 1.0), (NOAH, 31, 1.0)])
    clinic.run()
    for stage in clinic.stages:
        assert stage.audit("archive").findings.differences == ()


def told_erasure(clinic: Clinic, stage: Stage) -> str:
    return Erasure.from_json(ErasureLog(clinic.settings.data, stage.topology.name).texts()[0]).erasure


@pytest.mark.parametrize("table", ["bills", "notes"])
def test_rows_that_are_removed_under_a_forged_record_are_lost(clinic: Clinic, table: str) -> None:
    clinic.erase(ZOE)
    stage = clinic.bills if table == "bills" else clinic.notes
    log = ErasureLog(clinic.settings.data, stage.topology.name)
    done = Erasure.from_json(log.texts()[-1])
    forged = replace(done, erasure="forged", at_ms=done.at_ms + 1).hashed(done.key_id)
    log.append(replace(forged, signature=done.signature))
    path = clinic.tables.output(table)
    key = stage.written(table).key
    DeltaTable(path).delete(f"\"{key}\" = '{NOAH}'")
    found = {(one.place, one.verdict) for one in stage.audit().findings.differences}
    assert (f"table erasures/{stage.topology.name}", "extra") in found
    if table == "bills":
        assert ("table outputs/bills", "lost") in found
    else:
        assert ("table outputs/notes", "altered") in found


def test_an_erasure_that_leaves_the_state_or_what_audits_go_on_from_turns_the_audit_red(clinic: Clinic) -> None:
    state = clinic.tables.state(clinic.bills.topology.name)
    partials = clinic.tables.audit(clinic.bills.topology.name, "partials")
    kept = {path: pl.read_delta(path).filter(pl.any_horizontal(pl.col(pl.String) == ZOE)) for path in (state, partials)}
    clinic.erase(ZOE)
    clinic.visits(AFTER)
    for path in (state, partials):
        assert kept[path].height
    write_deltalake(state, kept[state], mode="append")
    clinic.run()
    found = {(one.place, one.verdict) for one in clinic.bills.audit().findings.differences}
    assert ("table outputs/bills", "altered") in found
