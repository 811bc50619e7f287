"""The status message: what goes in comes out, what cannot be understood is refused; its history is of the last hour."""

from __future__ import annotations

import json

import pytest
from tests.statuses import a_status

from recount.kafka.connection import Connection
from recount.kafka.status import (
    LARGEST_EPOCH,
    MOST_CHARACTERS,
    SPAN_MS,
    STEP_MS,
    Sample,
    StatusHistory,
    StreamStatus,
    UnreadableStatus,
)

STATUS = a_status(batch=3, frontier_ms=1_690_000_020_000, error="é")


def test_a_status_survives_the_topic_and_fields_of_a_newer_driver_are_ignored() -> None:
    assert StreamStatus.from_json(STATUS.to_json()) == STATUS
    message = {**json.loads(STATUS.to_json()), "mood": "good"}
    assert StreamStatus.from_json(json.dumps(message).encode()) == STATUS


@pytest.mark.parametrize(
    "change",
    [
        *({"version": 2}, {"version": None}, {"state": "asleep"}, {"batch": "<script>"}, {"lag": "<script>"}),
        *({"dead_letters": None}, {"records_total": True}, {"records_per_second": "1"}, {"records_per_second": 1e300}),
        *({"records_per_second": float("nan")}, {"frontier_ms": 2**63}, {"heartbeat_ms": "2000"}),
        *({"error": ["disk full"]}, {"host": {"href": "x"}}, {"error": "x" * (MOST_CHARACTERS + 1)}),
    ],
)
def test_a_status_of_another_version_or_state_and_one_of_other_types_or_lengths_is_refused(
    change: dict[str, object],
) -> None:
    message = {**json.loads(STATUS.to_json()), **change}
    with pytest.raises(UnreadableStatus):
        StreamStatus.from_json(json.dumps(message).encode())


HALF_A_CHARACTER = STATUS.to_json().replace(b"\\u00e9", b"\\ud800")


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b"\xff", b'{"version":1,"state":"running"}', b"[" * 100_000, HALF_A_CHARACTER]
)
def test_what_is_no_status_or_no_page_can_show_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableStatus):
        StreamStatus.from_json(text)


@pytest.mark.parametrize("epoch", [-1, 0, LARGEST_EPOCH + 1, 2**63 - 1])
def test_a_lease_epoch_that_no_lease_has_is_refused(epoch: int) -> None:
    for known in (1, LARGEST_EPOCH):
        status = a_status(lease_epoch=known)
        assert StreamStatus.from_json(status.to_json()) == status
    with pytest.raises(UnreadableStatus):
        StreamStatus.from_json(a_status(lease_epoch=epoch).to_json())


STREAM = "revenue-by-region"
NOW_MS = 1_795_600_000_000 // STEP_MS * STEP_MS


def history() -> StatusHistory:
    return StatusHistory(Connection(bootstrap_servers="127.0.0.1:1"), [STREAM])


def said(lag: int) -> bytes:
    return a_status(lag=lag).to_json()


def lags(history: StatusHistory, now_ms: int = NOW_MS) -> list[tuple[int, int | None]]:
    """Step and lag of each sample; nothing is asked of brokers."""
    found: list[Sample] = list(history.samples(now_ms)[STREAM])
    return [((one.at_ms - NOW_MS) // STEP_MS, one.status.lag) for one in found]


def test_of_each_step_the_last_word_counts() -> None:
    seen = history()
    for second, lag in ((-60, 1), (-58, 2), (-31, 3), (-30, 4), (-2, 5)):
        seen.take(STREAM, NOW_MS + second * 1_000, said(lag), NOW_MS)
    assert lags(seen) == [(-2, 3), (-1, 5)]
    seen.take(STREAM, NOW_MS - 1_000, said(6), NOW_MS)
    assert lags(seen) == [(-2, 3), (-1, 6)]


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    seen = history()
    seen.take(STREAM, NOW_MS - SPAN_MS, said(1), NOW_MS)
    seen.take(STREAM, NOW_MS, said(2), NOW_MS)
    assert lags(seen) == [(-120, 1), (0, 2)]
    assert lags(seen, NOW_MS + 1) == [(0, 2)]
    assert lags(seen, NOW_MS + SPAN_MS + 1) == []


def test_records_of_other_times_streams_or_forms_are_passed_over() -> None:
    seen = history()
    seen.take(STREAM, NOW_MS - SPAN_MS - 1, said(1), NOW_MS)
    seen.take(STREAM, NOW_MS + STEP_MS + 1, said(1), NOW_MS)
    seen.take("another", NOW_MS, said(1), NOW_MS)
    seen.take(STREAM, NOW_MS - STEP_MS, b"no status", NOW_MS)
    seen.take(STREAM, NOW_MS, said(2), NOW_MS)
    seen.take(STREAM, NOW_MS - STEP_MS, said(3), NOW_MS)
    assert lags(seen) == [(0, 2)]
    assert seen.samples(NOW_MS).keys() == {STREAM}
