"""Which steps are looked at, and which of them is recommended."""

from __future__ import annotations

import polars as pl
import pytest

from recount.advise.grace_judges import recommended, rounded_up, steps_of_grace

MIN, H = 60_000, 3_600_000
NINETY = [2_000] * 50 + [110_000] * 40 + [2 * H + 1] * 10


@pytest.mark.parametrize(
    ("ms", "rounded"),
    [(1, 1), (3, 5), (501, 1_000), (1_001, 2_000), (115_001, 2 * MIN), (2 * H + 1, 3 * H), (25 * H, 48 * H)],
)
def test_a_step_is_rounded_up(ms: int, rounded: int) -> None:
    assert rounded_up(ms) == rounded


def test_steps_follow_from_how_late_the_records_were() -> None:
    assert steps_of_grace(NINETY, limit_ms=5 * MIN) == [2_000, 2 * MIN, 3 * H]
    assert steps_of_grace([], limit_ms=5 * MIN) == []


def test_the_limit_is_a_step_where_rounding_up_would_pass_over_what_it_saves() -> None:
    assert steps_of_grace([110_000, 3 * H], limit_ms=115_000) == [115_000, 2 * MIN, 3 * H]


def test_most_are_saved_by_two_minutes_and_the_rest_needs_hours() -> None:
    found = recommended(
        pl.Series(NINETY), steps_of_grace(NINETY, 305_000), what="results", waits_ms=305_000, grace_ms=5_000
    )
    assert found.added_ms == 2 * MIN
    assert found.reason == (
        "a grace of 125 s saves 90 of 100 results (90 %); the other 10 need up to 3 h more: leave them to backfills"
    )


def test_the_grace_stays_where_most_would_more_than_double_the_delay() -> None:
    short_by = [1_000] * 40 + [2 * H] * 60
    found = recommended(
        pl.Series(short_by), steps_of_grace(short_by, 305_000), what="results", waits_ms=305_000, grace_ms=5_000
    )
    assert found.added_ms == 0
    assert found.reason.startswith("60 of 100 results need more than 305 s more, up to 2 h more")


def test_of_steps_that_save_the_same_the_shortest_is_taken() -> None:
    found = recommended(pl.Series([5, 10]), [10, 20], what="results", waits_ms=100, grace_ms=0)
    assert (found.added_ms, found.reason) == (10, "a grace of 10 ms saves 2 of 2 results (100 %); none is left")
