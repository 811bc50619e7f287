"""A driver that makes no progress has failed; a stream that is behind or loses records is degraded, and left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.statuses import a_status

from recount.airflow.health import alerts, health_of, standstill
from recount.declare.limits import Health
from recount.kafka.status import StreamStatus
from recount.runtime.errors import InvalidDeclaration

NOW_MS = 1_700_000_000_000
LIMITS = Health(heartbeat_age_ms=30_000, progress_age_ms=60_000, lag=1_000, frontier_age_ms=300_000)
WELL = a_status(
    stream="revenue",
    started_at_ms=NOW_MS - 600_000,
    heartbeat_ms=NOW_MS,
    last_progress_ms=NOW_MS,
    lag=0,
    frontier_ms=1_000_000,
    stream_time_ms=1_000_000,
)


def state(status: StreamStatus) -> str:
    return health_of(status, LIMITS, NOW_MS).state


@pytest.mark.parametrize(
    ("at_the_limit", "beyond"),
    [
        ({"heartbeat_ms": NOW_MS - 30_000}, {"heartbeat_ms": NOW_MS - 30_001}),
        ({"waiting_since_ms": NOW_MS - 60_000}, {"waiting_since_ms": NOW_MS - 60_001}),
        (
            {"waiting_since_ms": NOW_MS - 180_000, "trigger_interval_ms": 120_000},
            {"waiting_since_ms": NOW_MS - 180_001, "trigger_interval_ms": 120_000},
        ),
        # by the clock of the driver: the watcher's is 20 s ahead
        (
            {"heartbeat_ms": NOW_MS - 20_000, "waiting_since_ms": NOW_MS - 80_000},
            {"heartbeat_ms": NOW_MS - 20_000, "waiting_since_ms": NOW_MS - 80_001},
        ),
    ],
)
def test_a_driver_that_makes_no_progress_has_failed(at_the_limit: dict[str, int], beyond: dict[str, int]) -> None:
    assert state(replace(WELL, **at_the_limit)) == "ok"  # type: ignore[arg-type]
    assert state(replace(WELL, **beyond)) == "failed"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at_the_limit", "beyond"),
    [
        ({"lag": 1_000}, {"lag": 1_001}),
        ({"frontier_ms": 0, "stream_time_ms": 300_000}, {"frontier_ms": 0, "stream_time_ms": 300_001}),
        ({"records_total": 10, "dead_letters": 9}, {"records_total": 11, "dead_letters": 10}),
        ({"last_progress_ms": 0, "frontier_ms": None, "stream_time_ms": None}, {"last_progress_ms": 0, "lag": 1_001}),
        ({"frontier_ms": 700_000}, {"frontier_ms": 699_999}),
        ({"records_total": 2_000, "dead_letters": 20}, {"records_total": 2_000, "dead_letters": 21}),
        ({"records_total": 1_000, "late_records": 50}, {"records_total": 1_000, "late_records": 51}),
        ({"batch_records": 100, "batch_dead_letters": 10}, {"batch_records": 99, "batch_dead_letters": 10}),
        (
            {"memory_used": 80, "memory_left": 100, "memory_limit": 1_000},
            {"memory_used": 80, "memory_left": 99, "memory_limit": 1_000},
        ),
        ({"batch_records": 100, "batch_late_records": 50}, {"batch_records": 100, "batch_late_records": 51}),
        (
            {"lookup": "left lookup in customers", "lookup_records": 100, "lookup_misses": 95},
            {"lookup": "left lookup in customers", "lookup_records": 100, "lookup_misses": 96},
        ),
    ],
)
def test_a_stream_beyond_a_limit_that_works_is_degraded_and_not_relaunched(
    at_the_limit: dict[str, Any], beyond: dict[str, Any]
) -> None:
    assert state(replace(WELL, **at_the_limit)) == "ok"
    degraded = replace(WELL, **beyond)
    assert state(degraded) == "degraded"
    assert len(alerts(degraded, LIMITS)) == 1
    assert standstill(degraded, LIMITS, NOW_MS) == ()


def test_the_alert_for_a_lookup_says_why_it_finds_no_rows_where_that_is_known() -> None:
    found = replace(WELL, lookup="left lookup in airlines", lookup_records=100, lookup_misses=96)
    assert alerts(found, LIMITS)[0].endswith("96.00%, limit 95.00%; was the table loaded later?")
    assert alerts(replace(found, lookup_cause="airlines is newer"), LIMITS)[0].endswith("; airlines is newer")


def test_a_driver_that_was_idle_for_long_is_well_when_a_record_comes() -> None:
    """Its last batch was 4 min 29 s ago, the record came a second ago: it had one second for it."""
    idle = replace(WELL, last_progress_ms=NOW_MS - 269_663, batch_begun_ms=NOW_MS - 270_000)
    assert state(idle) == "ok"
    assert state(replace(idle, lag=1, waiting_since_ms=NOW_MS - 1_000)) == "ok"
    assert health_of(replace(idle, lag=16, waiting_since_ms=NOW_MS - 60_001), LIMITS, NOW_MS).problems == (
        "no batch for 1 min while 16 records wait, limit 1 min",
    )


def test_a_batch_without_a_sign_of_work_reads_otherwise_than_records_that_wait() -> None:
    in_batch = {"lag": 5, "last_progress_ms": NOW_MS - 300_000, "batch_begun_ms": NOW_MS - 200_000}
    assert state(replace(WELL, **in_batch, waiting_since_ms=NOW_MS - 5_000)) == "ok"
    found = health_of(replace(WELL, **in_batch, waiting_since_ms=NOW_MS - 61_000), LIMITS, NOW_MS)
    assert found.problems == ("the batch at hand: no sign of work for 1 min 1 s, limit 1 min",)


BLOCKED = {
    "blocked_place": "orders-eu-2",
    "blocked_offset": 17,
    "blocked_by": "producer 1001 (transactional.id till-3)",
}


def test_an_open_transaction_that_stops_reading_for_long_is_named_with_what_to_do() -> None:
    blocked = replace(WELL, lag=370, **BLOCKED, blocked_since_ms=NOW_MS - 60_000)
    assert state(blocked) == "ok"
    found = health_of(replace(blocked, blocked_since_ms=NOW_MS - 269_000), LIMITS, NOW_MS)
    assert found.state == "degraded"
    assert found.problems == (
        "reading of orders-eu-2 stands at offset 17 since 2023-11-14 22:08:51 UTC (4 min 29 s): an open transaction of "
        "producer 1001 (transactional.id till-3); where nobody ends it: "
        "kafka-transactions.sh abort --topic orders-eu --partition 2 --start-offset 17",
    )


def test_the_last_word_of_a_driver_that_ended_is_believed_and_shares_are_said_with_their_limits() -> None:
    found = health_of(replace(WELL, records_total=400_000, dead_letters=200_000), LIMITS, NOW_MS)
    assert found.problems == ("200,000 dead letters in 400,000 records: 50.00%, limit 1.00%",)
    assert state(replace(WELL, state="stopped", lag=9_999, heartbeat_ms=0)) == "ok"
    assert health_of(replace(WELL, state="failed", error="disk full"), LIMITS, NOW_MS).problems == ("disk full",)


@pytest.mark.parametrize(
    "said",
    [
        {"heartbeat_ms": NOW_MS - 60_000, "started_at_ms": NOW_MS - 60_000},
        {"started_at_ms": NOW_MS - 600_000, "waiting_since_ms": NOW_MS - 60_000},
    ],
    ids=["silent", "at a step"],
)
def test_a_start_and_each_step_of_it_has_the_time_of_the_progress_limit(said: dict[str, int]) -> None:
    starting = replace(WELL, state="starting", **said)  # type: ignore[arg-type]
    assert standstill(starting, LIMITS, NOW_MS) == ()
    [problem] = standstill(starting, LIMITS, NOW_MS + 1)
    assert "waiting_since_ms" not in said or problem == "starting, no step done for 1 min, limit 1 min"


@pytest.mark.parametrize("limits", [{"lag": -1}, {"dead_letters": 1.01}, {"late": "5 %"}, {"heartbeat_age_ms": 1.5}])
def test_a_limit_that_means_nothing_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(InvalidDeclaration):
        Health(**limits)  # type: ignore[arg-type]
