"""Status of a stream as its driver publishes it on a topic that everybody reads, as metrics, and its last hour.

The metrics are the same from the driver and from ``recount serve``. The history has, of the statuses on
``recount.history``, the last one of each half minute.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from typing import Literal, Self, get_args

import msgspec
from confluent_kafka import KafkaError, Message, TopicPartition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from recount.kafka.compacted import CompactedView, Isolation
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failing, failure
from recount.kafka.offsets import TO_THE_END, partitions_of
from recount.kafka.topic_drift import HISTORY, STATUS
from recount.runtime.errors import RecountError, Terminal, Transient
from recount.runtime.times import clock_ms

State = Literal["starting", "running", "stopping", "stopped", "failed"]
VERSION = 1
MOST_CHARACTERS = 2_000
"""Of any text in a status; an error is cut to it."""
LARGEST_EPOCH = 2**62
"""Of a lease; far beyond what relaunches come to, so a larger one was made up."""
Labels = Sequence[str]
_TOTALS: Mapping[str, tuple[str, Callable[[StreamStatus], float]]] = {
    "records": ("Records that this driver has read", lambda s: s.records_total),
    "late_records": ("Records that were late", lambda s: s.late_records),
    "dead_letters": ("Records that could not be processed", lambda s: s.dead_letters),
}
SPAN_MS, STEP_MS = 3_600_000, 30_000
_AT_A_TIME = 1_000


class UnreadableStatus(Terminal):
    """A status message that this version cannot read."""


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """One driver's last word. Times are milliseconds since the epoch by the driver's clock, durations milliseconds.

    ``lag`` is that of Kafka's own tool, as the brokers said at ``lag_at_ms``: the ends of the topics minus what the
    stream's group has committed; ``oldest_unread_ms`` is the time of the oldest record of it. All totals count records
    of this driver since it started. ``frontier_ms`` and
    ``stream_time_ms`` (the largest of all partitions) are event times and None before the first record.
    ``lookup`` is the lookup of which the largest share of records found no row: ``lookup_misses`` of
    ``lookup_records``, for the ``lookup_cause`` if that is known.
    ``last_progress_ms`` is when a batch was last committed; the counts ``batch_…`` are of that batch.
    ``batch_begun_ms`` is when the driver last began to process one, and ``trigger_interval_ms`` how often it does.
    ``waiting_since_ms`` is since when there has been something to do (a batch, or records that can be read) and nothing
    was done: None while there is nothing to do. ``blocked_…`` says where an open transaction stops reading: a partition
    (as topic-partition), its offset, since when, and whose transaction it is, if that is known.
    ``memory_…`` are bytes: of the driver, and what is left to it (``engine.upkeep.memory``).
    ``fingerprint`` is that of the declaration that the driver runs, ``stream_version`` counts the resets of the stream
    from 1. ``final`` says of a failure that no relaunch can
    help: a human must act.
    """

    stream: str
    driver_id: str
    lease_epoch: int
    host: str
    pid: int
    state: State
    started_at_ms: int
    heartbeat_ms: int
    application_id: str | None = None
    batch: int | None = None
    last_progress_ms: int | None = None
    batch_begun_ms: int | None = None
    trigger_interval_ms: int = 0
    lag: int | None = None
    lag_at_ms: int | None = None
    oldest_unread_ms: int | None = None
    waiting_since_ms: int | None = None
    blocked_place: str | None = None
    blocked_offset: int | None = None
    blocked_since_ms: int | None = None
    blocked_by: str | None = None
    records_total: int = 0
    records_per_second: float = 0.0
    late_records: int = 0
    dead_letters: int = 0
    batch_records: int = 0
    batch_late_records: int = 0
    batch_dead_letters: int = 0
    lookup: str | None = None
    lookup_records: int = 0
    lookup_misses: int = 0
    lookup_cause: str | None = None
    frontier_ms: int | None = None
    stream_time_ms: int | None = None
    batch_duration_ms: int | None = None
    commit_duration_ms: int | None = None
    memory_used: int | None = None
    memory_left: int | None = None
    memory_limit: int | None = None
    error: str | None = None
    fingerprint: str | None = None
    final: bool = False
    stream_version: int | None = None

    @classmethod
    def first(cls, stream: str, lease_epoch: int, application_id: str | None = None) -> Self:
        """The status of ``stream`` when this process has just taken its lease."""
        at_ms = clock_ms()
        return cls(
            stream=stream,
            driver_id=str(uuid.uuid4()),
            lease_epoch=lease_epoch,
            host=socket.gethostname(),
            pid=os.getpid(),
            state="starting",
            started_at_ms=at_ms,
            heartbeat_ms=at_ms,
            application_id=application_id,
        )

    @property
    def is_over(self) -> bool:
        """Whether the driver said that it ended; a killed driver cannot say so."""
        return self.state in ("stopped", "failed")

    def to_json(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> StreamStatus:
        """Read ``text``; fields this version does not know are ignored, so that a newer driver can add some.

        Raises ``UnreadableStatus`` for another version, a missing field, an unknown state, a value of another type, a
        text of more than ``MOST_CHARACTERS`` or that is no Unicode, a number of more than 64 bits, and a lease epoch
        that is not from 1 to ``LARGEST_EPOCH``: anybody may write to the topic.
        """
        try:
            said = json.loads(text)
            if said["version"] != VERSION:
                raise ValueError(f"version {said['version']}")
            status = msgspec.convert(said, cls)
            _require_plain(status)
            return status
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableStatus.of("status-unreadable", given=text[:200], version=VERSION) from error


def _require_plain(status: StreamStatus) -> None:
    for field in fields(status):
        value = getattr(status, field.name)
        if isinstance(value, str):
            value.encode()  # half a character, which JSON can escape, fits on no page
            if len(value) > MOST_CHARACTERS:
                raise ValueError(f"{field.name} has {len(value)} characters")
        if isinstance(value, int | float) and not -(2**63) <= value < 2**63:
            raise ValueError(f"{field.name} is {value!r}")
    if not 1 <= status.lease_epoch <= LARGEST_EPOCH:
        raise ValueError(f"lease_epoch is {status.lease_epoch}")


class StatusBoard:
    """Reads the last status of every stream; only the holder of a stream's ``Lease`` writes it.

    What is no status is passed over with a warning, and the last one before it stands.
    """

    def __init__(self, connection: Connection, topic: str = STATUS, *, isolation: Isolation = "read_committed") -> None:
        self._view = CompactedView(connection, topic, StreamStatus.from_json, isolation=isolation)

    def latest(self) -> Mapping[str, StreamStatus]:
        """The last status by stream name, as of this call."""
        said = {stream: StreamStatus.from_json(value) for stream, value in self._view.refresh().items()}
        return {stream: status for stream, status in said.items() if status.stream == stream}

    def of(self, stream: str) -> StreamStatus | None:
        """The last status of ``stream``, None when no driver ever spoke."""
        value = self._view.refresh().get(stream)
        status = None if value is None else StreamStatus.from_json(value)
        return status if status is not None and status.stream == stream else None

    def hidden(self, stream: str) -> str | None:
        """The place of a later status of ``stream`` that cannot be read yet, None where there is none.

        Anybody's open transaction on the topic hides what is written behind it, until it is decided: before a driver
        is called silent, ask this, and where there is nothing hidden, read its status once more.
        """
        return self._view.undecided(stream)

    def close(self) -> None:
        self._view.close()


def status_of_group(group: str) -> str:
    """The name under which the driver of ``group`` has its lease and its status; no name of a stream has a dot."""
    return f"group.{group}"


def status_of(
    connection: Connection, name: str, isolation: Isolation = "read_uncommitted", *, topic: str = STATUS
) -> StreamStatus | None:
    """The last status under ``name``, though a transaction on the topic be open; None when no driver ever spoke."""
    with closing(StatusBoard(connection, topic, isolation=isolation)) as board:
        return board.of(name)


def last_epoch(connection: Connection, stream: str, topic: str = STATUS) -> int:
    """The lease epoch of the stream's last status, 0 when no driver ever spoke.

    Read uncommitted: an open transaction on the topic must not hide the last driver from the next one, nor from an
    order to stop. The epoch of a status that is aborted is skipped, no more.
    """
    status = status_of(connection, stream, topic=topic)
    return status.lease_epoch if status else 0


# name: what it is, and its value in a status, None where there is none
_OF_STATUS: Mapping[str, tuple[str, Callable[[StreamStatus], float | None]]] = {
    "lag_records": ("Offsets from what is committed to the ends of the topics", lambda s: s.lag),
    "oldest_unread_timestamp_seconds": ("Time of the oldest record of them", lambda s: _seconds(s.oldest_unread_ms)),
    "open_transaction_seconds": ("For how long an open transaction has stopped reading", lambda s: _blocked(s)),
    "records_per_second": ("Records per second of the last batch", lambda s: s.records_per_second),
    "batch_duration_seconds": ("Duration of the last batch", lambda s: _seconds(s.batch_duration_ms)),
    "commit_duration_seconds": ("Of that, commits to Kafka and Delta", lambda s: _seconds(s.commit_duration_ms)),
    "heartbeat_timestamp_seconds": ("When the driver spoke last", lambda s: _seconds(s.heartbeat_ms)),
    "driver_memory_used_bytes": ("Memory of the driver", lambda s: s.memory_used),
    "driver_memory_left_bytes": ("Memory that is left to the driver", lambda s: s.memory_left),
    "frontier_timestamp_seconds": ("Event time up to which the stream has come", lambda s: _seconds(s.frontier_ms)),
    "frontier_delay_seconds": ("How far the frontier is behind the largest stream time", lambda s: _delay(s)),
}


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


def _blocked(status: StreamStatus) -> float:
    return 0.0 if status.blocked_since_ms is None else (status.heartbeat_ms - status.blocked_since_ms) / 1_000


def _delay(status: StreamStatus) -> float | None:
    if status.frontier_ms is None or status.stream_time_ms is None:
        return None
    return (status.stream_time_ms - status.frontier_ms) / 1_000


def of_status(statuses: Mapping[str, StreamStatus]) -> Iterator[Metric]:
    """The families that every one of ``statuses``, by stream, has a part in."""
    states = [((name, state), status.state == state) for name, status in statuses.items() for state in get_args(State)]
    text = "1 for the state that the driver was in when it spoke last"
    yield gauge("stream_state", text, ["stream", "state"], states)
    for name, (text, of) in _OF_STATUS.items():
        yield gauge(f"stream_{name}", text, ["stream"], [((stream,), of(one)) for stream, one in statuses.items()])
    for name, (text, total) in _TOTALS.items():
        counter = CounterMetricFamily(f"recount_stream_{name}", f"{text} since the driver started", labels=["stream"])
        for stream, status in statuses.items():
            counter.add_metric([stream], total(status))
        yield counter


def gauge(name: str, text: str, labels: Labels, values: Iterable[tuple[Sequence[object], float | None]]) -> Metric:
    """A family; values that are None are left out."""
    family = GaugeMetricFamily(f"recount_{name}", text, labels=labels)
    for place, value in values:
        if value is not None:
            family.add_metric([str(one) for one in place], float(value))
    return family


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The driver's last status in the step that begins at ``at_ms``, by the times of the records."""

    at_ms: int
    status: StreamStatus


