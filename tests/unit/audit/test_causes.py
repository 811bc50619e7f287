"""A difference is explained by what the stream's state holds, batch by batch."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pyspark.sql import Row

from recount.audit.explain.causes import BatchShare, cause_of
from recount.declare.columns import RESULT_TIME
from recount.declare.windows import tumbling

WINDOWS = tumbling("5 min", grace="60 s")
EXPECTED = {"orders": 5, "revenue": Decimal("52.50"), RESULT_TIME: 240_000}
SHARE = {"orders": 2, "revenue": Decimal("21.00"), RESULT_TIME: 100_000}
REST = {"orders": 3, "revenue": Decimal("31.50"), RESULT_TIME: 240_000}


def share(batch: int, recomputed: dict[str, Any] | None, stored: dict[str, Any] | None) -> BatchShare:
    return BatchShare(order=(0, batch), recomputed=recomputed, stored=stored, offsets=(), is_recomputed=True)


RIGHT = [share(0, SHARE, SHARE), share(1, REST, REST)]


def row(actual: dict[str, Any] | None, **told: object) -> Row:
    columns = {
        "window_start": 0,
        "window_end": 300_000,
        "expected": Row(**EXPECTED),
        "kafka_result": Row(**actual) if actual else None,
        "kafka_copies": 1,
        "kafka_revisions": 1,
        "kafka_highest": 0,
        "kafka_lowest": 0,
        "kafka_contradictory": False,
    }
    return Row(**{**columns, **told})


def why(verdict: str, actual: dict[str, Any] | None, shares: list[BatchShare] = RIGHT, **told: object) -> str:
    return cause_of(row(actual, **told), "kafka", verdict, WINDOWS, shares)


def test_a_batch_that_is_the_whole_difference_was_counted_twice_or_not_at_all() -> None:
    twice = {"orders": 7, "revenue": Decimal("73.50"), RESULT_TIME: 240_000}
    assert why("altered", twice) == "batch 0/0 is counted twice; the stream's state is right"
    assert why("altered", SHARE).startswith("batch 0/1 is not counted")


def test_a_value_that_no_batch_explains_was_changed_outside_the_stream() -> None:
    changed = {**EXPECTED, "orders": 6}
    assert why("altered", changed) == "the stream's state is right: the value was changed on its way here or afterwards"
    assert "contradict" in why("altered", changed, kafka_contradictory=True)


def test_a_batch_whose_share_the_state_has_otherwise_is_named() -> None:
    wrong = [RIGHT[0], share(1, REST, None), share(2, None, SHARE)]
    said = why("altered", {**EXPECTED, "orders": 9}, wrong)
    assert "the stream's state differs from the log in batch 0/1, batch 0/2" in said


def test_a_lost_result_says_whether_the_state_has_it() -> None:
    assert why("lost", None, kafka_revisions=0).startswith("the stream's state is right: the result was not written")
    assert "differs from the log in batch 0/0" in why("lost", None, [share(0, SHARE, None)], kafka_revisions=0)
    assert "a revision" in why("lost", EXPECTED, kafka_highest=1)


def test_moved_bounds_name_the_window_they_were_moved_from() -> None:
    moved = why("extra", EXPECTED, expected=None, window_start=300_001, window_end=600_001)
    assert moved == "no window has these bounds: moved by 1 ms from the window that starts at 1970-01-01 00:05:00"
    assert "moved by -1 ms from the window that starts at 1970-01-01 00:05:00" in why(
        "extra", EXPECTED, expected=None, window_start=299_999, window_end=599_999
    )


def test_an_extra_result_says_whether_it_is_foreign_or_without_reason() -> None:
    assert "not written by this stream" in why("extra", EXPECTED, expected=None, kafka_lowest=-1)
    assert "no record that was on time" in why("extra", EXPECTED, expected=None)
    assert "other output does not have" in why("extra", EXPECTED)
    assert "no result of this stream" in why("extra", None, expected=None, window_start=None, window_end=None)
