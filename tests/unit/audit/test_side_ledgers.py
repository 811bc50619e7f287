"""Every offset has one fate; late records, dead letters and corrections are judged one by one, too many warned of."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import polars as pl
import pytest
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import findings

from recount.audit.certificate.certificate_files import page
from recount.audit.certificate.summary import summary
from recount.audit.compare import side_ledgers
from recount.audit.compare.conservation import PartitionTotals, conservation_differences
from recount.audit.compare.correction_claims import Listed, published_names, strange_backfills
from recount.audit.compare.side_ledgers import (
    Comparison,
    late_records,
    posted_letters,
    rejected_records,
    side_ledger_differences,
    within,
)
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.explain.completeness import LookupShare, warnings_of, warnings_of_lookups
from recount.certificate.document import certified
from recount.certificate.finding import PartitionAccount
from recount.declare.limits import Health
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.recompute.operators.log_rows import OFFSET, PARTITION
from recount.recompute.operators.log_sources import gaps
from recount.tables.ledger import BatchProof, PartitionProof

RECORD = {"topic": pl.String, "partition": pl.Int32, "offset": pl.Int64}
LATE = {
    **RECORD,
    "timestamp_ms": pl.Int64,
    "stream_time_ms": pl.Int64,
    "key": pl.String,
    "window_start": pl.Int64,
    "window_end": pl.Int64,
    "margin_ms": pl.Int64,
}
BAD = {**RECORD, "timestamp_ms": pl.Int64, "reason": pl.String, "detail": pl.String}
LETTER = {**RECORD, "reason": pl.String}
NAMED = {**RECORD, "stream": pl.String}
LOG = {"orders": {0: (0, 12)}, "other": {0: (0, 4)}}
NOWHERE: list[tuple[Any, ...]] = [
    ("orders", 0, 12, "recount.mine"),
    ("orders", 0, -1, "recount.mine"),
    ("orders", 1, 3, "recount.mine"),
    ("orders", None, 3, "recount.mine"),
    ("third", 0, 3, "recount.mine"),
    ("other", 0, 3, "recount.mine"),
]
"""Letters about places that the topic does not have; ``other`` is read too, and has a dead-letter topic of its own."""
LETTERS: list[tuple[Any, ...]] = [
    ("orders", 0, 3, "recount.mine"),
    ("orders", 0, 10, "recount.mine"),
    ("orders", 0, 3, "recount.other"),
    (None, None, None, "recount.mine"),
    (None, None, None, "recount.other"),
    ("third", 0, 3, None),
    *NOWHERE,
]
"""Letters by source offset and stream."""
ROW = ("orders", 0, 7, 10, 400, "EU", 0, 300, 40)
LISTED: list[tuple[list[tuple[Any, ...]], str]] = [
    ([], "lost"),
    ([ROW, ROW], "duplicated"),
    ([(*ROW[:8], 41)], "altered"),
    ([ROW, (*ROW[:2], 8, *ROW[3:])], "extra"),
    ([ROW, (*ROW[:6], 300, 600, 40)], "extra"),
    ([ROW, (*ROW[:3], 11, *ROW[4:])], "altered"),
    ([(*ROW[:5], None, *ROW[6:])], "altered"),
]
"""Late ledgers, and what is wrong with them where only ``ROW`` should be there."""


DATABASE = Database()


def rows(schema: Any, *given: Sequence[Any]) -> Frame:
    found = pl.DataFrame(list(given), schema=schema, orient="row").to_arrow()
    return frame_of(DATABASE, [found], found.schema)


def letters_and_rejected() -> list[Comparison]:
    """Bad records at 3 and 4; of the second another reason is told, of the first there are two letters."""
    bad = rows(BAD, ("orders", 0, 3, 5, "schema", "x"), ("orders", 0, 4, 5, "schema", "x"))
    other = rows(BAD, ("orders", 0, 3, 5, "schema", "y"), ("orders", 0, 4, 5, "null-key", ""))
    letters = other.union(other.where(F.col("offset") == 3)).select(*LETTER)
    return [rejected_records(bad, bad), rejected_records(bad, other), posted_letters(bad, letters, "orders.dlq")]


@pytest.mark.parametrize(("listed", "verdict"), LISTED)
def test_a_late_ledger_that_differs_is_found(listed: list[tuple[Any, ...]], verdict: str) -> None:
    [difference] = side_ledger_differences([late_records(rows(LATE, ROW), rows(LATE, *listed))])
    assert (difference.kind, difference.verdict) == ("late ledger", verdict)
    assert difference.evidence[0] in ("orders-0@7", "orders-0@8")
    assert side_ledger_differences([late_records(rows(LATE, ROW), rows(LATE, ROW))]) == []


def test_dead_letters_are_compared_by_source_offset_and_reason() -> None:
    found = side_ledger_differences(letters_and_rejected())
    assert [(one.place, one.verdict, one.evidence[0]) for one in found] == [
        ("rejected table", "altered", "orders-0@4"),
        ("orders.dlq", "duplicated", "orders-0@3"),
        ("orders.dlq", "altered", "orders-0@4"),
    ]


def test_many_differences_of_one_list_say_that_there_are_more_and_do_not_hide_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(side_ledgers, "MAX_DIFFERENCES", 2)
    many = rows(LATE, *((*ROW[:2], offset, *ROW[3:]) for offset in range(5)))
    letters = rows(LETTER, ("orders", 0, 3, "schema"))
    found = side_ledger_differences(
        [late_records(rows(LATE, ROW), many), posted_letters(letters.where(F.lit(False)), letters, "dlq")]
    )
    assert [(one.place, one.verdict, one.evidence[0]) for one in found] == [
        ("late table", "extra", "orders-0@0"),
        ("late table", "extra", "orders-0@1"),
        ("late table", "unlisted", "orders-0@2"),
        ("dlq", "extra", "orders-0@3"),
    ]


def test_only_letters_of_the_audited_offsets_count_and_those_about_places_that_the_log_does_not_have() -> None:
    kept = within(rows(NAMED, *LETTERS), "recount.mine", "orders", {0: (0, 10)}, LOG).rows()
    expected = [("orders", 0, 3, "recount.mine"), (None, None, None, "recount.mine"), *NOWHERE]
    assert Counter(tuple(row.values()) for row in kept) == Counter(expected)


def test_a_letter_of_another_stream_that_reads_the_topic_is_not_this_stream_s() -> None:
    bad = rows(BAD, ("orders", 0, 3, 5, "schema", "x"))
    both = rows({**LETTER, "stream": pl.String}, *(("orders", 0, 3, "schema", f"recount.{who}") for who in "ab"))
    for who in "ab":
        mine = within(both, f"recount.{who}", "orders", {0: (0, 10)}, LOG)
        assert side_ledger_differences([posted_letters(bad, mine, "orders.dlq")]) == []


@pytest.mark.parametrize("stream", ["recount.mine", None])
def test_a_letter_that_this_stream_did_not_write_is_extra(stream: str | None) -> None:
    forged = rows({**LETTER, "stream": pl.String}, ("orders", 0, 3, "schema", stream))
    mine = within(forged, "recount.mine", "orders", {0: (0, 10)}, LOG)
    [found] = side_ledger_differences([posted_letters(rows(BAD), mine, "orders.dlq")])
    assert (found.verdict, found.evidence) == ("extra", ("orders-0@3",))


FATES = {"counted": 8, "late": 1, "filtered": 0, "null_key": 0, "dead_lettered": 1}
ACCOUNT = PartitionAccount(topic="orders", partition=0, start=0, end=12, control=2, stream_time_ms=5, **FATES)
TOTALS = PartitionTotals(partition=0, start=0, end=12, records=10, stream_time_ms=5, **FATES)
CLAIM = PartitionProof(topic="orders", partition=0, start=0, end=12, records=10, stream_time_ms=5, **FATES)


def ledger(*claims: PartitionProof) -> Ledger:
    return Ledger(tuple(a_proof(number, claim, frontier_ms=5) for number, claim in enumerate(claims)))


def test_an_offset_without_a_fate_is_unaccounted_and_where_all_are_explained_there_is_no_difference() -> None:
    assert conservation_differences([ACCOUNT], [TOTALS], ledger(CLAIM)) == []
    [difference] = conservation_differences([replace(ACCOUNT, control=1)], [TOTALS], ledger(CLAIM))
    assert (difference.verdict, difference.evidence) == ("unaccounted", ("orders-0@[0, 12)",))


def test_the_fates_of_all_batches_together_must_be_the_recomputed_ones() -> None:
    first = replace(CLAIM, end=6, records=5, counted=5, late=0, dead_lettered=0, stream_time_ms=3)
    second = replace(CLAIM, start=6, records=5, counted=3, late=1, dead_lettered=1)
    assert conservation_differences([ACCOUNT], [TOTALS], ledger(first, second)) == []
    wrong = ledger(first, replace(second, counted=4, late=0))
    assert [one.verdict for one in conservation_differences([ACCOUNT], [TOTALS], wrong)] == ["counted", "late"]


def test_the_stream_time_of_the_last_batch_must_be_the_recomputed_one() -> None:
    found = conservation_differences([ACCOUNT], [TOTALS], ledger(replace(CLAIM, stream_time_ms=6)))
    assert [(one.verdict, one.expected, one.actual) for one in found] == [("stream time", "5 ms", "6 ms")]


@pytest.mark.parametrize(
    ("offsets", "found"),
    [([0, 1, 2, 3], []), ([1, 3], [(0, 1), (2, 3)]), ([0], [(1, 4)]), ([3], [(0, 3)]), ([], [(0, 4)])],
)
def test_gaps_are_the_offsets_that_no_record_has(offsets: list[int], found: list[tuple[int, int]]) -> None:
    log = rows({PARTITION: pl.Int32, OFFSET: pl.Int64}, *((0, offset) for offset in offsets))
    assert gaps(log, {0: (0, 4)}) == ({0: found} if found else {})


LIMITS = Health(dead_letters=0.01, late=0.05, batch_dead_letters=0.1, batch_late=0.5)
MATCHED = certified({**findings("night-1"), "grace_misses": [], "grace_misses_found": 0}, None)


def account(records: int, **fates: int) -> PartitionAccount:
    counted = records - sum(fates.values())
    told = {**dict.fromkeys(FATES, 0), **fates, "counted": counted}
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


def backfill_rows(number: int | None, name: str | None, table: str = "visits", batch: int = 4) -> Listed:
    return Listed(table=table, number=number, name=name, order=(1, batch), rows=1)


def strangers(found: list[Listed], done: int) -> list[tuple[str, ...]]:
    return [one.evidence for one in strange_backfills(found, done, {"monday", "tuesday"}, {(1, 4)})]


def test_backfills_that_are_published_or_wait_to_be_are_no_strangers() -> None:
    found = [
        backfill_rows(0, "monday"),
        backfill_rows(1, "monday.1", "paid"),
        backfill_rows(1, "monday.1"),
        backfill_rows(2, "tuesday"),
    ]
    assert strangers(found, done=1) == []
    assert strangers(found, done=3) == []
    assert published_names(found, done=2) == ("monday", "monday.1")


def test_rows_of_no_audit_of_no_number_of_a_number_that_does_not_follow_or_of_no_batch_are_named() -> None:
    """An audit leaves corrections of later batches to the next one, so nobody would ever judge them."""
    assert strangers([backfill_rows(0, "sunday")], done=1) == [("backfill sunday",)]
    assert strangers([backfill_rows(None, "monday")], done=1) == [("backfill monday",)]
    assert strangers([backfill_rows(0, None)], done=1) == [("backfill None",)]
    assert strangers([backfill_rows(0, "monday"), backfill_rows(2**63 - 1, "tuesday")], done=1) == [
        ("backfill tuesday",)
    ]
    assert strangers([backfill_rows(0, "monday"), backfill_rows(0, "monday", batch=10**9)], done=1) == [
        ("backfill monday",)
    ]
