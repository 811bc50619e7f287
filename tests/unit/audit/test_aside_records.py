"""An order to set a record aside counts for one version of the stream, if no audit had judged the record before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit.documents import certify, findings
from tests.unit.lifecycle.test_signed_orders import ORDER

from recount.audit.carry.erased_keys import AsideRecords
from recount.declare.fingerprint import Declared
from recount.runtime.settings import Settings
from recount.tables.decisions import AsideLog, DeclarationLog
from recount.tables.signed_orders import AsideOrder

STREAM, TABLE = "revenue", "table set-aside/revenue"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
    return Settings(profile="embedded", bootstrap_servers="nowhere:1", jars="", **folders)


def ordered(settings: Settings, offset: int, version: int = 1) -> AsideOrder:
    """An order in the table."""
    said = {**ORDER.to_document(), "stream": STREAM, "topic": "orders", "partition": 0}
    order = AsideOrder(**{**said, "offset": offset, "version": version}).hashed(None)
    AsideLog(settings.data, STREAM).append(order)
    return order


def audited(settings: Settings, audit: str, version: int = 1, *orders: AsideOrder) -> None:
    """A certificate of offsets up to 12 that lists ``orders``."""
    document: dict[str, Any] = {**findings(audit), "set_aside": [one.to_document() for one in orders]}
    document["declaration"] = {**document["declaration"], "stream_version": version}
    certify(Path(settings.reports), document)


def reset(settings: Settings) -> None:
    DeclarationLog(settings.data, STREAM).enact("reset", Declared(document={"kind": "topology"}), version=2)


def wrong(settings: Settings) -> list[tuple[str, str, str]]:
    found = AsideRecords.of(settings, STREAM).differences()
    assert {one.place for one in found} <= {TABLE}
    return [(one.verdict, one.evidence[0], one.actual or "") for one in found]


def test_an_order_of_a_record_that_no_audit_had_judged_counts(settings: Settings) -> None:
    audited(settings, "night-1")
    order = ordered(settings, 12)
    assert AsideRecords.of(settings, STREAM).orders == (order,)
    assert wrong(settings) == []


def test_an_order_of_a_record_that_an_audit_has_judged_is_forged_unless_that_audit_lists_it(settings: Settings) -> None:
    listed, late = ordered(settings, 4), ordered(settings, 11)
    audited(settings, "night-1", 1, listed)
    assert AsideRecords.of(settings, STREAM).orders == (listed,)
    said = "an earlier audit has judged orders-0@11 as a record of the stream"
    assert wrong(settings) == [("extra", str(late.place), said)]


def test_an_order_of_the_version_before_a_reset_is_neither_counted_nor_called_forged(settings: Settings) -> None:
    listed = ordered(settings, 4)
    audited(settings, "night-1", 1, listed)
    reset(settings)
    audited(settings, "night-2", 2)
    assert AsideRecords.of(settings, STREAM).orders == ()
    assert wrong(settings) == []
    mine = ordered(settings, 12, version=2)
    assert AsideRecords.of(settings, STREAM).orders == (mine,)


def test_an_order_that_only_a_certificate_has_is_lost_and_counts(settings: Settings) -> None:
    order = AsideOrder(**{**json.loads(ORDER.to_json()), "stream": STREAM}).hashed(None)
    audited(settings, "night-1", 1, order)
    assert AsideRecords.of(settings, STREAM).orders == (order,)
    assert wrong(settings) == [("lost", str(order.place), "no such order")]
