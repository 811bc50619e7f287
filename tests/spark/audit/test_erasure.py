"""A key is erased from streams on a real broker: nothing at rest names it any more, and later audits stay green."""

from dataclasses import replace

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tests.integration.engine.drivers import committed
from tests.spark.audit.clinic import ANNA, EVE, IDA, NOAH, ZOE, Clinic, Killed, clinic_of, dead_files, files_naming

from recount.audit.certificate.certificate_files import load, verify_file
from recount.audit.expectations.validation import validate
from recount.backfill.carrying_out import CarryingOut, Repaired
from recount.declare.columns import BACKFILL_NUMBER, REVISION
from recount.engine.state.graph_state import ROWS
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.errors import Terminal
from recount.tables.decisions import ErasureLog
from recount.tables.signed_orders import Erasure

BEFORE = [
    *((ZOE, 0, 10.0), (NOAH, 1, 20.0), (ZOE, 4, 1.0), (ZOE, 9, 2.0), (EVE, 9, 2.0)),
    *((NOAH, 12, 5.0), (ANNA, 12, 6.0), (ZOE, 1, 99.0), (ZOE, 12, 3.0)),
]
"""The last visit but one comes too late."""


@pytest.fixture(scope="module")
def clinic(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
) -> Clinic:
    """After its first day, which is proved."""
    clinic = clinic_of(spark, kafka, project, tmp_path_factory.mktemp("clinic"))
    clinic.visits(BEFORE)
    clinic.run()
    for stage in clinic.stages:
        assert stage.audit().findings.differences == ()
    return clinic


def rows_of(clinic: Clinic, table: str, key: str) -> pl.DataFrame:
    """The rows of ``key`` in an output table."""
    return _of(pl.read_delta(clinic.tables.output(table)), key)


def _of(rows: pl.DataFrame, key: str) -> pl.DataFrame:
    return rows.filter(pl.any_horizontal(pl.col(pl.String) == key))


@pytest.mark.thorough
def test_nothing_at_rest_names_a_key_that_was_erased_by_runs_that_were_killed_after_each_step(clinic: Clinic) -> None:
    assert files_naming(clinic.settings.data, ZOE)
    bills, notes, archive = clinic.bills.topology.name, clinic.notes.topology.name, clinic.archive
    counts = clinic.erasure(ZOE).counts()
    assert (counts[bills]["outputs/bills"], counts[bills]["late"], counts[notes]["outputs/notes"]) == (3, 1, 5)
    assert counts[archive.name] == {f"archive/{archive.topic.name}": 5}

    with pytest.raises(Killed):
        clinic.erase(ZOE, bills, observer=killed_at_once)
    for begin in (clinic.bills.run, clinic.bills.audit):
        with pytest.raises(Terminal, match="has begun and is not done"):
            begin()
    steps = ["begun", "tables", "audits", "snapshot", "tombstones", "runs", "files"]
    assert [clinic.erase_dying(ZOE, name) for name in (bills, notes)] == [steps, steps]
    assert clinic.erase_dying(ZOE, archive.name) == ["begun", "tables", "files"]
    assert (files_naming(clinic.settings.data, ZOE), dead_files(clinic.settings.data)) == ([], [])
    erased = pl.read_delta(clinic.tables.archive(archive.topic.name)).filter(pl.col("erased"))
    assert erased.select(pl.len(), pl.col("key", "value", "headers").null_count()).row(0) == (5, 5, 5, 5)
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


