"""What a table keeps, and for how long."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from recount.spark.delta_table import AppendOnlyTable

ROWS = pl.DataFrame({"n": [1]})
_DAY_S = 86_400


def table_at(path: Path, *, is_ledger: bool = False) -> AppendOnlyTable:
    table = AppendOnlyTable(path=str(path), schema=dict(ROWS.schema), is_ledger=is_ledger)
    table.create()
    return table


def append(table: AppendOnlyTable, *versions: int) -> None:
    for version in versions:
        table.append(ROWS, writer="stream", version=version, metadata=f"batch {version}")


def commits(table: AppendOnlyTable) -> list[int]:
    return sorted(int(file.stem) for file in (Path(table.path) / "_delta_log").glob("*.json") if file.stem.isdecimal())


@pytest.mark.parametrize("is_ledger", [True, False])
def test_commits_older_than_a_day_are_forgotten_unless_they_are_the_ledger(tmp_path: Path, is_ledger: bool) -> None:
    table = table_at(tmp_path, is_ledger=is_ledger)
    append(table, *range(25))
    two_days_ago_s = time.time() - 2 * _DAY_S
    for file in (tmp_path / "_delta_log").iterdir():
        os.utime(file, (two_days_ago_s, two_days_ago_s))
    append(table, *range(25, 45))

    kept = commits(table)
    assert kept == list(range(46)) if is_ledger else kept[0] > 0, kept
    assert DeltaTable(table.path).version() == 45
    assert table.read().collect().height == 45
    append(table, 44)
    assert DeltaTable(table.path).version() == 45, "a replay after the commit itself is forgotten"


def test_an_append_reads_at_most_ten_commits(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    append(table, *range(25))
    checkpoints = sorted((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    versions = [0, *(int(file.name.split(".")[0]) for file in checkpoints), DeltaTable(table.path).version()]
    assert max(later - earlier for earlier, later in pairwise(versions)) <= 10


def test_files_that_were_joined_are_removed_once_no_reader_can_need_them(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    append(table, *range(5))
    table.compact()
    assert len(list(tmp_path.glob("*.parquet"))) == 6
    table.compact(replaced_files_kept_h=0)
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert table.read().collect().height == 5
