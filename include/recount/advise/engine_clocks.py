"""Clock by which an engine judges each record of an aggregation, and the records it would count by window.

The engines differ in the clock alone. A record is late for a window whose end and grace are not after the clock.
Recount's clock is the stream time of the record's own partition. Of the other engines the log says the clock, or the
least and the most that it can have been.

    partition 0   10 s ── 70 s                 Recount: the record of 12 s is judged at 12 s
    partition 1   12 s                         Kafka Streams, one task for both: at 12 s or, read last, at 70 s

Windows are tumbling, hopping, and sessions of each engine's own. Whether a record is late depends on the session that
it would join, so records of sessions are taken one by one, key by key.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from recount.advise.lens_log import NEVER, Longs, Reaching, Span
from recount.declare.windows import SessionWindows, TimeWindows

KAFKA_STREAMS, STRUCTURED_STREAMING = ENGINES = ("kafka-streams", "structured-streaming")
_SEED = 0x9747B28C
_M, _R = 0x5BD1E995, 24
_32_BITS = 0xFFFFFFFF
RESULT, OURS = "result", "ours"
"""The result that a record falls into, null where there is none, and whether Recount counts the record in it."""
DROPPED = -1
"""In place of the result in which an engine counts a record: it drops it."""


class EngineClock(NamedTuple):
    """For each record that reaches the aggregation, in milliseconds: ``least`` <= the engine's clock <= ``most``.

    With ``least`` the fewest records are late that can be, with ``most`` the most.
    """

    least: Longs
    most: Longs


def structured_streaming(span: Span, reaching: Reaching) -> EngineClock:
    """The watermark plus its delay, the grace: the largest event time of batches that were complete.

    Spark judges the records of a batch by the watermark of the batch before (its WatermarkPropagator), which goes by
    the batches before that one. ``most``: Spark has run a batch without data in between, as it does where the next data
    does not wait, so that all batches before count. ``least`` goes by the records that reach the aggregation, ``most``
    by all: Spark moves a filter below the watermark where it can.
    """
    kept, batch = np.full(span.batches, NEVER, np.int64), reaching.column("batch")
    np.maximum.at(kept, batch, reaching.column("time_ms"))
    before = max(span.reached_ms.values(), default=NEVER)
    least = np.concatenate(([NEVER, NEVER], np.maximum.accumulate(kept)))
    most = np.maximum(np.concatenate(([NEVER], np.maximum.accumulate(reaching.seen_ms))), before)
    return EngineClock(least=least[batch], most=most[batch])


def kafka_streams(span: Span, reaching: Reaching) -> EngineClock:
    """The stream time that the aggregation of a task has seen: the largest event time of the records that reached it.

    Where records keep their key a task reads one partition, and its clock is known. Otherwise it reads a partition of a
    repartition topic: the records of one source partition in their order, mixed with those of the others in an order
    that the log does not say. Taken is that records of a batch come before those of the next one. ``least``: in its
    batch the record came before all records of other partitions, ``most``: after all of them.
    """
    modelled, time, task = reaching.modelled, pl.col("time_ms"), pl.col("partition")
    stood = task.replace_strict(span.reached_ms, default=NEVER, return_dtype=pl.Int64)
    if modelled.is_spread_by_key:
        tasks = modelled.declared_tasks or int(span.parts.select(pl.col("partition").max()).item()) + 1
        of_key = np.array([task_of(key, tasks) for key in reaching.keys], np.int64)
        task = pl.lit(pl.Series(of_key[reaching.column("key")]))
        stood = pl.lit(max(span.reached_ms.values(), default=NEVER))
    of_batch, leads = ["task", "batch"], pl.col("partition") == pl.col("leader")
    parted = reaching.rows.select("partition", "batch", "time_ms", stood=stood, task=task).with_columns(
        own=time.cum_max().over(*of_batch, "partition"),
        leader=pl.col("partition").sort_by("time_ms").last().over(of_batch),
    )
    reached = parted.group_by(of_batch).agg(latest=time.max()).sort(of_batch)
    earlier = reached.with_columns(before=pl.col("latest").cum_max().shift(1).over("task").fill_null(NEVER))
    beside = time.filter(~leads).max().over(of_batch).fill_null(NEVER)
    known = parted.join(earlier, of_batch, maintain_order="left").select(
        least=pl.max_horizontal("own", "before"),
        most=pl.max_horizontal("own", "before", "stood", pl.when(leads).then(beside).otherwise("latest")),
    )
    return EngineClock(*(known[name].to_numpy() for name in EngineClock._fields))


def task_of(key: str | int, tasks: int) -> int:
    """The partition, of ``tasks``, of a key as Kafka's own serializers write it: a text in UTF-8, a LONG in 8 bytes."""
    raw = key.encode() if isinstance(key, str) else key.to_bytes(8, "big", signed=True)
    return (murmur2(raw) & 0x7FFFFFFF) % tasks


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, as 32 bits without a sign.

    Source: Austin Appleby's MurmurHash2, with the seed of org.apache.kafka.common.utils.Utils.murmur2.
    """
    hashed = _SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        mixed = int.from_bytes(data[at : at + 4], "little") * _M & _32_BITS
        mixed = (mixed ^ mixed >> _R) * _M & _32_BITS
        hashed = hashed * _M & _32_BITS ^ mixed
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _32_BITS
    hashed = (hashed ^ hashed >> 13) * _M & _32_BITS
    return hashed ^ hashed >> 15


def least(engine: str) -> str:
    """The column with the result in which ``engine`` counts the record where it drops the fewest records."""
    return f"{engine} least"


def most(engine: str) -> str:
    """The same where it drops the most."""
    return f"{engine} most"


def judged_by(span: Span, reaching: Reaching) -> pl.DataFrame:
    """Which result each engine counts each record in.

    A row for each record and window that it falls into, of sessions one for each record: ``row``, ``key``,
    ``is_judged``, ``start``, ``end``, and who counts it.
    """
    clocks = {KAFKA_STREAMS: kafka_streams(span, reaching), STRUCTURED_STREAMING: structured_streaming(span, reaching)}
    rows, windows = reaching.rows.select("row", "key", "time_ms", "own_ms", "is_judged"), reaching.modelled.windows
    if isinstance(windows, SessionWindows):
        return _in_sessions(windows, reaching, rows, clocks)
    by_engine = {f"{engine} {name}": clock for engine, one in clocks.items() for name, clock in one._asdict().items()}
    return _in_windows(windows, rows.with_columns(**by_engine), list(by_engine))


def _in_windows(windows: TimeWindows, rows: pl.DataFrame, clocks: Sequence[str]) -> pl.DataFrame:
    start, closes = pl.col("start"), pl.col("end") + windows.grace_ms
    newest = pl.col("time_ms") - (pl.col("time_ms") - windows.first_start_ms) % windows.advance_ms
    nth = range(-(-windows.size_ms // windows.advance_ms))
    placed = (
        rows.with_columns(start=pl.concat_list(newest - one * windows.advance_ms for one in nth))
        .explode("start")
        .filter(start > pl.col("time_ms") - windows.size_ms, start >= windows.first_start_ms)
        .with_columns(pl.struct("key", "start").rank("dense").cast(pl.Int64).alias(RESULT), end=start + windows.size_ms)
    )
    counted = (pl.when(closes > pl.col(name)).then(RESULT).otherwise(DROPPED).alias(name) for name in clocks)
    return placed.with_columns(*counted, (closes > pl.col("own_ms")).alias(OURS))


def _in_sessions(
    windows: SessionWindows, reaching: Reaching, rows: pl.DataFrame, clocks: Mapping[str, EngineClock]
) -> pl.DataFrame:
    key, time_ms, own_ms, batch = map(reaching.column, ("key", "time_ms", "own_ms", "batch"))
    apart = reaching.rows.select(pl.struct("partition", "key").rank("dense").cast(pl.Int64)).to_series().to_numpy()
    own = _followed(windows, apart, time_ms, own_ms, has_reach=True)
    found = {RESULT: _together(windows, key, time_ms, own != DROPPED)}
    order = np.argsort(batch, kind="stable")
    for name, of_kafka, of_spark in zip((least, most), *clocks.values(), strict=True):
        if reaching.modelled.is_spread_by_key:
            # the order is open: a record joins at the most the session that all records make, at the least none
            sessions = pl.DataFrame({"session": _together(windows, key, time_ms, key >= 0), "time": time_ms})
            ends = sessions.select(pl.col("time").max().over("session")) if name is least else sessions.select("time")
            is_counted = ends["time"].to_numpy() + windows.closes_ms(0) > of_kafka
            found[name(KAFKA_STREAMS)] = _together(windows, key, time_ms, is_counted)
        else:
            found[name(KAFKA_STREAMS)] = _followed(windows, apart, time_ms, of_kafka)
        by_spark = found[name(STRUCTURED_STREAMING)] = np.empty(len(order), np.int64)
        by_spark[order] = _followed(windows, key[order], time_ms[order], of_spark[order], by_itself=True)
    ours, time = pl.col(RESULT) != DROPPED, pl.col("time_ms")
    return rows.with_columns(**found).with_columns(
        pl.when(ours).then(RESULT).alias(RESULT),
        ours.alias(OURS),
        start=time.min().over(RESULT),
        end=time.max().over(RESULT),
    )


def _followed(
    windows: SessionWindows,
    groups: Longs,
    times_ms: Longs,
    clock: Longs,
    *,
    has_reach: bool = False,
    by_itself: bool = False,
) -> Longs:
    """The session of each record, in the given order, known by the row of its earliest record.

    The session that a record joins decides whether it is late: so does Kafka Streams, with a store that keeps every
    session that a record can join, and Recount among the records of a partition, which calls a record late that is more
    than its reach before the end of any open session (``has_reach``).

    In Spark a record is late ``by_itself``, when its own gap has ended by the watermark, and a session that has ended
    by then has left the state, so that no record joins it any more. Spark ends a gap one millisecond before Recount.
    """
    known: dict[int, list[tuple[int, int, int]]] = {}
    """By group the sessions by end, start and number: rising, and at least a gap apart."""
    found = np.full(len(groups), DROPPED, np.int64)
    merged: dict[int, int] = {}
    for row, (group, time_ms, clock_ms) in enumerate(
        zip(groups.tolist(), times_ms.tolist(), clock.tolist(), strict=True)
    ):
        sessions = known.setdefault(group, [])
        if by_itself:
            ended_ms = clock_ms - windows.grace_ms - windows.gap_ms
            if time_ms <= ended_ms:
                continue
            del sessions[: bisect_left(sessions, (ended_ms + 1,))]
        elif has_reach and windows.is_closed(time_ms + windows.reach_ms, clock_ms):
            continue
        low = high = bisect_left(sessions, (time_ms - windows.gap_ms,))
        while high < len(sessions) and sessions[high][1] <= time_ms + windows.gap_ms:
            high += 1
        joined = [*sessions[low:high], (time_ms, time_ms, row)]
        end_ms, start_ms = max(end for end, _, _ in joined), min(start for _, start, _ in joined)
        if not by_itself and windows.is_closed(end_ms, clock_ms):
            continue
        found[row] = number = min(number for _, _, number in joined)
        merged.update({other: number for _, _, other in joined if other != number})
        sessions[low:high] = [(end_ms, start_ms, number)]
    for number in sorted(merged):
        merged[number] = merged.get(merged[number], merged[number])
    return np.array([merged.get(number, number) for number in found.tolist()], np.int64)


def _together(windows: SessionWindows, keys: Longs, times_ms: Longs, is_counted: npt.NDArray[np.bool_]) -> Longs:
    """The session of each counted record among all counted records of its key, in whatever order they came."""
    rows = pl.DataFrame({"row": np.arange(len(keys)), "key": keys, "time": times_ms}).filter(is_counted)
    rows = rows.sort("key", "time").with_columns(
        begins=((pl.col("time") - pl.col("time").shift(1).over("key")) > windows.gap_ms).fill_null(value=True)
    )
    found = np.full(len(keys), DROPPED, np.int64)
    found[rows["row"].to_numpy()] = rows["begins"].cum_sum().to_numpy()
    return found
