"""What an audit has released is taken from its certificate, and not from its row."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit.documents import a_run, certify, findings

from recount.audit.carry.store import AuditStore
from recount.audit.cut.in_force import certified_runs, removed_by_now
from recount.runtime.settings import Settings
from recount.tables.places import Released, Tables

RELEASED = Released(before_ms=100, cut=(0, 3), offsets={"orders": {0: 5}})
FORGED = Released(before_ms=2**60, cut=(0, 3), offsets={"orders": {0: 2**60, 1: 7}})
NIGHT = a_run("night-1", batch=3, frontier_ms=900)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run", "jars")}
    return Settings(profile="embedded", bootstrap_servers="localhost:1", **folders)


def counted(settings: Settings, row: Released | None, certificate: dict[str, Any] | None) -> Released | None:
    """What the one audit has released whose row and certificate say so."""
    AuditStore(None, Tables(settings.data), "revenue").complete(replace(NIGHT, released=row))
    if certificate is not None:
        certify(Path(settings.reports), {**findings("night-1"), **certificate})
    [run] = certified_runs(settings, "revenue")
    return run.released


@pytest.mark.parametrize("row", [None, RELEASED, FORGED])
def test_the_certificate_counts_whatever_the_row_says(settings: Settings, row: Released | None) -> None:
    assert counted(settings, row, {"released": asdict(RELEASED)}) == RELEASED
    assert counted(settings, row, {"released": None}) is None


def test_a_row_without_its_certificate_has_released_nothing(settings: Settings) -> None:
    assert counted(settings, RELEASED, None) is None
    certify(Path(settings.reports), {**findings("night-2"), "released": asdict(RELEASED)})
    (Path(settings.reports) / "certificates" / "revenue" / "night-2.json").rename(
        Path(settings.reports) / "certificates" / "revenue" / "night-1.json"
    )
    assert counted(settings, RELEASED, None) is None


def test_the_stream_may_have_removed_what_audits_before_the_newest_have_released() -> None:
    early, late = replace(NIGHT, released=RELEASED), replace(NIGHT, released=replace(RELEASED, before_ms=200))
    assert removed_by_now([]) is removed_by_now([late]) is None
    assert removed_by_now([early, late, NIGHT]) == late.released
    assert removed_by_now([early, late]) == early.released
