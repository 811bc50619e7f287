"""The Kafka sources of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.core.reading import Layers
from recount.kafka.scanning import SCAN_OPTIONS
from recount.kafka.security import HiddenValues
from recount.spark.catching_up import BatchLimit
from recount.spark.checkpoint import Partition


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
