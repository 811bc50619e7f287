"""The Kafka sources of a stream: how much of each layer of topics a batch reads, and how many records.

    layers          batches of at most 1,000 records, while tables have 2,500
    0  tables       1,000 ── 1,000 ──   500 and all that has come since, and so in every batch from now on
    1  events           0 ──     0 ── 1,000 ── 1,000 ── ...

Spark reads the limits when a query starts, so the query is started again for the next layer. In every batch that reads
events the tables are at their end: a batch is planned from the last layer to the first, so that whatever was written to
a table before an event is in the event's batch.

A batch costs some milliseconds whatever it holds, and some for each record. A stream that is far behind takes the
largest batches all the same, for they cost least a record. A change restarts Spark's query, so it is made only for a
factor of two, and only where it matters: smaller when a batch was too large, larger when one left records behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import linear_regression

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.declare.operators.event_time import Layers
from recount.engine.source.checkpoint import Partition
from recount.kafka.connection import SCAN_OPTIONS, Connection
from recount.kafka.offsets import log_ranges, partitions_of
from recount.kafka.security import HiddenValues

_WINDOW = 16
"""Batches; what older ones cost says little of the next."""
_FAR_BEHIND = 10
"""Batches of the wanted size."""
_WORTH_A_RESTART = 2
_SMALLEST = 1_000
"""Records; so few take no time that anybody would notice."""


@dataclass(frozen=True, kw_only=True)
class BatchLimit:
    """At most ``records`` of the topics of ``layer``, those before it to their end, and nothing of those after it."""

    records: int
    layer: int = 0

    def of(self, layer: int) -> int | None:
        """How many records of that layer at most; None: all that there are."""
        if layer == self.layer:
            return self.records
        return None if layer < self.layer else 0


def layer_to_read(lags: Sequence[int], records: int) -> int:
    """The first layer of which more is left than the ``records`` of a batch; the last one if there is none.

    >>> layer_to_read([2_500, 90_000], 1_000), layer_to_read([1_000, 90_000], 1_000)
    (0, 1)
    """
    return next((layer for layer, lag in enumerate(lags[:-1]) if lag > records), len(lags) - 1)


def backlog(connection: Connection, layers: Layers, read: Mapping[Partition, int]) -> list[int]:
    """Per layer how many offsets the log holds beyond those ``read``; of a partition without one, all."""
    lags = []
    for topics in layers:
        partitions = [partition for topic in topics for partition in partitions_of(connection, topic)]
        kept = log_ranges(connection, partitions)
        lags.append(sum(max(0, span.end - read.get(place, span.start)) for place, span in kept.items()))
    return lags


def kafka_source(
    session: SparkSession,
    kafka: Mapping[str, str],
    layers: Layers,
    *,
    start: Mapping[Partition, int] | None,
    limit: BatchLimit,
    headers: bool = False,
) -> DataFrame:
    """A streaming frame of the topics: topic, partition, offset, timestamp_ms, key, value and, if asked for, headers.

    Each of ``layers`` is a source of its own, with its own ``limit``; Spark plans them all in one batch, in the order
    of this union: the last layer first, so that the tables' ends are no older than those of the events. ``start`` gives
    the first offsets of a new checkpoint (None: the beginning of the log); an existing checkpoint goes on where it
    stands. One task reads one partition, in offset order. Lost offsets fail the query. ``kafka`` says how to reach the
    cluster, see ``Connection.of_spark``.
    """
    options = _read_options(kafka, headers=headers)
    sources = []
    for number, topics in reversed(list(enumerate(layers))):
        mine = {place: offset for place, offset in (start or {}).items() if place[0] in topics}
        source = (
            session.readStream.format("kafka")
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", _as_json(mine) if mine else "earliest")
            .options(**options)
        )
        most = limit.of(number)
        limited = source if most is None else source.option("maxOffsetsPerTrigger", most)
        sources.append(_selected(limited.load(), topics, headers=headers))
    return reduce(DataFrame.union, sources)


def kafka_range(
    session: SparkSession,
    kafka: Mapping[str, str],
    topics: Sequence[str],
    *,
    start: Mapping[Partition, int],
    end: Mapping[Partition, int],
    headers: bool = False,
) -> DataFrame:
    """The records ``start`` <= offset < ``end``, as ``kafka_source`` gives those of a batch."""
    source = (
        session.read.format("kafka")
        .option("assign", json.dumps({topic: sorted(p for t, p in end if t == topic) for topic in topics}))
        .option("startingOffsets", _as_json(start))
        .option("endingOffsets", _as_json(end))
        .options(**_read_options(kafka, headers=headers))
        .load()
    )
    return _selected(source, topics, headers=headers)


def _read_options(kafka: Mapping[str, str], *, headers: bool) -> HiddenValues:
    own = {"failOnDataLoss": "true", "includeHeaders": str(headers)}
    return HiddenValues({**SCAN_OPTIONS, **kafka, **own})


def _selected(source: DataFrame, topics: Sequence[str], *, headers: bool) -> DataFrame:
    timestamp_ms = F.unix_millis("timestamp").alias("timestamp_ms")
    # The name of the one topic as a constant costs a fifth less than reading it from every record.
    topic = F.lit(topics[0]).alias("topic") if len(topics) == 1 else F.col("topic")
    return source.select(topic, "partition", "offset", timestamp_ms, "key", "value", *(["headers"] if headers else []))


def _as_json(offsets: Mapping[Partition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)


@dataclass(frozen=True, kw_only=True)
class BatchCost:
    """Records and milliseconds of the last batches, and the line that fits them best."""

    records: tuple[int, ...] = ()
    ms: tuple[int, ...] = ()

    def and_of(self, records: int, ms: int) -> BatchCost:
        return BatchCost(records=(*self.records, records)[-_WINDOW:], ms=(*self.ms, max(ms, 1))[-_WINDOW:])

    def records_within(self, target_ms: int) -> float:
        """How many records take ``target_ms``; with fixed 300 ms and 0.01 ms a record, 1,000 ms are 70,000 records.

        Of batches too much alike to tell the fixed part, or so uneven that none shows, all the cost counts as the
        records'.
        """
        ms_per_record, fixed_ms = 0.0, 0.0
        if max(self.records) > 1.1 * min(self.records):
            ms_per_record, fixed_ms = linear_regression(self.records, self.ms)
        if ms_per_record <= 0:
            ms_per_record, fixed_ms = sum(self.ms) / sum(self.records), 0.0
        return max(target_ms - max(fixed_ms, 0.0), 0.0) / ms_per_record


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The cap of a batch, ``records``: at most ``largest``, and as many as ``target_ms`` (0: any time) allows."""

    largest: int
    target_ms: int
    records: int
    cost: BatchCost | None = None

    @classmethod
    def first(cls, largest: int, target_ms: int) -> BatchSize:
        """Before anything was measured: the largest."""
        return cls(largest=largest, target_ms=target_ms, records=largest)

    def after(self, records: int, ms: int, lag: int | None) -> BatchSize:
        """After a batch of ``records`` that took ``ms`` and left ``lag`` more on the broker (None: not known).

        The first batch of a process tells nothing: it pays for what is loaded and compiled once.
        """
        if not self.target_ms or not records:
            return self
        if self.cost is None:
            return replace(self, cost=BatchCost())
        cost = self.cost.and_of(records, ms)
        wanted = self._wanted(cost, lag or 0)
        too_large = _WORTH_A_RESTART * wanted <= records
        too_small = bool(lag) and wanted >= _WORTH_A_RESTART * self.records
        return replace(self, cost=cost, records=wanted if too_large or too_small else self.records)

    def _wanted(self, cost: BatchCost, lag: int) -> int:
        within = max(cost.records_within(self.target_ms), _SMALLEST)
        return self.largest if within >= self.largest or lag > _FAR_BEHIND * within else round(within)