Samples = Mapping[str, Sequence[Sample]]


class StatusHistory:
    """The samples of ``streams``; each ``refresh`` reads what is new. What is no status is passed over.

    Drivers speak every two seconds, and of most of what they say only the place is looked at: an hour of forty streams
    is 72,000 records, of which 4,800 are decoded. Not safe for use by several threads.
    """

    def __init__(self, connection: Connection, streams: Collection[str], topic: str = HISTORY) -> None:
        self._connection = connection
        self._topic = connection.own(topic)
        self._samples: dict[str, deque[Sample]] = {stream: deque() for stream in streams}
        self._newest: dict[str, tuple[int, bytes]] = {}
        self._next: dict[int, int] = {}
        self._consumer = connection.consumer(connection.own("recount.view"), {**TO_THE_END, "fetch.wait.max.ms": 50})

    def refresh(self, now_ms: int, timeout_s: float = 30.0) -> Samples:
        """Read what is new, and the ``samples``; ``Transient`` when reading takes too long."""
        with failing(f"reading {self._topic}"):
            self._read_on(now_ms, time.monotonic() + timeout_s)
        return self.samples(now_ms)

    def samples(self, now_ms: int) -> Samples:
        """Known samples of the hour before ``now_ms``, oldest first."""
        oldest_ms = now_ms - SPAN_MS
        for samples in self._samples.values():
            while samples and samples[0].at_ms < oldest_ms:
                samples.popleft()
        newest = {
            stream: [one for one in _sample(*said) if one.at_ms >= oldest_ms] for stream, said in self._newest.items()
        }
        return {stream: (*samples, *newest.get(stream, ())) for stream, samples in self._samples.items()}

    def take(self, stream: str, at_ms: int, value: bytes, now_ms: int) -> None:
        """The record of ``stream`` with the time ``at_ms``; times that are not of the last hour are not believed."""
        if stream not in self._samples or not now_ms - SPAN_MS <= at_ms <= now_ms + STEP_MS:
            return
        step = at_ms - at_ms % STEP_MS
        before = self._newest.get(stream)
        if before is not None and before[0] < step:
            self._keep(stream, *before)
        if before is None or before[0] <= step:
            self._newest[stream] = step, value

    def close(self) -> None:
        self._consumer.close()

    def _keep(self, stream: str, step: int, value: bytes) -> None:
        self._samples[stream].extend(_sample(step, value))

    def _read_on(self, now_ms: int, deadline: float) -> None:
        if not self._next:
            since = [TopicPartition(*place, now_ms - SPAN_MS) for place in partitions_of(self._connection, self._topic)]
            starts = self._consumer.offsets_for_times(since, REQUEST_TIMEOUT_S)
            self._consumer.assign(starts)
            # where no record is as new as that, the offset is that of the end, which is a negative number
            self._next = {part.partition: part.offset if part.offset >= 0 else self._end(part) for part in starts}
        ends = {partition: self._end(TopicPartition(self._topic, partition)) for partition in self._next}
        while any(self._next[partition] < end for partition, end in ends.items()):
            if time.monotonic() > deadline:
                raise Transient.of("history-too-slow", given=dict(self._next), topic=self._topic)
            for message in self._consumer.consume(_AT_A_TIME, 0.2):
                self._take(message, now_ms)

    def _take(self, message: Message, now_ms: int) -> None:
        problem = message.error()
        if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
            raise failure(f"reading {self._topic}", problem)
        partition, offset, value = message.partition() or 0, message.offset() or 0, message.value()
        if problem is None:
            offset += 1
            if value is not None:
                self.take((message.key() or b"").decode(errors="replace"), message.timestamp()[1], value, now_ms)
        self._next[partition] = max(offset, self._next[partition])

    def _end(self, part: TopicPartition) -> int:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(part.topic, part.partition), REQUEST_TIMEOUT_S)
        return int(end)


def _sample(step: int, value: bytes) -> list[Sample]:
    try:
        return [Sample(at_ms=step, status=StreamStatus.from_json(value))]
    except RecountError:
        return []
