"""A key is erased from streams whose operators remember it, whatever they are; later audits stay green, or turn red."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.audit.clinic import ANNA, EVE, NOAH, ZOE, dead_files, files_naming
from tests.spark.audit.ward import KINDS, OTHER_KEYS, Ward, ward_of

from recount.audit.certificate.certificate_files import load
from recount.declare.columns import REVISION
from recount.lifecycle.held_rows import HeldKey
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project

ALL = (ZOE, NOAH, ANNA, EVE)
STREAMS = (
    list(KINDS) if "LAW_EXAMPLES" in os.environ else ["windows", pytest.param("joins", marks=pytest.mark.thorough)]
)
"""That each operator forgets a key: tests/unit/lifecycle/test_operators_forget.py."""


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_goes_on_as_if_the_erased_key_had_never_been_there(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    project: Project,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
) -> None:
    """ZOE is erased, and comes again. Then ANNA is erased, and NOAH's state is removed under cover of that."""
    ward = ward_of(spark, kafka, project, tmp_path_factory.mktemp("ward"), kind)
    mine = [node.table for node in ward.topology.written if node.table not in OTHER_KEYS]
    ward.a_day(0, ALL)
    assert ward.audit().findings.differences == ()
    require_erasable(ward, mine)
    if kind == "windows":
        quiet = ward.audit()
        assert quiet.findings.differences == ()
        assert load(quiet.certificate)["batches"] == 0

    ward.a_day(1, ALL)
    later = ward.audit(from_the_beginning=kind == "windows")
    assert later.findings.differences == ()
    document = load(later.certificate)
    begins_after = document["erasures"][0]["erasure"] if kind == "windows" else None
    assert document.get("begins_after_erasure") == begins_after
    for table in mine:
        assert rows_of(ward, table, ZOE)[REVISION].min() == 0, table
        assert rows_of(ward, table, ZOE).height < rows_of(ward, table, EVE).height, table
    if kind != "windows":
        return

    ward.erase(ANNA, ward.topology.name)
    held = HeldKey(tables=ward.tables, topology=ward.topology, audit=None, key=NOAH).holdings()
    [one.remove() for one in held if one.name == "state"]
    ward.a_day(2, ALL)
    wrong = {one.key for one in ward.audit().findings.differences if one.place.startswith("table outputs/")}
    assert wrong == {NOAH}


def require_erasable(ward: Ward, mine: Sequence[str]) -> None:
    """ZOE is erased by runs that are killed after each step; then only rows of a room name her, as the key they had."""
    named = {node.table for node in ward.topology.written}
    counts = ward.erasure(ZOE).counts()[ward.topology.name]
    assert {name for name in counts if name.startswith("outputs/")} == {f"outputs/{table}" for table in mine}
    assert counts["state"]
    assert counts["audits/snapshots"]
    steps = ["begun", "tables", "audits", "snapshot", "tombstones", "runs", "files"]
    assert ward.erase_dying(ZOE, ward.topology.name) == steps
    assert {file.split("/")[1] for file in files_naming(ward.settings.data, ZOE)} == named & {"roomed"}
    assert dead_files(ward.settings.data) == []


def test_rows_that_were_erased_are_lost_where_no_record_says_so(
    spark: SparkSession, kafka: EmbeddedKafka, project: Project, tmp_path: Path
) -> None:
    ward = ward_of(spark, kafka, project, tmp_path, "totals")
    ward.a_day(0, ALL)
    assert ward.audit().findings.differences == ()
    ward.erase(ZOE, ward.topology.name)
    DeltaTable(ward.tables.erasures(ward.topology.name)).delete()
    found = ward.audit().findings.differences
    assert ("table outputs/totals", "lost", ZOE) in {(one.place, one.verdict, one.key) for one in found}


def rows_of(ward: Ward, table: str, key: str) -> pl.DataFrame:
    """The rows of ``key`` in an output table."""
    node = ward.written(table)
    return pl.read_delta(ward.tables.output(table)).filter(pl.col(node.key).cast(pl.String) == key)
