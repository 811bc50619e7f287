"""A log that Spark and delta-rs read in different ways is named: an audit reads with one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.delta_logs import Action, commit, said
from tests.unit.audit.test_judgement import a_flow

from recount.audit.integrity.table_files import strange_logs
from recount.declare.columns import BATCH, GENERATION
from recount.engine.commit.delta_table import AppendOnlyTable
from recount.tables.places import Tables

TOPOLOGY = a_flow().topology
COLUMNS = {"region": pl.String(), GENERATION: pl.Int32(), BATCH: pl.Int64()}


@pytest.fixture(name="tables")
def _tables(tmp_path: Path) -> Tables:
    """As streams, maintenance and erasures write them."""
    tables = Tables(str(tmp_path / "data"))
    for path in (tables.output("revenue"), tables.late(TOPOLOGY.name), tables.rejected(TOPOLOGY.name)):
        table = AppendOnlyTable(path=path, schema=COLUMNS, log_kept_ms=0)
        table.create()
        for batch in range(12):
            rows = pl.DataFrame({"region": ["EU", "US"], GENERATION: [0, 0], BATCH: [batch, batch]}, COLUMNS)
            table.append(rows, writer="w", version=batch)
        table.delete("recount_batch = 3")
        table.replace("recount_batch = 4", rows.clear())
        table.compact()
        AppendOnlyTable(path=path, schema=COLUMNS).create()
    return tables


def last(path: str, kind: str) -> Any:
    return said(path, kind)[-1]


def test_what_recount_writes_is_not_strange(tables: Tables) -> None:
    assert strange_logs(tables, TOPOLOGY) == []
    assert strange_logs(Tables(str(tables.root) + "/none"), TOPOLOGY) == []


def removed(add: Mapping[str, Any]) -> Action:
    return {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}


def with_rules(metadata: Mapping[str, Any], /, **rules: Any) -> Action:
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0] |= rules
    return {"metaData": {**metadata, "schemaString": json.dumps(schema)}}


STRANGE: dict[str, Callable[[str], list[Action]]] = {
    "added and removed": lambda path: [{"add": last(path, "add")}, removed(last(path, "add"))],
    "removed and added": lambda path: [removed(last(path, "add")), {"add": last(path, "add")}],
    "partition columns": lambda path: [{"metaData": {**last(path, "metaData"), "partitionColumns": [BATCH]}}],
    "protocol": lambda _: [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}],
    "rules of a writer": lambda _: [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}],
    "no nulls": lambda path: [with_rules(last(path, "metaData"), nullable=False)],
    "another name": lambda path: [
        with_rules(last(path, "metaData"), metadata={"delta.columnMapping.physicalName": BATCH})
    ],
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_commit_that_recount_never_writes_is_named(tables: Tables, what: str) -> None:
    for path, place in (
        (tables.output("revenue"), "table outputs/revenue"),
        (tables.late(TOPOLOGY.name), "late table"),
        (tables.rejected(TOPOLOGY.name), "rejected table"),
    ):
        name = commit(path, STRANGE[what](path))
        [found] = [one for one in strange_logs(tables, TOPOLOGY) if one.place == place]
        assert (found.verdict, found.evidence) == ("altered", (f"file _delta_log/{name}",))


def test_a_compacted_log_is_named(tables: Tables) -> None:
    log = Path(tables.output("revenue")) / "_delta_log"
    compacted = log / f"{1:020}.{2:020}.compacted.json"
    compacted.write_text((log / f"{1:020}.json").read_text() if (log / f"{1:020}.json").exists() else "")
    [found] = strange_logs(tables, TOPOLOGY)
    assert found.evidence == (f"file _delta_log/{compacted.name}",)


def test_other_rows_that_do_not_count_are_no_second_file(tables: Tables) -> None:
    """By Delta's protocol a file is removed and added where rows of it are deleted by a list."""
    path = tables.output("revenue")
    add = last(path, "add")
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    commit(path, [removed(add), {"add": {**add, "deletionVector": vector}}])
    assert strange_logs(tables, TOPOLOGY) == []


def test_readers_do_not_agree_about_a_file_that_is_added_and_removed(tables: Tables) -> None:
    path = tables.output("revenue")
    before = pl.scan_delta(path).collect().height
    commit(path, STRANGE["added and removed"](path))
    assert pl.scan_delta(path).collect().height == before
