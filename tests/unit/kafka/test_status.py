"""The status message: what goes in comes out, what cannot be understood is refused; its history is of the last hour."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import pytest
from tests.statuses import a_status

from recount.kafka import offsets
from recount.kafka.connection import Connection
from recount.kafka.lags import LagWatch, PartitionLag, StreamLag
from recount.kafka.offsets import LogRange, Partition, UnreadRecordsGone, deleted_before, require_unread_kept
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
from recount.runtime.errors import Transient

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


NOWHERE = Connection(bootstrap_servers="127.0.0.1:1")
ORDERS, USERS = ("orders", 0), ("users", 0)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders are kept from 50 to 90, users from 0 to 0."""
    spans = {ORDERS: LogRange(start=50, end=90), USERS: LogRange(start=0, end=0)}
    monkeypatch.setattr(offsets, "log_ranges", lambda _connection, asked, _level: {key: spans[key] for key in asked})


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("starts", [{}, {ORDERS: 50, USERS: 0}, {ORDERS: 90}])
def test_a_stream_goes_on_where_kafka_holds_all_that_it_has_not_read(starts: Mapping[Partition, int]) -> None:
    require_unread_kept(NOWHERE, "revenue", starts)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("starts", "named"), [({ORDERS: 49}, "orders-0"), ({ORDERS: 91}, "orders-0"), ({USERS: 1}, "users-0")]
)
def test_a_stream_whose_unread_records_have_left_kafka_is_told_to_begin_anew(
    starts: Mapping[Partition, int], named: str
) -> None:
    """It stood still for longer than the topic is kept, or the topic was cut."""
    with pytest.raises(UnreadRecordsGone) as refused:
        require_unread_kept(NOWHERE, "revenue", starts)
    assert named in refused.value.given
    assert "recount reset revenue" in refused.value.remedy


@pytest.mark.usefixtures("kept")
def test_a_new_stream_says_which_records_were_deleted_before_it_could_read_them() -> None:
    warning = deleted_before(NOWHERE, "revenue", [ORDERS, USERS])
    assert warning is not None
    assert "revenue begins with what Kafka still has; it has deleted the offsets of orders-0 before 50. " in warning
    assert deleted_before(NOWHERE, "revenue", [USERS]) is None


class Brokers:
    """Answer with the number of the question, or not at all."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.are_away = False

    def __call__(self, topics: Mapping[str, Collection[str]]) -> Mapping[str, StreamLag]:
        self.asked.append(sorted(topics))
        if self.are_away:
            raise Transient("no answer")
        return dict.fromkeys(topics, StreamLag(at_ms=len(self.asked)))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_an_open_transaction_hides_is_lag_that_cannot_be_read() -> None:
    part = PartitionLag(committed=10, read=10, decided=12, end=15)
    assert (part.lag, part.readable, part.is_blocked) == (5, 2, False)
    read = PartitionLag(committed=12, read=12, decided=12, end=15)
    assert (read.lag, read.readable, read.is_blocked) == (3, 0, True)
    assert (StreamLag(at_ms=0, partitions={("a", 0): part, ("a", 1): read}).records) == 8


def test_all_who_ask_within_seconds_get_the_answer_to_one_question() -> None:
    brokers, clock = Brokers(), Clock()
    watch = LagWatch(brokers, max_age_s=2.0, clock=clock)
    for stream in ("a", "b"):
        watch.follow(stream, ["orders"])
    first = watch.now()
    clock.now_s = 1.999
    assert watch.now() is first
    clock.now_s = 2.0
    assert watch.now()["a"].at_ms == 2
    assert brokers.asked == [["a", "b"], ["a", "b"]]


def test_while_the_brokers_do_not_answer_the_last_answer_keeps_its_time() -> None:
    brokers = Brokers()
    watch = LagWatch(brokers, max_age_s=0)
    watch.follow("a", ["orders"])
    known = watch.now()
    brokers.are_away = True
    with pytest.raises(Transient):
        watch.now()
    assert watch.last == known


def test_a_stream_that_is_followed_is_asked_about_at_once_and_one_that_is_not_never() -> None:
    brokers = Brokers()
    watch = LagWatch(brokers, max_age_s=60, clock=Clock())
    watch.follow("a", ["orders"])
    watch.now()
    watch.follow("b", ["clicks"])
    assert sorted(watch.now()) == ["a", "b"]
    watch.forget("a")
    assert sorted(watch.now()) == ["b"]
