"""Of the snapshots of a stream those of its last audits are kept, whatever these are called."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.unit.audit.documents import a_run

from recount.audit.carry.snapshots import Snapshots
from recount.audit.carry.store import SNAPSHOTS, AuditStore
from recount.declare.columns import AUDIT
from recount.tables.places import Tables

ROW = pl.DataFrame({"part": ["truth"], "name": ["window"], "schema": ["{}"], "rows": [b""]})


class Nights:
    """Audits of which only snapshots and rows of ``runs`` exist."""

    def __init__(self, root: Path) -> None:
        self.tables = Tables(str(root))
        self.store = AuditStore(None, self.tables, "clicks")

    def audit(self, audit: str, *, is_complete: bool = True) -> None:
        self.store.put_rows(SNAPSHOTS, audit, ROW)
        if is_complete:
            Snapshots(session=None, tables=self.tables, stream="clicks").keep_newest(audit, 3)  # type: ignore[arg-type]
            self.store.complete(a_run(audit, finished_ms=self.store.next_ms()))

    @property
    def kept(self) -> set[str]:
        return {one[AUDIT] for one in DeltaTable(self.tables.audit("clicks", SNAPSHOTS)).partitions()}


@pytest.mark.parametrize(
    "audits",
    [
        ["20260101T010000Z-1", "20260102T010000Z-2", "20260103T010000Z-3", "20260104T010000Z-4"],
        ["try-1", "try-2", "try-3", "20260104T010000Z-4", "20260105T010000Z-5"],
        ["20960101T010000Z-1", "20960102T010000Z-2", "20960103T010000Z-3", "20260104T010000Z-4"],
    ],
)
def test_the_last_ones_are_kept_whatever_people_or_clocks_have_called_them(tmp_path: Path, audits: list[str]) -> None:
    """A night whose name came before theirs lost its own, and the next had to begin at the beginning of the log."""
    nights = Nights(tmp_path)
    for audit in audits:
        nights.audit(audit)
    assert nights.kept == set(audits[-3:])


def test_one_that_is_at_work_keeps_its_own_and_killed_ones_do_not_pile_up(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    for number in range(3):
        nights.audit(f"killed-{number}", is_complete=False)
    for audit in ("a", "b", "c", "d"):
        nights.audit(audit)
    assert nights.kept == {"b", "c", "d", "killed-2"}
