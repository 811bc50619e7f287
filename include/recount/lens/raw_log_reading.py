"""The raw log of a stretch without Spark: from Kafka what it still has, from the topic's archive what is older."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import polars as pl
from confluent_kafka import Message
from deltalake import DeltaTable

from recount.codec.header_columns import GivenHeaders
from recount.core.errors import Terminal
from recount.core.tables import Tables
from recount.kafka.connection import Connection
from recount.kafka.offsets import is_compacted, log_ranges, messages, partitions_of
from recount.kafka.record_headers import record_headers
from recount.lens.stretch import Stretch

_AT_ONCE = 50_000


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records of one partition in offset order, as they lie in the log."""

    partition: int
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[GivenHeaders] = ()


def records_of(stretch: Stretch, connection: Connection, tables: Tables) -> Iterator[Records]:
    """The records of ``stretch``, partition by partition, at most 50,000 at once.

    Raises ``Terminal`` where there are not as many as the stream has read.
    """
    since = _kafka_since(stretch, connection, tables)
    for partition, (start, end) in stretch.ranges.items():
        found = 0
        first = min(max(start, since[partition]), end)
        for records in _archived(tables, stretch.topic, partition, start, first):
            found += len(records.offsets)
            yield records
        for records in _on_kafka(connection, stretch.topic, partition, first, end):
            found += len(records.offsets)
            yield records
        if found != stretch.records[partition]:
            raise Terminal(
                f"the log of {stretch.topic}-{partition} is not what the stream has read",
                given=f"{found:,} records at offsets {start} to {end}",
                expected=f"{stretch.records[partition]:,} records, as its ledger says",
                remedy="records have expired, or a key was erased: look at a later interval (--start), or declare "
                "Archive(topic=...) and run it before records expire",
            )


def _kafka_since(stretch: Stretch, connection: Connection, tables: Tables) -> dict[int, int]:
    """From which offset on each partition is read from Kafka: nothing of a compacted topic that has an archive."""
    topic = stretch.topic
    kept = log_ranges(connection, partitions_of(connection, topic))
    if is_compacted(connection, topic) and DeltaTable.is_deltatable(tables.archive(topic)):
        return {partition: span.end for (_, partition), span in kept.items()}
    return {partition: span.start for (_, partition), span in kept.items()}


def _archived(tables: Tables, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
    path = tables.archive(topic)
    if start >= end or not DeltaTable.is_deltatable(path):
        return
    place, inside = pl.col("partition") == partition, pl.col("offset").is_between(start, end, closed="left")
    rows = pl.scan_delta(path).filter(place & inside).select("offset", "timestamp_ms", "key", "value", "headers")
    for part in rows.collect().sort("offset").iter_slices(_AT_ONCE):
        yield Records(
            partition=partition,
            offsets=part["offset"].to_list(),
            timestamps_ms=part["timestamp_ms"].to_list(),
            keys=part["key"].to_list(),
            values=part["value"].to_list(),
            headers=part["headers"].to_list(),
        )


def _on_kafka(connection: Connection, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
    found = messages(connection, topic, partition, start, end, "read_committed")
    while part := list(islice(found, _AT_ONCE)):
        yield _records(partition, part)


def _records(partition: int, found: Sequence[Message]) -> Records:
    return Records(
        partition=partition,
        offsets=[message.offset() or 0 for message in found],
        timestamps_ms=[message.timestamp()[1] for message in found],
        keys=[_raw(message.key()) for message in found],
        values=[_raw(message.value()) for message in found],
        headers=[[{"key": name, "value": _raw(value)} for name, value in record_headers(message)] for message in found],
    )


def _raw(found: str | bytes | None) -> bytes | None:
    return found.encode() if isinstance(found, str) else found
