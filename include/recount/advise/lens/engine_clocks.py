"""Clock by which an engine judges each record of an aggregation, and the records it would count by window.

The engines differ in the clock alone. A record is late for a window whose end and grace are not after the clock.
Recount's clock is the stream time of the record's own partition. Of the other engines the log says the clock, or the
least and the most that it can have been.

    partition 0   10 s ── 70 s                 Recount: the record of 12 s is judged at 12 s
    partition 1   12 s                         Kafka Streams, one task for both: at 12 s or, read last, at 70 s

Windows are tumbling, hopping, and sessions of each engine's own. Whether a record is late depends on the session that
it would join, so records of sessions are taken one by one, key by key.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from recount.advise.lens.lens_log import DecodedFields, Records
from recount.advise.lens.lens_stretch import NEVER, Longs, Modelled, Stretch
from recount.declare.windows import SessionWindows, TimeWindows
from recount.reference.records import Record

KAFKA_STREAMS, STRUCTURED_STREAMING = "kafka-streams", "structured-streaming"
_SEED = 0x9747B28C
_M, _R = 0x5BD1E995, 24
_32_BITS = 0xFFFFFFFF
RESULT, OURS = "result", "ours"
"""The result that a record falls into, null where there is none, and whether Recount counts the record in it."""
DROPPED = -1
"""In place of the result in which an engine counts a record: it drops it."""


@dataclass(frozen=True, kw_only=True)
class Reaching:
    """A row for each record that reaches the aggregation with a key, in the order of (partition, offset).

    A flat-map can make several rows of a record: ``number`` counts them. ``own_ms`` is the stream time of the record's
    own partition at its offset, by which Recount judges. ``key`` is an index of ``keys``, ``batch`` the number of its
    batch. ``seen_ms`` is the largest event time of every batch among all records that can be decoded, of which steps
    may have dropped some. ``read`` is how many records were read.
    """

    partition: Longs
    offset: Longs
    number: Longs
    time_ms: Longs
    own_ms: Longs
    key: Longs
    batch: Longs
    keys: Sequence[str | int]
    seen_ms: Longs
    read: int
    fields: DecodedFields

    @property
    def keys_in_several_partitions(self) -> int:
        """How many keys have records in more than one source partition."""
        places = pl.DataFrame({"key": self.key, "partition": self.partition}).unique()
        return int((places["key"].value_counts()["count"] > 1).sum())

    def records(self, rows: Longs) -> Iterator[Record]:
        """The records of ``rows``, which rise, as they reach the aggregation."""
        for partition in np.unique(self.partition[rows]):
            mine = rows[self.partition[rows] == partition]
            made = self.fields.made(int(partition), self.offset[mine], self.time_ms[mine].tolist())
            yield from (one[number] for one, number in zip(made, self.number[mine].tolist(), strict=True))


def reaching(modelled: Modelled, stretch: Stretch, log: Iterable[Records]) -> Reaching:
    """Decode ``log`` and send it down the steps, partition by partition in offset order.

    A record without the key that the aggregation needs advances no clock; one that is filtered advances Recount's.
    """
    fields, key_name = DecodedFields(modelled), modelled.aggregate.key
    codes: dict[str | int, int] = {}
    columns = {name: array("q") for name in ("partition", "offset", "number", "time_ms", "own_ms", "key", "batch")}
    appends = [column.append for column in columns.values()]
    reached_ms = dict(stretch.reached_ms)
    seen_ms, read = [NEVER] * stretch.batches, 0
    for records in log:
        read += len(records.offsets)
        partition, offsets = records.partition, np.array(records.offsets, np.int64)
        latest_ms = stretch.recorded_ms_of(partition, offsets) + modelled.topology.max_future_ms
        batches = stretch.batch_of(partition, offsets).tolist()
        for index, time_ms, made in fields.take(records, latest_ms.tolist()):
            batch = batches[index]
            seen_ms[batch] = max(seen_ms[batch], time_ms)
            keys = [record.row[key_name] for record in made]
            if keys and all(key is None for key in keys):
                continue
            own_ms = reached_ms[partition] = max(time_ms, reached_ms.get(partition, time_ms))
            for number, key in enumerate(keys):
                if key is not None:
                    code = codes.setdefault(key, len(codes))
                    row = (partition, records.offsets[index], number, time_ms, own_ms, code, batch)
                    for append, cell in zip(appends, row, strict=True):
                        append(cell)
    found = {name: np.frombuffer(column, np.int64) for name, column in columns.items()}
    return Reaching(**found, keys=list(codes), seen_ms=np.array(seen_ms, np.int64), read=read, fields=fields)


@dataclass(frozen=True, kw_only=True)
class EngineClock:
    """For each record that reaches the aggregation, in milliseconds: ``least`` <= the engine's clock <= ``most``.

    With ``least`` the fewest records are late that can be, with ``most`` the most.
    """

    least: Longs
    most: Longs


def structured_streaming(stretch: Stretch, rows: Reaching) -> EngineClock:
    """The watermark plus its delay, the grace: the largest event time of batches that were complete.

    Spark judges the records of a batch by the watermark of the batch before (its WatermarkPropagator), which goes by
    the batches before that one. ``most``: Spark has run a batch without data in between, as it does where the next data
    does not wait, so that all batches before count. ``least`` goes by the records that reach the aggregation, ``most``
    by all: Spark moves a filter below the watermark where it can.
    """
    kept = np.full(stretch.batches, NEVER, np.int64)
    np.maximum.at(kept, rows.batch, rows.time_ms)
    before = max(stretch.reached_ms.values(), default=NEVER)
    least = np.concatenate(([NEVER, NEVER], np.maximum.accumulate(kept)))
    most = np.maximum(np.concatenate(([NEVER], np.maximum.accumulate(rows.seen_ms))), before)
    return EngineClock(least=least[rows.batch], most=most[rows.batch])


def kafka_streams(modelled: Modelled, stretch: Stretch, rows: Reaching, partitions: int) -> EngineClock:
    """The stream time that the aggregation of a task has seen: the largest event time of the records that reached it.

    Where records keep their key a task reads one of the ``partitions``, and its clock is known. Otherwise it reads a
    partition of a repartition topic: the records of one source partition in their order, mixed with those of the others
    in an order that the log does not say. Taken is that records of a batch come before those of the next one.
    ``least``: in its batch the record came before all records of other partitions, ``most``: after all of them.
    """
    if not modelled.is_spread_by_key:
        seen = running_maxima(rows.partition, rows.time_ms)
        before = np.array([stretch.reached_ms.get(p, NEVER) for p in range(partitions)], np.int64)
        return EngineClock(least=seen, most=np.maximum(seen, before[rows.partition]))
    tasks = modelled.declared_tasks or partitions
    task = np.array([task_of(key, tasks) for key in rows.keys], np.int64)[rows.key]
    of_task_in_batch = pl.col("most_of_part").max().over("task", "batch")
    parts = (
        pl.DataFrame({"task": task, "batch": rows.batch, "partition": rows.partition, "time": rows.time_ms})
        .group_by("task", "batch", "partition")
        .agg(most_of_part=pl.col("time").max())
        .sort("task", "batch", "partition")
        .with_columns(
            second=pl.col("most_of_part").sort(descending=True).slice(1, 1).max().over("task", "batch"),
            is_first=pl.col("most_of_part") == of_task_in_batch,
            first=of_task_in_batch,
        )
        .with_columns(others=pl.when("is_first").then("second").otherwise("first").fill_null(NEVER))
    )
    batches = (
        parts.group_by("task", "batch")
        .agg(pl.col("first").max())
        .sort("task", "batch")
        .with_columns(before=pl.col("first").cum_max().shift(1).over("task").fill_null(NEVER))
    )
    known = (
        pl.DataFrame({"task": task, "batch": rows.batch, "partition": rows.partition, "time": rows.time_ms})
        .with_columns(own=pl.col("time").cum_max().over("task", "batch", "partition"))
        .join(
            parts.select("task", "batch", "partition", "others"), ["task", "batch", "partition"], maintain_order="left"
        )
        .join(batches.select("task", "batch", "before"), ["task", "batch"], maintain_order="left")
    )
    least = np.maximum(known["own"].to_numpy(), known["before"].to_numpy())
    reached = max(stretch.reached_ms.values(), default=NEVER)
    most = np.maximum(np.maximum(least, known["others"].to_numpy()), reached)
    return EngineClock(least=least, most=most)


def running_maxima(tasks: Longs, times_ms: Longs) -> Longs:
    """The stream time of each record's task once it has been read; the records are given in the order of reading."""
    frame = pl.DataFrame({"task": tasks, "time": times_ms})
    return frame.select(pl.col("time").cum_max().over("task"))["time"].to_numpy()


