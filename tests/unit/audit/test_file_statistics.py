"""A log that says of the files of a table what is not in them is seen: readers would pass over rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.delta_logs import commit, said
from tests.unit.audit.test_judgement import a_flow

from recount.audit.integrity.table_files import false_statistics
from recount.tables.places import Tables

TOPOLOGY = a_flow().topology
ROWS = pl.DataFrame(
    {
        "region": ["EU", "US", None],
        "revenue": ["0.1", "12345678901234567.25", None],
        "recount_batch": [1, 2, 2],
        "recount_is_null": [False, False, None],
        "ratio": [0.1, float("nan"), None],
        "weight.kg": [1, 2, None],
    }
).with_columns(pl.col("revenue").cast(pl.Decimal(38, 2)))
LONG = pl.DataFrame(
    {"region": ["a" * 40, "\U0010ffff" * 40, "\uffff" * 40, "é" * 40, "z" * 31 + "éé", "", "\0", None, "\x7f" * 40]}
)


@pytest.fixture(name="tables")
def _tables(tmp_path: Path) -> Tables:
    tables = Tables(str(tmp_path / "data"))
    for path in (tables.output("revenue"), tables.late(TOPOLOGY.name), tables.rejected(TOPOLOGY.name)):
        write_deltalake(path, ROWS.drop("recount_is_null"))
        write_deltalake(path, ROWS, mode="append", schema_mode="merge")
        for part in range(LONG.height):
            write_deltalake(path, LONG[part : part + 1], mode="append", schema_mode="merge")
        write_deltalake(path, LONG, mode="append", schema_mode="merge")
        DeltaTable(path).create_checkpoint()
    return tables


def rewrite(path: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Name the file with most rows once more in the log, with statistics that ``change`` has changed."""
    [first, *_] = [one for one in said(path, "add") if "recount_is_null" in json.loads(one["stats"])["nullCount"]]
    stats = json.loads(first["stats"])
    change(stats)
    commit(path, [{"add": {**first, "stats": json.dumps(stats)}}])


def test_what_is_written_has_statistics_that_hold(tables: Tables) -> None:
    assert false_statistics(tables, TOPOLOGY) == []
    assert false_statistics(Tables(str(tables.root) + "/none"), TOPOLOGY) == []


FALSE: dict[str, Callable[[dict[str, Any]], None]] = {
    "least text": lambda said: said["minValues"].update(region="F"),
    "greatest text": lambda said: said["maxValues"].update(region="F"),
    "least number": lambda said: said["minValues"].update(recount_batch=2),
    "greatest number": lambda said: said["maxValues"].update(recount_batch=1),
    "least flag": lambda said: said["minValues"].update(recount_is_null=True),
    "a name with a point": lambda said: said["maxValues"].update({"weight.kg": 1}),
    "nulls": lambda said: said["nullCount"].update(region=0),
    "all nulls": lambda said: said["nullCount"].update(region=3),
    "rows": lambda said: said.update(numRecords=0),
}


@pytest.mark.parametrize("what", FALSE)
def test_statistics_that_are_false_are_named_with_their_file(tables: Tables, what: str) -> None:
    for path, place in (
        (tables.output("revenue"), "table outputs/revenue"),
        (tables.late(TOPOLOGY.name), "late table"),
        (tables.rejected(TOPOLOGY.name), "rejected table"),
    ):
        rewrite(path, FALSE[what])
        [found] = [one for one in false_statistics(tables, TOPOLOGY) if one.place == place]
        assert (found.verdict, found.actual) == ("altered", "1 files have other rows, nulls or values")
        assert found.evidence[0].startswith("file part-")


def say_in_the_end_of_files(path: str, old: bytes, new: bytes) -> None:
    """Put ``new`` in the place of ``old`` in what each file of the table says of its row groups."""
    for name in DeltaTable(path).file_uris():
        file = Path(name)
        whole = file.read_bytes()
        start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
        file.write_bytes(whole[:start] + whole[start:].replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"), [(b"US", b"FF"), ((2).to_bytes(8, "little"), (1).to_bytes(8, "little"))], ids=["text", "number"]
)
def test_what_a_file_says_of_itself_is_compared_too(tables: Tables, old: bytes, new: bytes) -> None:
    path = tables.output("revenue")
    say_in_the_end_of_files(path, old, new)
    [found] = false_statistics(tables, TOPOLOGY)
    assert (found.place, found.verdict) == ("table outputs/revenue", "altered")
    assert found.actual == "2 files have other rows, nulls or values"


def test_a_row_is_passed_over_by_readers_that_look_for_it(tables: Tables) -> None:
    """What false statistics do, those of the log and those of the files."""
    path = tables.output("revenue")
    looked_for = pl.scan_delta(path).filter(pl.col("region") == "US")
    rewrite(path, FALSE["greatest text"])
    assert (looked_for.collect().height, pl.scan_delta(path).collect()["region"].to_list().count("US")) == (1, 2)
    say_in_the_end_of_files(path, b"US", b"FF")
    assert (looked_for.collect().height, pl.scan_delta(path).collect()["region"].to_list().count("US")) == (0, 2)


def test_wider_bounds_and_none_are_no_lie(tables: Tables) -> None:
    path = tables.output("revenue")
    rewrite(path, lambda said: (said["minValues"].update(region="A"), said["maxValues"].update(region="Z")))  # type: ignore[func-returns-value]
    rewrite(path, lambda said: (said["minValues"].clear(), said["maxValues"].clear(), said["nullCount"].clear()))
    assert false_statistics(tables, TOPOLOGY) == []


def test_a_file_without_rows_is_no_lie(tables: Tables) -> None:
    """Spark leaves one where it deletes the only rows of a file."""
    ROWS.clear().write_parquet(Path(tables.output("revenue")) / "empty.parquet")
    for stats in ({}, {"stats": '{"numRecords":0}'}):
        add = {"path": "empty.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
        commit(tables.output("revenue"), [{"add": {**add, **stats}}])
        assert false_statistics(tables, TOPOLOGY) == []
