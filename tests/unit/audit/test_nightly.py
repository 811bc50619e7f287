"""The audit's tables lose what no audit builds on, and windows that are judged no more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from tests.unit.audit.documents import a_run

from recount.audit.carry.store import PARTIALS, RECONCILIATION, VERDICTS, AuditStore
from recount.audit.night import trim_audits
from recount.declare.columns import AUDIT
from recount.runtime.settings import Keeping
from recount.tables.places import Released, Tables

DAY_MS = 86_400_000
KEEPING = Keeping(verdicts="10 d")


class Nights:
    """An audit a day, each with a verdict on windows that end at 10, 20 and never."""

    def __init__(self, folder: Path) -> None:
        self.tables = Tables(str(folder))
        self.store = AuditStore(None, self.tables, "clicks")

    def audited(self, day: int, lineage: Sequence[int], released_ms: int | None = None) -> None:
        rows = pl.DataFrame({"window_end": [10, 20, None]})
        for name in (VERDICTS, PARTIALS, RECONCILIATION):
            self.store.put_rows(name, f"night-{day}", rows)
        self.store.complete(
            a_run(
                f"night-{day}",
                finished_ms=day * DAY_MS,
                lineage=tuple(f"night-{one}" for one in lineage),
                batch=day,
                released=released_ms and Released(before_ms=released_ms, cut=(0, day), offsets={}),
            )
        )

    def left(self, name: str) -> dict[str, list[int | None]]:
        rows = pl.scan_delta(self.tables.audit("clicks", name)).group_by(AUDIT).agg("window_end").sort(AUDIT).collect()
        return {audit: sorted(ends, key=str) for audit, ends in rows.iter_rows()}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_an_audit_stays_as_long_as_a_young_one_builds_on_it(nights: Nights) -> None:
    for day, lineage in ((1, [1]), (2, [1, 2]), (3, [3]), (9, [1, 2, 9]), (12, [12])):
        nights.audited(day, lineage)
    trim_audits(nights.tables, "clicks", KEEPING, nights.store.runs())
    assert set(nights.left(VERDICTS)) == {f"night-{day}" for day in (1, 2, 3, 9, 12)}
    nights.audited(14, [14])
    trim_audits(nights.tables, "clicks", KEEPING, nights.store.runs())
    assert set(nights.left(VERDICTS)) == {f"night-{day}" for day in (1, 2, 9, 12, 14)}
    nights.audited(20, [20])
    trim_audits(nights.tables, "clicks", Keeping(verdicts=None), nights.store.runs())
    trim_audits(nights.tables, "clicks", KEEPING, nights.store.runs())
    assert set(nights.left(PARTIALS)) == {f"night-{day}" for day in (12, 14, 20)}


def test_what_an_audit_compared_goes_by_its_age_though_others_build_on_the_audit(nights: Nights) -> None:
    for day, lineage in ((1, [1]), (4, [1, 4]), (12, [1, 4, 12])):
        nights.audited(day, lineage)
    trim_audits(nights.tables, "clicks", KEEPING, nights.store.runs())
    assert set(nights.left(RECONCILIATION)) == {"night-4", "night-12"}
    assert set(nights.left(PARTIALS)) == {"night-1", "night-4", "night-12"}
    assert [nights.store.has(RECONCILIATION, f"night-{day}") for day in (1, 4)] == [False, True]


def test_windows_that_the_audit_before_the_newest_released_go_from_it_and_those_before(nights: Nights) -> None:
    nights.audited(1, [1], released_ms=20)
    nights.audited(2, [1, 2], released_ms=30)
    trim_audits(nights.tables, "clicks", KEEPING, nights.store.runs())
    assert nights.left(PARTIALS) == nights.left(VERDICTS) == {"night-1": [20, None], "night-2": [10, 20, None]}
    assert nights.left(RECONCILIATION) == {f"night-{day}": [10, 20, None] for day in (1, 2)}, "it is one whole"


def test_a_stream_without_audits_has_nothing_to_trim(nights: Nights, caplog: pytest.LogCaptureFixture) -> None:
    trim_audits(nights.tables, "clicks", KEEPING, nights.store.runs())
    assert caplog.text == ""
