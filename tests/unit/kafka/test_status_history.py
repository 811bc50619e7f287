"""The history of statuses: one sample for each half minute of the last hour, whatever is written to the topic."""

from __future__ import annotations

from tests.statuses import a_status

from recount.kafka.connection import Connection
from recount.kafka.status import SPAN_MS, STEP_MS, Sample, StatusHistory

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