def task_of(key: str | int, tasks: int) -> int:
    """The partition, of ``tasks``, of a key as Kafka's own serializers write it: a text in UTF-8, a LONG in 8 bytes."""
    raw = key.encode() if isinstance(key, str) else key.to_bytes(8, "big", signed=True)
    return (murmur2(raw) & 0x7FFFFFFF) % tasks


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, as 32 bits without a sign.

    Source: Austin Appleby's MurmurHash2, with the seed of org.apache.kafka.common.utils.Utils.murmur2.
    """
    length = len(data)
    hashed = _SEED ^ length
    whole = length - length % 4
    for word in _words(data[:whole]):
        mixed = word * _M & _32_BITS
        mixed = (mixed ^ mixed >> _R) * _M & _32_BITS
        hashed = hashed * _M & _32_BITS ^ mixed
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _32_BITS
    hashed = (hashed ^ hashed >> 13) * _M & _32_BITS
    return hashed ^ hashed >> 15


def _words(data: bytes) -> Iterable[int]:
    return (int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4))


def least(engine: str) -> str:
    """The column with the result in which ``engine`` counts the record where it drops the fewest records."""
    return f"{engine} least"


def most(engine: str) -> str:
    """The same where it drops the most."""
    return f"{engine} most"


def judged_windows(windows: TimeWindows, rows: Reaching, clocks: Mapping[str, EngineClock]) -> pl.DataFrame:
    """A row for each record and window that it falls into: ``row``, ``key``, ``start``, ``end``, and who counts it."""
    nths = range(-(-windows.size_ms // windows.advance_ms))
    judged = pl.concat([_judged(windows, rows, clocks, nth) for nth in nths])
    numbered = judged.with_columns(pl.struct("key", "start").rank("dense").cast(pl.Int64).alias(RESULT))
    readings = [name for engine in clocks for name in (least(engine), most(engine))]
    return numbered.with_columns(
        pl.when(name).then(pl.lit(DROPPED, pl.Int64)).otherwise(RESULT).alias(name) for name in readings
    )


def _judged(windows: TimeWindows, rows: Reaching, clocks: Mapping[str, EngineClock], nth: int) -> pl.DataFrame:
    """The windows that started ``nth`` before the newest one of each record; of engines whether it is late."""
    first = windows.first_start_ms
    start = rows.time_ms - (rows.time_ms - first) % windows.advance_ms - nth * windows.advance_ms
    row = np.flatnonzero((start > rows.time_ms - windows.size_ms) & (start >= first))
    end = start[row] + windows.size_ms
    closes_ms = end + windows.grace_ms
    judged = {OURS: closes_ms > rows.own_ms[row]}
    for engine, clock in clocks.items():
        judged |= {least(engine): closes_ms <= clock.least[row], most(engine): closes_ms <= clock.most[row]}
    return pl.DataFrame({"row": row, "key": rows.key[row], "start": start[row], "end": end, **judged})


def judged_sessions(
    modelled: Modelled, windows: SessionWindows, rows: Reaching, clocks: Mapping[str, EngineClock]
) -> pl.DataFrame:
    """A row for each record: ``row``, ``key``, ``start``, ``end``, its session, and that of each engine."""
    apart = pl.DataFrame({"partition": rows.partition, "key": rows.key})
    groups = apart.select(pl.struct("partition", "key").rank("dense"))["partition"].to_numpy().astype(np.int64)
    own = sessions_by_end(windows, groups, rows.time_ms, rows.own_ms, reach=True)
    ours = sessions_of(windows, rows.key, rows.time_ms, own != DROPPED)
    by_engine: dict[str, Longs] = {}
    for engine, clock in clocks.items():
        for name, one, is_most in ((least(engine), clock.least, False), (most(engine), clock.most, True)):
            if engine == STRUCTURED_STREAMING:
                by_engine[name] = _in_batches(windows, rows, one)
            elif modelled.is_spread_by_key:
                by_engine[name] = _in_any_order(windows, rows, one, is_most=is_most)
            else:
                by_engine[name] = sessions_by_end(windows, groups, rows.time_ms, one, reach=False)
    frame = pl.DataFrame(
        {"row": np.arange(len(ours)), "key": rows.key, "time": rows.time_ms, RESULT: ours, **by_engine}
    )
    return frame.with_columns(
        pl.when(pl.col(RESULT) != DROPPED).then(RESULT).alias(RESULT),
        (pl.col(RESULT) != DROPPED).alias(OURS),
        start=pl.col("time").min().over(RESULT),
        end=pl.col("time").max().over(RESULT),
    )


def _in_batches(windows: SessionWindows, rows: Reaching, clock: Longs) -> Longs:
    order = np.argsort(rows.batch, kind="stable")
    found = np.empty(len(order), np.int64)
    found[order] = sessions_by_record(windows, rows.key[order], rows.time_ms[order], clock[order])
    return found


def _in_any_order(windows: SessionWindows, rows: Reaching, clock: Longs, *, is_most: bool) -> Longs:
    """Where the order is open, a record joins at the most the session that all records make, at the least none."""
    end_ms = rows.time_ms
    if not is_most:
        every = sessions_of(windows, rows.key, rows.time_ms, np.ones(len(rows.key), np.bool_))
        frame = pl.DataFrame({"session": every, "time": rows.time_ms})
        end_ms = frame.select(pl.col("time").max().over("session"))["time"].to_numpy()
    is_counted = end_ms + windows.closes_ms(0) > clock
    return sessions_of(windows, rows.key, rows.time_ms, is_counted)


@dataclass
class _Open:
    """The sessions of one key by their ends: rising, and at least a gap apart."""

    ends: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def joined_by(self, time_ms: int, gap_ms: int) -> tuple[int, int]:
        """Which of the sessions a record joins: from and before these places."""
        low = high = bisect_left(self.ends, time_ms - gap_ms)
        while high < len(self.starts) and self.starts[high] <= time_ms + gap_ms:
            high += 1
        return low, high

    def forget_before(self, end_ms: int) -> None:
        """Let go of the sessions that ended before ``end_ms``."""
        gone = bisect_left(self.ends, end_ms)
        del self.ends[:gone], self.starts[:gone], self.numbers[:gone]


def sessions_by_end(windows: SessionWindows, groups: Longs, times_ms: Longs, clock: Longs, *, reach: bool) -> Longs:
    """The session of each record, in the given order, where the session that it joins decides whether it is late.

    So Kafka Streams does, with a store that keeps every session that a record can join, and Recount among the records
    of a partition, which calls a record late that is more than its ``reach`` before the end of any open session.
    """
    known: dict[int, _Open] = {}
    found = np.full(len(groups), DROPPED, np.int64)
    merged: dict[int, int] = {}
    cells = zip(groups.tolist(), times_ms.tolist(), clock.tolist(), strict=True)
    for row, (group, time_ms, clock_ms) in enumerate(cells):
        if reach and windows.is_closed(time_ms + windows.reach_ms, clock_ms):
            continue
        sessions = known.setdefault(group, _Open())
        low, high = sessions.joined_by(time_ms, windows.gap_ms)
        end_ms = max(time_ms, sessions.ends[high - 1]) if high > low else time_ms
        if not windows.is_closed(end_ms, clock_ms):
            found[row] = _join(sessions, low, high, row, time_ms, merged)
    return _roots(found, merged)


def sessions_by_record(windows: SessionWindows, groups: Longs, times_ms: Longs, clock: Longs) -> Longs:
    """The session of each record, in the given order, where its own time decides whether it is late.

    So Spark does: a record is late whose own gap has ended by the watermark, and a session that has ended by then has
    left the state, so that no record joins it any more. Spark ends a gap one millisecond before Recount does.
    """
    known: dict[int, _Open] = {}
    found = np.full(len(groups), DROPPED, np.int64)
    merged: dict[int, int] = {}
    for row, (group, time_ms, clock_ms) in enumerate(
        zip(groups.tolist(), times_ms.tolist(), clock.tolist(), strict=True)
    ):
        ended_ms = clock_ms - windows.grace_ms - windows.gap_ms
        if time_ms <= ended_ms:
            continue
        sessions = known.setdefault(group, _Open())
        sessions.forget_before(ended_ms + 1)
        low, high = sessions.joined_by(time_ms, windows.gap_ms)
        found[row] = _join(sessions, low, high, row, time_ms, merged)
    return _roots(found, merged)


def sessions_of(windows: SessionWindows, keys: Longs, times_ms: Longs, is_counted: npt.NDArray[np.bool_]) -> Longs:
    """The session of each counted record among all counted records of its key, in whatever order they came."""
    rows = pl.DataFrame({"row": np.arange(len(keys)), "key": keys, "time": times_ms}).filter(is_counted)
    rows = rows.sort("key", "time").with_columns(
        begins=((pl.col("time") - pl.col("time").shift(1).over("key")) > windows.gap_ms).fill_null(value=True)
    )
    found = np.full(len(keys), DROPPED, np.int64)
    found[rows["row"].to_numpy()] = rows["begins"].cum_sum().to_numpy()
    return found


def _join(sessions: _Open, low: int, high: int, row: int, time_ms: int, merged: dict[int, int]) -> int:
    """Put the record's session in place of those that it joins; the session is known by its earliest record's row."""
    joined = sessions.numbers[low:high]
    number = min([row, *joined])
    merged.update({other: number for other in joined if other != number})
    start_ms = min([time_ms, *sessions.starts[low:high]])
    end_ms = max([time_ms, *sessions.ends[low:high]])
    sessions.ends[low:high], sessions.starts[low:high], sessions.numbers[low:high] = [end_ms], [start_ms], [number]
    return number


def _roots(found: Longs, merged: dict[int, int]) -> Longs:
    """Every record's session under the number that it has in the end."""
    for number in sorted(merged):
        merged[number] = merged.get(merged[number], merged[number])
    return np.array([merged.get(number, number) for number in found.tolist()], np.int64)
