"""What an audit goes on from is told from any other by the checksums in the certificate that left it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.unit.audit.documents import a_run, certify, findings

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import NOTHING, PARTIALS, PUBLISHED, AuditStore, Seed
from recount.audit.integrity.altered_lineage import Lineage, rows_of
from recount.audit.integrity.table_checksums import KeptRows, LineageChecksums
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.places import Released, Tables

STREAM = "revenue"
ROWS = pl.DataFrame({"region": ["EU", "US"], "orders": [5, 2], "window_end": [10, 20]})


class Nights:
    """Audits of a stream that have left the same rows each, every one with its certificate."""

    def __init__(self, root: Path) -> None:
        self._reports = root / "reports"
        self.settings = Settings(
            profile="embedded",
            bootstrap_servers="localhost:1",
            data=str(root / "data"),
            checkpoints=str(root / "checkpoints"),
            reports=str(self._reports),
            logs=str(root / "logs"),
            run=str(root / "run"),
            jars=str(root / "jars"),
        )
        self.tables = Tables(self.settings.data)
        self.store = AuditStore(None, self.tables, STREAM)
        self.lineage = Lineage(settings=self.settings, stream=STREAM, erased=ErasedKeys(stream=STREAM))
        self.last = NOTHING

    def audited(self, audit: str, released_ms: int | None = None, *, says: bool = True) -> Sequence[str]:
        """Returns the tables that it found altered; ``says``: whether its certificate has the checksums."""
        altered = self.altered()
        for name in (PARTIALS, PUBLISHED):
            self.store.put_rows(name, audit, ROWS)
        released = None if released_ms is None else Released(before_ms=released_ms, cut=(0, 1), offsets={})
        sums = self.lineage.built_on(self.last, audit, released, is_altered=bool(altered))
        run = a_run(
            audit,
            finished_ms=self.store.next_ms(),
            lineage=(*self.last.lineage, audit),
            released=released,
            built_on=sums,
        )
        told = {"built_on": [asdict(one) for one in sums]} if says else {}
        certify(self._reports, {**findings(audit), "released": released and asdict(released), **told})
        self.store.complete(run)
        self.last = self.store.seed_of(audit)
        return altered

    def altered(self) -> list[str]:
        return [one.place for one in self.lineage.differences(self.last.run)]

    def change(self, name: str, where: str, orders: int) -> None:
        """Write to rows that audits have left."""
        DeltaTable(self.tables.audit(STREAM, name)).update(predicate=where, updates={"orders": str(orders)})


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_rows_that_somebody_wrote_to_are_named_every_night_until_they_are_restored(nights: Nights) -> None:
    assert nights.audited("night-1") == nights.audited("night-2") == []
    nights.change(PARTIALS, "recount_audit = 'night-1' AND region = 'EU'", 1_005)
    for night in (3, 4):
        assert nights.audited(f"night-{night}") == [f"table audits/{STREAM}/{PARTIALS}"]
    nights.change(PUBLISHED, "recount_audit = 'night-4'", 0)
    [first, second] = nights.lineage.differences(nights.last.run)
    assert (first.evidence, second.evidence) == (("audit night-2",), ("audit night-4",))
    with pytest.raises(Terminal, match="is not what they left"):
        nights.lineage.require_unaltered("night-4")

    nights.change(PARTIALS, "recount_audit = 'night-1' AND region = 'EU'", 5)
    nights.change(PUBLISHED, "recount_audit = 'night-4' AND region = 'EU'", 5)
    nights.change(PUBLISHED, "recount_audit = 'night-4' AND region = 'US'", 2)
    assert nights.audited("night-5") == []
    nights.lineage.require_unaltered("night-5")
    assert [one.audit for one in nights.lineage._told_by(nights.last.run)] == ["night-5"]


def test_an_audit_from_the_beginning_goes_on_from_nothing(nights: Nights) -> None:
    nights.audited("night-1")
    nights.change(PARTIALS, "orders = 5", 6)
    nights.last = NOTHING
    assert nights.audited("night-2") == nights.audited("night-3") == []


def test_checksums_in_the_row_of_the_audit_count_for_nothing_beside_those_of_its_certificate(nights: Nights) -> None:
    nights.audited("night-1")
    nights.change(PARTIALS, "orders = 5", 6)
    rows = rows_of(nights.store, ["night-1"], (PARTIALS, PUBLISHED))
    assert nights.last.run
    forged = replace(nights.last.run, built_on=(LineageChecksums.of("night-1", rows, None),))
    nights.store.complete(forged)
    nights.last = Seed(run=forged, stream_times={})
    assert nights.altered() == [f"table audits/{STREAM}/{PARTIALS}"]


def test_a_certificate_of_an_earlier_release_says_nothing(nights: Nights) -> None:
    nights.audited("night-1", says=False)
    nights.change(PARTIALS, "orders = 5", 6)
    assert nights.audited("night-2") == []


def test_windows_that_were_released_may_go_and_no_others(nights: Nights) -> None:
    nights.audited("night-1", released_ms=20)
    for name in (PARTIALS, PUBLISHED):
        DeltaTable(nights.tables.audit(STREAM, name)).delete("window_end = 10")
    assert nights.altered() == []
    DeltaTable(nights.tables.audit(STREAM, PARTIALS)).delete("window_end = 20")
    assert nights.altered() == [f"table audits/{STREAM}/{PARTIALS}"]


def test_an_older_audit_is_not_asked_about_rows_that_may_be_gone_by_now(nights: Nights) -> None:
    nights.audited("night-1")
    old = nights.last
    nights.audited("night-2", released_ms=20)
    nights.audited("night-3", released_ms=20)
    DeltaTable(nights.tables.audit(STREAM, PARTIALS)).delete("window_end = 10")
    assert nights.altered() == []
    nights.last = old
    assert nights.altered() == []


def test_another_version_of_polars_may_hash_otherwise(nights: Nights) -> None:
    nights.audited("night-1")
    rows = rows_of(nights.store, ["night-1"], (PARTIALS, PUBLISHED))
    sums = LineageChecksums.of("night-1", rows, KeptRows(by="window", since_ms=5))
    assert LineageChecksums.of_documents(json.loads(json.dumps([asdict(sums)]))) == (sums,)
    other = {name: rows[PARTIALS].head(1) for name in (PARTIALS, PUBLISHED)}
    assert sums.altered(other) == [PARTIALS, PUBLISHED]
    assert replace(sums, polars="0.1").altered(other) == []
