"""What a table keeps, and for how long."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from recount.declare.columns import IS_NULL, ORIGIN
from recount.engine.commit.delta_table import DELTA_LOG_KEPT_MS, LEDGER_PROPERTIES, AppendOnlyTable
from recount.runtime.errors import Terminal

ROWS = pl.DataFrame({"n": [1]})
_HOUR_S = 3_600


def table_at(
    path: Path, *, carries_proofs: bool = False, log_kept_ms: int = DELTA_LOG_KEPT_MS, files_worth_joining: int = 2
) -> AppendOnlyTable:
    table = AppendOnlyTable(
        path=str(path),
        schema=dict(ROWS.schema),
        carries_proofs=carries_proofs,
        log_kept_ms=log_kept_ms,
        files_worth_joining=files_worth_joining,
    )
    table.create()
    return table


def append(table: AppendOnlyTable, *versions: int) -> None:
    for version in versions:
        table.append(ROWS, writer="stream", version=version, metadata=f"batch {version}")


def commits(table: AppendOnlyTable) -> list[int]:
    return sorted(int(file.stem) for file in (Path(table.path) / "_delta_log").glob("*.json") if file.stem.isdecimal())


def age(table: AppendOnlyTable, seconds: float) -> None:
    """Let all that is in the log now be as old as that."""
    then_s = time.time() - seconds
    for file in (Path(table.path) / "_delta_log").iterdir():
        os.utime(file, (then_s, then_s))


def properties(table: AppendOnlyTable) -> dict[str, str]:
    return dict(DeltaTable(table.path).metadata().configuration)


def test_a_driver_that_slept_between_its_look_and_its_write_adds_nothing_to_what_a_newer_one_has_written(
    tmp_path: Path,
) -> None:
    """Two processes are two objects: nothing but the log on disk tells one of the other."""
    zombie, newer = table_at(tmp_path), table_at(tmp_path)
    append(newer, 0)
    for later in ((1,), (2, 3)):
        with ThreadPoolExecutor(1) as threads:
            with zombie.busy:  # it has seen that the batch is not there, and is about to write it
                written = threads.submit(append, zombie, later[0])
                wait([written], timeout=0.5)
                append(newer, *later)
            with pytest.raises(CommitFailedError):
                written.result()
    append(zombie, 1, 3)
    assert zombie.read().collect().height == 4
    assert [DeltaTable(table.path).transaction_version("stream") for table in (zombie, newer)] == [3, 3]


class Slept(AppendOnlyTable):
    """Opens the table, sleeps for hours while a newer driver writes, and then lists the folder."""

    def unused(self) -> set[str]:
        found = super().unused()
        if DeltaTable(self.path).transaction_version("stream") == 2:
            append(table_at(Path(self.path)), 3)
            found |= {Path(file).name for file in DeltaTable(self.path).file_uris()}
        return found


def test_an_upkeep_that_slept_removes_nothing_that_was_written_meanwhile(tmp_path: Path) -> None:
    table_at(tmp_path)
    zombie = Slept(path=str(tmp_path), schema=dict(ROWS.schema), files_worth_joining=99)
    append(zombie, 0, 1, 2)
    zombie.compact()
    assert zombie.read().collect().height == 4


_APPEND_UNDER_LIMIT = """
import resource, signal, sys
import polars as pl
from deltalake.exceptions import DeltaError
from recount.engine.commit.delta_table import AppendOnlyTable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
rows = pl.DataFrame({"n": [1]})
table = AppendOnlyTable(path=sys.argv[1], schema=dict(rows.schema))
failed = 0
for version in range(12):
    for limit in (100, 500, 900, 2_000, -1):  # bytes that a file can have: the write fails here, there, and not at all
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
        try:
            table.append(rows, writer="stream", version=version)
        except (DeltaError, OSError):
            failed += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    assert table.read().collect().height == version + 1, version
