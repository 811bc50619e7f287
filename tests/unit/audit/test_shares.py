"""Green must mean green: an audit that matches warns where more was lost to dead letters or lateness than declared."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import findings

from recount.audit.certificate.certificate_page import page
from recount.audit.certificate.summary import summary
from recount.audit.explain.completeness import LookupShare, warnings_of, warnings_of_lookups
from recount.certificate.document import certified
from recount.certificate.finding import PartitionAccount
from recount.declare.limits import Health
from recount.tables.ledger import BatchProof, PartitionProof

LIMITS = Health(dead_letters=0.01, late=0.05, batch_dead_letters=0.1, batch_late=0.5)

MATCHED = certified(findings("night-1"), None)


def account(records: int, **fates: int) -> PartitionAccount:
    counted = records - sum(fates.values())
    rest = dict.fromkeys(("filtered", "null_key", "control", "aborted", "compacted", "expired"), 0)
    told: dict[str, Any] = {"late": 0, "dead_lettered": 0, **rest, **fates, "counted": counted}
    return PartitionAccount(topic="orders", partition=0, start=0, end=records, stream_time_ms=None, **told)


def batch(number: int, records: int, **fates: int) -> BatchProof:
    part = PartitionProof(topic="orders", partition=0, start=0, end=records, records=records, **fates)
    return a_proof(number, part)


@pytest.mark.parametrize(("fate", "at_the_limit"), [("dead_lettered", 10), ("late", 50)])
def test_a_night_at_its_limit_is_silent_and_one_record_more_is_a_warning(fate: str, at_the_limit: int) -> None:
    assert warnings_of(LIMITS, [account(1_000, **{fate: at_the_limit})], []) == []
    [warning] = warnings_of(LIMITS, [account(1_000, **{fate: at_the_limit + 1})], [])
    assert f"{at_the_limit + 1} " in warning


def test_a_single_batch_beyond_its_limit_is_a_warning_in_a_good_night() -> None:
    night = [account(100_000, dead_lettered=60)]
    [warning] = warnings_of(LIMITS, night, [batch(0, 99_900), batch(1, 100, dead_lettered=60)])
    assert warning == "60 dead letters of batch 0/1 in 100 records: 60.00%, limit 10.00%"


def test_many_bad_batches_are_counted_and_not_all_listed() -> None:
    bad = [batch(number, 100, dead_lettered=60) for number in range(25)]
    warnings = warnings_of(Health(dead_letters=1), [account(2_500, dead_lettered=1_500)], bad)
    assert len(warnings) == 21
    assert warnings[-1] == "5 more of single batches"


def test_a_lookup_that_finds_almost_nothing_is_a_warning_and_its_share_is_shown() -> None:
    share = LookupShare(lookup="left lookup in airlines", records=13_092, misses=13_092)
    [warning] = warnings_of_lookups(Health(), [share, replace(share, misses=12_000)])
    assert warning.startswith("13,092 of 13,092 records find no row in the left lookup in airlines: 100.00%")
    assert warnings_of_lookups(Health(lookup_misses=1.0), [share]) == []
    [caused] = warnings_of_lookups(Health(), [replace(share, cause="airlines is newer")])
    assert caused.endswith("limit 95.00%; airlines is newer")
    shown = {**MATCHED, "lookups": [asdict(replace(share, misses=6_546))]}
    assert "6,546 (50.00 %)" in page(shown)
    assert "Lookups" not in page(MATCHED)


def test_page_and_summary_of_a_match_show_its_warnings_as_text() -> None:
    quiet = page(MATCHED)
    loud = {**MATCHED, "warnings": ["<b>200,000 dead letters</b>"]}
    assert "Warnings" not in quiet
    assert "&lt;b&gt;200,000 dead letters&lt;/b&gt;" in page(loud)
    assert "with warnings" in str(summary(loud).renderables[0])  # type: ignore[attr-defined, union-attr]
