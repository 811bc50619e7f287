"""The digest of a table's rows follows from what batches wrote, not from how files hold it (issue 12, 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from recount.audit.certificate.assembly import code_versions, sources_sha256
from recount.audit.integrity.evidence import written_rows
from recount.declare.columns import BATCH, GENERATION


def batch(number: int, rows: int = 3, **change: Any) -> pl.DataFrame:
    made = [
        {GENERATION: 0, BATCH: number, "region": f"r{row}", "orders": row * number, **change} for row in range(rows)
    ]
    return pl.DataFrame(made)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Four batches, a file each."""
    path = str(tmp_path / "revenue")
    for number in range(4):
        write_deltalake(path, batch(number), mode="append")
    return path


def test_neither_files_nor_their_order_nor_how_many_rows_are_read_at_once_change_it(table: str, tmp_path: Path) -> None:
    digest = written_rows(table, None, (0, 3))
    assert digest.rows == 12
    DeltaTable(table).optimize.compact()
    assert written_rows(table, None, (0, 3)) == digest
    for at_once in (1, 4, 6, 7):
        assert written_rows(table, None, (0, 3), rows_at_once=at_once) == digest
    other = str(tmp_path / "other")
    write_deltalake(other, pl.concat([batch(number) for number in (3, 1, 0, 2)]).reverse())
    assert written_rows(other, None, (0, 3)) == digest


def test_only_the_rows_of_the_judged_batches_count(table: str) -> None:
    before = written_rows(table, (0, 0), (0, 2))
    assert before.rows == 6
    write_deltalake(table, batch(4), mode="append")
    write_deltalake(
        table, batch(0, rows=1, region="of a generation after").with_columns(pl.lit(1).alias(GENERATION)), mode="append"
    )
    assert written_rows(table, (0, 0), (0, 2)) == before
    assert written_rows(table, (0, 4), (1, 0)).rows == 1


def test_a_row_more_less_or_changed_makes_another(table: str) -> None:
    before = written_rows(table, None, (0, 3))
    seen = {before}
    for change in ("DELETE", "ADD", "ALTER"):
        if change == "ADD":
            write_deltalake(table, batch(2, rows=1), mode="append")
        elif change == "ALTER":
            DeltaTable(table).update(updates={"orders": "orders + 1"}, predicate=f"{BATCH} = 3 AND region = 'r1'")
        else:
            DeltaTable(table).delete(f"{BATCH} = 1 AND region = 'r2'")
        after = written_rows(table, None, (0, 3))
        assert after not in seen
        seen.add(after)


def test_a_column_that_is_added_later_leaves_the_digest_of_older_rows_alone(table: str) -> None:
    before = written_rows(table, None, (0, 3))
    write_deltalake(table, batch(4, note="new"), mode="append", schema_mode="merge")
    assert written_rows(table, None, (0, 3)) == before


def test_another_line_of_code_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "rules.py").write_text("LIMIT = 1")
    before = sources_sha256(tmp_path)
    (tmp_path / "inner" / "rules.py").rename(tmp_path / "rules.py")
    moved = sources_sha256(tmp_path)
    (tmp_path / "rules.py").write_text("LIMIT = 2")
    assert len({before, moved, sources_sha256(tmp_path)}) == 3


def test_the_versions_name_code_and_lock() -> None:
    told = code_versions()
    assert all(len(told[name]) == 64 for name in ("sources_sha256", "installed_sha256", "lock_sha256"))
    assert told["recount"]
