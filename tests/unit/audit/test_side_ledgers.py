"""The late ledger and the dead letters are judged record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from recount.audit.compare import side_ledgers
from recount.audit.compare.side_ledgers import (
    Comparison,
    late_records,
    posted_letters,
    rejected_records,
    side_ledger_differences,
    within,
)

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


def rows(schema: Any, *given: Sequence[Any]) -> pl.DataFrame:
    return pl.DataFrame(list(given), schema=schema, orient="row")


def letters_and_rejected() -> list[Comparison[pl.DataFrame]]:
    """Bad records at 3 and 4; of the second another reason is told, of the first there are two letters."""
    bad = rows(BAD, ("orders", 0, 3, 5, "schema", "x"), ("orders", 0, 4, 5, "schema", "x"))
    other = rows(BAD, ("orders", 0, 3, 5, "schema", "y"), ("orders", 0, 4, 5, "null-key", ""))
    letters = pl.concat([other, other.head(1)]).select(list(LETTER))
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
    found = side_ledger_differences([late_records(rows(LATE, ROW), many), posted_letters(letters[:0], letters, "dlq")])
    assert [(one.place, one.verdict, one.evidence[0]) for one in found] == [
        ("late table", "extra", "orders-0@0"),
        ("late table", "extra", "orders-0@1"),
        ("late table", "unlisted", "orders-0@2"),
        ("dlq", "extra", "orders-0@3"),
    ]


def test_only_letters_of_the_audited_offsets_count_and_those_about_places_that_the_log_does_not_have() -> None:
    kept = within(rows(NAMED, *LETTERS), "recount.mine", "orders", {0: (0, 10)}, LOG).rows()
    assert kept == [("orders", 0, 3, "recount.mine"), (None, None, None, "recount.mine"), *NOWHERE]


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
