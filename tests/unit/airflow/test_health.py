"""A stream is ill beyond its limits, and only beyond them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recount.airflow.health import ailments
from recount.core.topology import Health
from recount.kafka.status import StreamStatus

NOW_MS = 1_700_000_000_000
LIMITS = Health(heartbeat_age_ms=30_000, progress_age_ms=60_000, lag=1_000, frontier_age_ms=300_000, failed_batches=3)
WELL = StreamStatus(
    stream="revenue",
    driver_id="d",
    lease_epoch=1,
    host="h",
    pid=1,
    state="running",
    started_at_ms=NOW_MS - 600_000,
    heartbeat_ms=NOW_MS,
    last_progress_ms=NOW_MS,
    lag=0,
    frontier_ms=1_000_000,
    stream_time_ms=1_000_000,
)


def test_a_quiet_stream_without_lag_is_well() -> None:
    quiet = replace(WELL, last_progress_ms=NOW_MS - 10_000_000, frontier_ms=None, stream_time_ms=None)
    assert ailments(quiet, LIMITS, NOW_MS) == []


@pytest.mark.parametrize(
    ("at_the_limit", "beyond"),
    [
        ({"heartbeat_ms": NOW_MS - 30_000}, {"heartbeat_ms": NOW_MS - 30_001}),
        ({"lag": 1, "last_progress_ms": NOW_MS - 60_000}, {"lag": 1, "last_progress_ms": NOW_MS - 60_001}),
        ({"lag": 1_000}, {"lag": 1_001}),
        ({"frontier_ms": 700_000}, {"frontier_ms": 699_999}),
        ({"failed_batches": 3}, {"failed_batches": 4}),
    ],
)
def test_a_value_at_its_limit_is_well_and_the_next_one_is_not(
    at_the_limit: dict[str, int], beyond: dict[str, int]
) -> None:
    assert ailments(replace(WELL, **at_the_limit), LIMITS, NOW_MS) == []  # type: ignore[arg-type]
    assert len(ailments(replace(WELL, **beyond), LIMITS, NOW_MS)) == 1  # type: ignore[arg-type]


def test_progress_counts_from_the_start_until_the_first_batch() -> None:
    starting = replace(WELL, last_progress_ms=None, lag=5, started_at_ms=NOW_MS - 60_000)
    assert ailments(starting, LIMITS, NOW_MS) == []
    assert ailments(starting, LIMITS, NOW_MS + 1) != []


def test_a_starting_driver_may_be_silent_as_long_as_the_progress_limit() -> None:
    starting = replace(WELL, state="starting", heartbeat_ms=NOW_MS - 60_000, started_at_ms=NOW_MS - 60_000)
    assert ailments(starting, LIMITS, NOW_MS) == []
    assert len(ailments(starting, LIMITS, NOW_MS + 1)) == 1


def test_old_records_do_not_make_a_stream_ill() -> None:
    year_old = replace(WELL, frontier_ms=0, stream_time_ms=300_000)
    assert ailments(year_old, LIMITS, NOW_MS) == []