assert failed > 12, failed
"""


def test_an_append_that_the_disk_has_no_room_for_leaves_the_table_as_it_was_and_is_made_once_there_is(
    tmp_path: Path,
) -> None:
    """Twelve batches: a checkpoint of the log is among what cannot be written."""
    table = table_at(tmp_path)
    command = [sys.executable, "-c", _APPEND_UNDER_LIMIT, str(tmp_path)]
    done = subprocess.run(command, check=False, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert table.read().collect().height == 12
    assert DeltaTable(table.path).transaction_version("stream") == 11


def test_commits_are_forgotten_once_they_are_old_enough_and_a_checkpoint_replaces_them(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    append(table, *range(25))
    table.forget_commits()
    assert commits(table) == list(range(26)), "none is old enough"
    age(table, _HOUR_S + 60)
    append(table, *range(25, 45))
    assert commits(table) == list(range(46)), "an append itself forgets nothing"
    table.forget_commits()
    assert commits(table) == list(range(19, 46)), "19 is the last checkpoint before what is young enough"
    assert table.read().collect().height == 45
    append(table, 44)
    assert DeltaTable(table.path).version() == 45, "a replay after the commit itself is forgotten"
    age(table, 61)
    sooner = table_at(tmp_path, log_kept_ms=60_000)
    assert properties(sooner)["delta.logRetentionDuration"] == "interval 60000 milliseconds"
    sooner.forget_commits()
    assert commits(sooner)[0] == 39, "kept for a minute from now on"


def test_a_table_that_carries_proofs_forgets_only_what_it_is_told(tmp_path: Path) -> None:
    table = table_at(tmp_path, carries_proofs=True)
    append(table, *range(45))
    age(table, 2 * _HOUR_S)
    with pytest.raises(ValueError, match="carries proofs"):
        table.forget_commits()
    table.forget_commits(before=30)
    assert commits(table) == list(range(29, 46))


def test_delta_itself_never_cleans_the_log_of_a_table_that_carries_proofs(tmp_path: Path) -> None:
    table = table_at(tmp_path, carries_proofs=True)
    append(table, *range(25))
    age(table, 2 * _HOUR_S)
    for number in range(20):
        write_deltalake(table.path, ROWS.with_columns(n=pl.lit(number)), mode="append")
    assert commits(table) == list(range(46))


@pytest.mark.parametrize("carries_proofs", [True, False])
def test_a_table_of_an_earlier_release_gets_the_properties_of_today(tmp_path: Path, carries_proofs: bool) -> None:
    columns = Schema.from_arrow(ROWS.to_arrow().schema)
    DeltaTable.create(str(tmp_path), schema=columns, configuration=dict(LEDGER_PROPERTIES))
    table = table_at(tmp_path, carries_proofs=carries_proofs)
    assert properties(table) == properties(table_at(tmp_path / "new", carries_proofs=carries_proofs))
    version = DeltaTable(table.path).version()
    table.create()
    assert DeltaTable(table.path).version() == version, "what is right is left alone"


def test_an_append_reads_at_most_ten_commits(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    append(table, *range(25))
    checkpoints = sorted((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    versions = [0, *(int(file.name.split(".")[0]) for file in checkpoints), DeltaTable(table.path).version()]
    assert max(later - earlier for earlier, later in pairwise(versions)) <= 10


def test_files_that_were_joined_are_removed_once_no_reader_can_need_them(tmp_path: Path) -> None:
    table = table_at(tmp_path, files_worth_joining=5)
    append(table, *range(4))
    table.compact()
    assert len(DeltaTable(table.path).file_uris()) == 4, "too few to be joined"
    append(table, 4)
    table.compact()
    assert len(list(tmp_path.glob("*.parquet"))) == 6
    table = table_at(tmp_path, log_kept_ms=0)
    table.compact()
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert table.read().collect().height == 5


def test_a_file_that_a_crash_left_without_a_commit_is_removed_when_it_is_old_enough(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    append(table, 0)
    for name, age_s in (("young", 60), ("old", 2 * _HOUR_S)):
        ROWS.write_parquet(tmp_path / f"{name}.parquet")
        os.utime(tmp_path / f"{name}.parquet", (time.time() - age_s,) * 2)
    table.compact()
    assert (tmp_path / "young.parquet").exists()
    assert not (tmp_path / "old.parquet").exists()
    assert table.read().collect().height == 1


def test_a_file_whose_commit_is_on_its_way_is_not_removed_however_old_it_is(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    append(table, 0)
    with ThreadPoolExecutor() as pool:
        with table.busy:
            ROWS.write_parquet(tmp_path / "slept.parquet")
            os.utime(tmp_path / "slept.parquet", (time.time() - 2 * _HOUR_S,) * 2)
            compaction = pool.submit(table.compact)
            assert wait([compaction], timeout=0.5).not_done
            assert (tmp_path / "slept.parquet").exists()
        compaction.result()


def test_a_constraint_that_others_have_set_is_told_without_the_rows_that_do_not_meet_it(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    DeltaTable(table.path).alter.add_constraint({"large": "n > 1"})
    refused = (
        r"refuses rows of its own stream; given: 'failed validation check; CHECK large \(n > 1\)'.*DROP CONSTRAINT"
    )
    for write in (lambda: append(table, 0), lambda: table.replace("n = 1", ROWS)):
        with pytest.raises(Terminal, match=refused) as told:
            write()
        assert told.value.__suppress_context__, "the library's error has rows in it"
    DeltaTable(table.path).alter.drop_constraint("large")
    append(table, 0)
    assert table.read().collect().equals(ROWS)


def test_a_column_that_others_have_added_is_told(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    DeltaTable(table.path).alter.add_columns([Field("theirs", PrimitiveType("long"))])
    with pytest.raises(Terminal, match=r"refuses rows of its own stream.*a column theirs.*DROP COLUMN"):
        append(table, 0)


def test_a_table_of_windows_of_an_earlier_release_gets_the_columns_that_other_results_have(tmp_path: Path) -> None:
    before = AppendOnlyTable(path=str(tmp_path / "out"), schema={"sum": pl.Float64()})
    before.create()
    before.append(pl.DataFrame({"sum": [1.5]}), writer="stream", version=0)
    now = AppendOnlyTable(path=before.path, schema={"sum": pl.Float64(), IS_NULL: pl.Boolean(), ORIGIN: pl.String()})
    now.create()
    now.append(pl.DataFrame({"sum": [2.5], IS_NULL: [False], ORIGIN: ["in-0@0"]}), writer="stream", version=1)
    now.create()
    assert sorted(now.read().collect().rows()) == [(1.5, None, None), (2.5, False, "in-0@0")]
    assert now.last_version("stream") == 1
