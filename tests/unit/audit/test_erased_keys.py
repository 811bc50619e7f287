"""An erasure, or an order to set a record aside, counts where one who may sign has signed it; all else is named."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit.documents import a_run, findings
from tests.unit.lifecycle.test_erase_command import BEGUN, ORDER

from recount.audit.carry.erased_keys import AsideRecords, ErasedKeys, run_sha256
from recount.audit.carry.store import AuditStore, Run
from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.issuing import issue
from recount.audit.certificate.signing import make_keys, signed_record, signer_in
from recount.certificate.chain import Chain
from recount.certificate.document import Unverified, certified, verify
from recount.declare.fingerprint import Declared
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import AsideLog, DeclarationLog, ErasureLog
from recount.tables.places import Tables
from recount.tables.signed_orders import AsideOrder, Erasure

DONE = replace(BEGUN, state="done", stream="revenue", snapshot_before="a", snapshot_after="b")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    make_keys(tmp_path / "keys", reports=tmp_path / "reports")
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run", "keys")}
    return Settings(profile="embedded", bootstrap_servers="nowhere:1", jars="", **folders)


def noted(settings: Settings, erasure: Erasure) -> Erasure:
    """``erasure``, signed and in the table."""
    signed = signed_record(erasure, signer_in(settings.keys))
    ErasureLog(settings.data, erasure.stream).append(signed)
    return signed


def forge(settings: Settings, erasure: Erasure) -> None:
    ErasureLog(settings.data, "revenue").append(erasure)


def certify(settings: Settings, audit: str, *erasures: Erasure) -> Path:
    document = {**findings(audit), "erasures": [one.to_document() for one in erasures]}
    return issue("revenue", audit, lambda: document, settings.reports, signer=signer_in(settings.keys))


def run(audit: str, *lineage: str) -> Run:
    return a_run(audit, lineage=(*lineage, audit), batch=3)


def test_where_nothing_was_erased_audits_begin_where_they_like(settings: Settings) -> None:
    erased = ErasedKeys.of(settings, "revenue")
    assert (erased.done, erased.unfinished, erased.differences()) == ((), None, [])
    assert erased.admits(run("night-1"))
    erased.require_finished()
    erased.require_judgeable((0, 0))
    erased.require_repeatable("night-1", None)


def test_a_signed_record_counts_and_no_audit_looks_behind_it(settings: Settings) -> None:
    done = noted(settings, DONE)
    erased = ErasedKeys.of(settings, "revenue")
    assert (erased.done, erased.differences()) == ((done,), [])
    assert [erased.admits(one) for one in (run("night-3"), run("night-4", "night-3"), run("night-2"))] == [
        True,
        True,
        False,
    ]
    erased.require_judgeable((0, 3))
    with pytest.raises(Terminal, match="cannot be judged"):
        erased.require_judgeable((0, 2))
    erased.require_repeatable("night-4", run("night-3"))
    for seed in (None, run("night-2")):
        with pytest.raises(Terminal, match="cannot be repeated"):
            erased.require_repeatable("night-3", seed)


@pytest.mark.parametrize(
    "made",
    [
        lambda done: replace(done, by="Mallory"),
        lambda done: replace(done, by="Mallory").hashed(done.key_id),
        lambda done: replace(done, by="Mallory").hashed(None),
        lambda done: replace(replace(done, by="Mallory").hashed(done.key_id), signature=done.signature),
        lambda done: replace(done, stream="notes"),
    ],
)
def test_a_record_that_nobody_has_signed_is_forged_and_counts_for_nothing(settings: Settings, made: object) -> None:
    done = noted(settings, DONE)
    assert callable(made)
    forge(settings, made(done))
    erased = ErasedKeys.of(settings, "revenue")
    assert erased.done == (done,)
    assert [(one.verdict, one.place) for one in erased.differences()] == [("extra", "table erasures/revenue")]


def test_a_forged_beginning_keeps_no_audit_from_judging_and_a_signed_one_does(settings: Settings) -> None:
    forge(settings, replace(DONE, state="begun").hashed(None))
    ErasedKeys.of(settings, "revenue").require_finished()
    noted(settings, replace(DONE, state="begun"))
    with pytest.raises(Terminal, match="has begun and is not done"):
        ErasedKeys.of(settings, "revenue").require_finished()
    noted(settings, DONE)
    ErasedKeys.of(settings, "revenue").require_finished()


def test_a_driver_waits_for_whatever_has_begun(settings: Settings) -> None:
    log = ErasureLog(settings.data, "revenue")
    log.require_finished()
    forge(settings, replace(DONE, state="begun").hashed(None))
    with pytest.raises(Terminal, match="run it again") as refused:
        log.require_finished()
    assert "--stream revenue" in refused.value.remedy


def test_without_keys_an_unsigned_record_counts_as_unsigned_certificates_do(settings: Settings) -> None:
    unsigned = replace(settings, keys="")
    forge(unsigned, DONE.hashed(None))
    assert len(ErasedKeys.of(unsigned, "revenue").done) == 1


def test_a_record_that_a_certificate_lists_counts_though_it_was_removed_and_that_is_told(settings: Settings) -> None:
    done = noted(replace(settings, data=settings.data + "-elsewhere"), DONE)
    certify(settings, "night-4", done)
    erased = ErasedKeys.of(settings, "revenue")
    assert erased.done == (done,)
    assert [one.verdict for one in erased.differences()] == ["lost"]


def test_an_erasure_of_another_version_of_the_stream_bars_nothing(settings: Settings) -> None:
    noted(settings, replace(DONE, version=2))
    assert ErasedKeys.of(settings, "revenue").newest is None


def test_a_snapshot_must_be_what_erasures_left_one_after_the_other(settings: Settings) -> None:
    noted(settings, DONE)
    noted(settings, replace(DONE, erasure="revenue-2", at_ms=2, snapshot_before="b", snapshot_after="c"))
    erased = ErasedKeys.of(settings, "revenue")
    assert erased.snapshot_of("night-3", "a") == "c"
    assert erased.snapshot_of("night-3", "x") == "x"
    assert erased.snapshot_of("night-4", "a") == "a"


def test_what_the_next_audit_goes_on_from_must_be_what_was_signed(settings: Settings) -> None:
    store, left = AuditStore(Tables(settings.data), "revenue"), run("night-3")
    store.complete(left)
    noted(settings, replace(DONE, run_sha256=run_sha256(store.document_of("night-3"))))
    erased = ErasedKeys.of(settings, "revenue")
    assert erased.differences_behind(left, store) == erased.differences_behind(None, store) == []
    store.complete(replace(left, outcome="violation"))
    assert [one.verdict for one in erased.differences_behind(left, store)] == ["altered"]
    assert erased.differences_behind(run("night-4"), store) == []


def test_a_later_certificate_lists_every_erasure_of_the_one_before(settings: Settings) -> None:
    done = noted(settings, DONE)
    first = load(certify(settings, "night-4", done))
    later = certified(findings("night-5"), first)
    with pytest.raises(Unverified, match="forgets an erasure"):
        verify(later, [first])
    verify(certified({**findings("night-5"), "erasures": [done.to_document()]}, first), [first])
    chain = Chain("revenue", {"night-4.json": first, "night-5.json": later})
    assert any("is not mentioned" in str(fault) for fault in chain.faults())


STREAM, TABLE = "revenue", "table set-aside/revenue"


def ordered(settings: Settings, offset: int, version: int = 1) -> AsideOrder:
    """An order in the table."""
    said = {**ORDER.to_document(), "stream": STREAM, "topic": "orders", "partition": 0}
    order = AsideOrder(**{**said, "offset": offset, "version": version})
    order = signed_record(order, signer_in(settings.keys))
    AsideLog(settings.data, STREAM).append(order)
    return order


def audited(settings: Settings, audit: str, version: int = 1, *orders: AsideOrder) -> None:
    """A certificate of offsets up to 12 that lists ``orders``."""
    document: dict[str, Any] = {**findings(audit), "set_aside": [one.to_document() for one in orders]}
    document["declaration"] = {**document["declaration"], "stream_version": version}
    issue(STREAM, audit, lambda: document, settings.reports, signer=signer_in(settings.keys))


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
