"""How streams were during the last hour: of their statuses on ``recount.history`` the last one of each half minute."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from recount.core.errors import RecountError, Transient
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure
from recount.kafka.offsets import TO_THE_END, partitions_of
from recount.kafka.platform import HISTORY
from recount.kafka.status import StreamStatus

SPAN_MS, STEP_MS = 3_600_000, 30_000
_AT_A_TIME = 1_000


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a driver said last in the step that begins at ``at_ms``, by the times of the records."""

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
        try:
            self._read_on(now_ms, time.monotonic() + timeout_s)
        except KafkaException as error:
            raise failure(f"reading {self._topic}", error) from error
        return self.samples(now_ms)

    def samples(self, now_ms: int) -> Samples:
        """What is known of the hour before ``now_ms``, oldest first."""
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
                raise Transient(f"topic {self._topic} was not read to its end in time", given=dict(self._next))
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
