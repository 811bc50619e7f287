"""How far each operator's frontier had come after the batches of a stream: what had to have left by then."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.log_rows import OFFSET, PARTITION, PLACE, TIME, TOPIC, advancing

Partition = tuple[str, int]
ALL_DUE, NONE_DUE = 2**62, -(2**62)
"""A frontier before which everything is, and one before which nothing is."""

_FIRST_MS = -(2**63)
REACHED_BEFORE = "__reached_before_ms"
"""How far a frontier had come before the batch that read the record."""
LEFT_IN = "__left_in"
"""The number of the batch in which a record left an operator."""
_NUMBER = "__batch"


@dataclass(frozen=True, kw_only=True)
class BatchEnds:
    """One batch: the first offset of each source partition that it left unread, and who held the frontier back."""

    ends: Mapping[Partition, int]
    awake: frozenset[Partition]


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How far a frontier had come at the end of an interval of the log, and each partition's stream time there.

    ``slowest_ms`` is after each batch of the interval the smallest stream time of the partitions awake: less than the
    frontier once one that was idle is behind it, None while one has none.
    """

    last_ms: int
    stream_times: Mapping[Partition, int]
    slowest_ms: Sequence[int | None] = ()

    @classmethod
    def nowhere(cls) -> Reached:
        """Before the log."""
        return cls(last_ms=NONE_DUE, stream_times={})

    def to_json(self) -> dict[str, Any]:
        """Where it stands now, in plain values."""
        return {
            "frontier_ms": self.last_ms,
            "stream_times": [[*partition, time_ms] for partition, time_ms in sorted(self.stream_times.items())],
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Reached:
        """Where ``to_json`` said that it stood."""
        times = {(topic, partition): time_ms for topic, partition, time_ms in told["stream_times"]}
        return cls(last_ms=told["frontier_ms"], stream_times=times)


class Wait(NamedTuple):
    """A record waits until a frontier, ``reached_ms`` after each batch, is ``ahead_ms`` ahead of it."""

    reached_ms: Sequence[int]
    ahead_ms: int


def behind(clock_ms: int, by_ms: int) -> int:
    """``by_ms`` before ``clock_ms``, or the first time that there is: an interval can be longer than all time."""
    return max(clock_ms - by_ms, _FIRST_MS)


def left_in(
    batches: Sequence[BatchEnds], waits: Sequence[Wait]
) -> Callable[[str | None, int | None, int | None, int], int]:
    """Says of a record, by place and time, in which batch it had been read and had left all ``waits``.

    A derived row has no place: its time alone says when it left them.
    """
    boundaries = {place: ends.tolist() for place, ends in _boundaries(batches).items()}
    reached = [(list(wait.reached_ms), wait.ahead_ms) for wait in waits]

    def number(topic: str | None, partition: int | None, offset: int | None, time_ms: int) -> int:
        if topic is None or partition is None or offset is None:
            read = 0
        else:
            read = bisect_right(boundaries.get((topic, partition), ()), offset)
        return max([read, *(bisect_left(frontiers, time_ms + ahead_ms) for frontiers, ahead_ms in reached)])

    return number


def with_left_in(
    frame: Frame, batches: Sequence[BatchEnds], waits: Sequence[Wait], *, time: Column | None = None
) -> Frame:
    """``frame`` with ``LEFT_IN``, of records that leave once they were read and by ``time`` have left all ``waits``."""
    number = F.by_python(left_in(batches, waits), T.LongType())
    return frame.with_column(LEFT_IN, number(*map(F.col, PLACE), F.col(TIME) if time is None else time))


def with_reached_before(
    frame: Frame, batches: Sequence[BatchEnds], frontiers_ms: Sequence[int], first_ms: int
) -> Frame:
    """``frame`` with ``REACHED_BEFORE``, of a frontier that came from ``first_ms`` to ``frontiers_ms``."""
    number, before = left_in(batches, []), [first_ms, *frontiers_ms]

    def reached(topic: str, partition: int, offset: int, time_ms: int) -> int:
        return before[number(topic, partition, offset, time_ms)]

    places = [F.col(name) for name in (*PLACE, TIME)]
    return frame.with_column(REACHED_BEFORE, F.by_python(reached, T.LongType())(*places))


def reached(
    batches: Sequence[BatchEnds],
    entries: Frame,
    without: Frame | None,
    topics: frozenset[str],
    stood: Reached,
) -> Reached:
    """How far the frontier over ``topics`` comes by ``batches``; ``NONE_DUE`` while there is none.

    ``entries`` are the records that advance stream time, ``without`` the places of those that do not for this operator.
    ``stood`` is how far it had come before.
    """
    number, kinds = _Numbering(_boundaries(batches)), (T.StringType(), T.IntegerType(), T.LongType(), T.LongType())
    schema = T.StructType(list(map(T.StructField, (TOPIC, PARTITION, TIME, _NUMBER), kinds)))
    numbered = advancing(entries, without).select(*PLACE, TIME).passed_through(number, schema)
    largest = numbered.group_by(TOPIC, PARTITION, _NUMBER).agg(F.largest(TIME).alias(TIME)).rows()
    found = ((row[_NUMBER], (row[TOPIC], row[PARTITION]), row[TIME]) for row in largest)
    return _reached(batches, found, topics, stood)


def _reached(
    batches: Sequence[BatchEnds], largest: Iterable[tuple[int, Partition, int]], topics: frozenset[str], stood: Reached
) -> Reached:
    """Batch after batch, the smallest stream time of the partitions awake; the highest of these counts."""
    by_batch = {number: list(found) for number, found in groupby(sorted(largest), key=lambda one: one[0])}
    stream_times, slowest_ms = dict(stood.stream_times), list[int | None]()
    for number, batch in enumerate(batches):
        for _, partition, time_ms in by_batch.get(number, ()):
            stream_times[partition] = max(time_ms, stream_times.get(partition, time_ms))
        awaited = [partition for partition in batch.awake if partition[0] in topics]
        is_known = awaited and all(partition in stream_times for partition in awaited)
        slowest_ms.append(min(stream_times[partition] for partition in awaited) if is_known else None)
    last_ms = max([stood.last_ms, *(ms for ms in slowest_ms if ms is not None)])
    return Reached(last_ms=last_ms, stream_times=stream_times, slowest_ms=slowest_ms)


def ends_of_batches(batches: Sequence[BatchEnds], topic: str) -> dict[int, np.ndarray]:
    """Per partition of ``topic`` the end of each batch."""
    return {partition: ends for (name, partition), ends in _boundaries(batches).items() if name == topic}


def _boundaries(batches: Sequence[BatchEnds]) -> dict[Partition, np.ndarray]:
    """Per partition the end of each batch; before a partition was known, its first offset or less."""
    partitions = {partition for batch in batches for partition in batch.ends}
    return {
        partition: np.maximum.accumulate(np.array([batch.ends.get(partition, 0) for batch in batches], dtype=np.int64))
        for partition in partitions
    }


@dataclass(frozen=True)
class _Numbering:
    """Says of each record which batch read it: the first that ends beyond its offset."""

    boundaries: Mapping[Partition, np.ndarray]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            topics, partitions = batch.column(TOPIC), batch.column(PARTITION)
            offsets, numbers = batch.column(OFFSET).to_numpy(), np.zeros(batch.num_rows, np.int64)
            there = pa.table([topics, partitions], [TOPIC, PARTITION]).group_by([TOPIC, PARTITION]).aggregate([])
            for topic, partition in zip(*(column.to_pylist() for column in there.columns), strict=True):
                ends = self.boundaries[topic, partition]
                mine = pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition))
                places = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
                numbers[places] = np.searchsorted(ends, offsets[places], side="right")
            columns = [batch.column(name) for name in (TOPIC, PARTITION, TIME)]
            yield pa.record_batch([*columns, pa.array(numbers)], names=[TOPIC, PARTITION, TIME, _NUMBER])