def test_an_erased_key_begins_anew_and_audits_from_the_beginning_begin_at_its_erasure(clinic: Clinic) -> None:
    clinic.erase(ZOE)
    clinic.visits([(ZOE, 13, 4.0), (NOAH, 13, 6.0), (NOAH, 20, 7.0)])
    clinic.run()
    for stage in clinic.stages:
        assert stage.audit().findings.differences == ()
    assert rows_of(clinic, "bills", ZOE)[REVISION].to_list() == [0]
    assert rows_of(clinic, "notes", ZOE).height == 1
    for stage in clinic.stages:
        whole = stage.audit(from_the_beginning=True)
        assert whole.findings.differences == ()
        document = load(whole.certificate)
        assert document["begins_after_erasure"] == document["erasures"][0]["erasure"]

    clinic.erase(ZOE)
    assert files_naming(clinic.settings.data, ZOE) == []
    clinic.visits([(ZOE, 30, 1.0), (NOAH, 31, 1.0)])
    clinic.run()
    for stage in clinic.stages:
        assert stage.audit("archive").findings.differences == ()


@pytest.mark.thorough
def test_corrections_go_with_their_key_and_the_next_backfill_follows(clinic: Clinic) -> None:
    bills = clinic.bills
    corrections = clinic.tables.corrections("bills")

    def corrected(visits: list[tuple[str, float, float]]) -> Repaired:
        clinic.visits(visits)
        bills.run()
        assert bills.audit().findings.misses
        done = CarryingOut.of(bills.settings, bills.topology).run()
        assert bills.audit().findings.differences == ()
        return done

    clinic.visits([(IDA, 40, 1.0), (EVE, 50, 1.0)])
    bills.run()
    assert corrected([(IDA, 41, 2.0)]).corrections
    for key in (IDA, ZOE):
        clinic.erase(key, bills.topology.name)
        assert _of(pl.read_delta(corrections), key).is_empty()
    assert pl.read_delta(corrections).is_empty()
    clinic.notes.run()
    clinic.notes.audit()
    clinic.erase(IDA, clinic.notes.topology.name)
    for stage in clinic.stages:
        quiet = stage.audit().findings
        assert quiet.differences == ()
        found = validate(stage.spark, stage.settings, stage.topology, quiet.audit)
        assert (found.exit_code, found.disagreements) == (0, []), found.lines("")
    assert corrected([(EVE, 42, 2.0)]).published
    assert pl.read_delta(corrections)[BACKFILL_NUMBER].to_list() == [1]
    clinic.notes.run()
    assert clinic.notes.audit().findings.differences == ()


def test_a_forged_erasure_and_one_that_forgets_the_state_turn_the_audit_red(clinic: Clinic) -> None:
    """NOAH's state comes back: what an erasure would leave that forgot it."""
    clinic.visits([(who, 70, 4.0) for who in (NOAH, EVE)])
    for stage in clinic.stages:
        stage.run()
        assert stage.audit().findings.differences == ()
    stream = clinic.bills.topology.name
    state = clinic.tables.state(stream)
    kept = pl.read_delta(state)
    clinic.erase(NOAH, stream)
    assert not pl.read_delta(state).sort(ROWS).equals(kept.sort(ROWS))
    write_deltalake(state, kept, mode="overwrite")
    clinic.visits([(NOAH, 71, 4.0)])
    clinic.bills.run()
    clinic.notes.run()
    found = clinic.bills.audit().findings.differences
    assert NOAH in {one.key for one in found if (one.place, one.verdict) == ("table outputs/bills", "altered")}

    log = ErasureLog(clinic.settings.data, stream)
    done = Erasure.from_json(log.texts()[-1])
    forged = replace(done, erasure="forged", at_ms=done.at_ms + 1, stream=clinic.notes.topology.name)
    ErasureLog(clinic.settings.data, clinic.notes.topology.name).append(
        replace(forged.hashed(done.key_id), signature=done.signature)
    )
    sink = clinic.notes.written("notes")
    DeltaTable(clinic.tables.output("notes")).delete(f"\"{sink.key}\" = '{EVE}'")
    seen = {(one.place, one.verdict, one.key) for one in clinic.notes.audit().findings.differences}
    assert (f"table erasures/{clinic.notes.topology.name}", "extra", None) in seen
    assert ("table outputs/notes", "lost", EVE) in seen or ("table outputs/notes", "altered", None) in seen


def killed_at_once(step: str) -> None:
    raise Killed(step)
