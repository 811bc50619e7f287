"""The clock by which an engine judges each record: the one thing in which the engines differ.

A record is late for a window whose end and grace are not after the clock. Recount's clock is the stream time of the
record's own partition. Of the other engines the log says the clock, or the least and the most that it can have been.

    partition 0   10 s ── 70 s                 Recount: the record of 12 s is judged at 12 s
    partition 1   12 s                         Kafka Streams, one task for both: at 12 s or, read last, at 70 s
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from recount.lens.modelled import Modelled
from recount.lens.reaching_records import Reaching
from recount.lens.stretch import NEVER, Longs, Stretch

KAFKA_STREAMS, STRUCTURED_STREAMING = "kafka-streams", "structured-streaming"
_SEED = 0x9747B28C
_M, _R = 0x5BD1E995, 24
_32_BITS = 0xFFFFFFFF


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
