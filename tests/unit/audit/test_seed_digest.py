"""What a single aggregation's audits go on from is told from any other by its rows, whatever their order and files."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import polars as pl

from recount.audit.carry.store import PARTIALS, PUBLISHED, AuditStore
from recount.audit.integrity.altered_lineage import seed_sha256
from recount.tables.places import Tables

ROWS = [("zoe", Decimal("1.50")), ("noah", Decimal("2.00"))]


def seeded(folder: Path, rows: Sequence[tuple[str, Decimal]], *, parts: int = 1) -> str:
    tables = Tables(str(folder))
    store = AuditStore(None, tables, "bills")
    for name in (PARTIALS, PUBLISHED):
        for audit in ("night-1", "night-2"):
            for part in range(parts):
                frame = pl.DataFrame(rows[part::parts], {"who": pl.String, "fees": pl.Decimal(15, 2)}, orient="row")
                store.put_rows(name, audit, frame, part=part)
    return seed_sha256(tables, "bills", ("night-1", "night-2"))


def test_order_and_files_do_not_matter_and_every_value_does(tmp_path: Path) -> None:
    whole = seeded(tmp_path / "a", ROWS)
    assert seeded(tmp_path / "b", ROWS[::-1], parts=2) == whole
    assert seeded(tmp_path / "c", [ROWS[0], ("noah", Decimal("2.01"))]) != whole
    assert seeded(tmp_path / "d", ROWS[:1]) != whole
    assert seed_sha256(Tables(str(tmp_path / "a")), "bills", ("night-1",)) != whole


def test_where_nothing_was_kept_there_is_a_digest_of_nothing(tmp_path: Path) -> None:
    assert len(seed_sha256(Tables(str(tmp_path)), "bills", ())) == 64
