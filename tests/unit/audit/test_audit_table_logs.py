"""The log of a table of audits stays short for its readers, however many nights there have been."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from recount.audit.carry.store import VERDICTS, AuditStore
from recount.declare.columns import AUDIT
from recount.tables.places import Tables

ROWS = pl.DataFrame({"row": [1, 2]})


@pytest.mark.parametrize("is_of_an_earlier_release", [False, True])
def test_readers_of_a_table_of_many_nights_begin_at_a_checkpoint(
    tmp_path: Path, is_of_an_earlier_release: bool
) -> None:
    tables = Tables(str(tmp_path))
    path = tables.audit("revenue", VERDICTS)
    if is_of_an_earlier_release:
        write_deltalake(path, ROWS.with_columns(pl.lit("night-0").alias(AUDIT)), partition_by=[AUDIT])
    store = AuditStore(None, tables, "revenue")  # type: ignore[arg-type]  # no Spark takes part
    for night in range(1, 26):
        store.put_rows(VERDICTS, f"night-{night}", ROWS)
    table = DeltaTable(path)
    assert table.to_pyarrow_table().num_rows == 2 * (25 + is_of_an_earlier_release)
    checkpoints = [int(file.name.split(".")[0]) for file in Path(path, "_delta_log").glob("*.checkpoint.parquet")]
    assert table.version() - max(checkpoints) < 10
