"""The raw log of an offset range without Spark, and the decoded fields of its good records, kept as columns.

Kafka has what is newer, the topic's archive what is older. Stateless steps run on the fields of each record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from confluent_kafka import Message
from deltalake import DeltaTable

from recount.advise.lens.lens_stretch import Longs, Modelled, Stretch
from recount.declare.operators.keys_and_fields import columns_read, topics_needing_a_key
from recount.declare.operators.stateless import Repartition
from recount.formats.record_decoder import GivenHeaders, RecordDecoder
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import record_headers
from recount.kafka.offsets import is_compacted, log_ranges, messages, partitions_of
from recount.reference.record_clock import Clock, StatelessOperator
from recount.reference.records import Entry, Journal, Record
from recount.runtime.errors import Terminal
from recount.tables.places import Tables

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


@dataclass(frozen=True, kw_only=True)
class _Part:
    offsets: Longs
    columns: Mapping[str, pa.Array]
    keys: list[str | None]
    is_null: list[bool]


class DecodedFields:
    """The records that were taken; those that are asked for again go through the steps again."""

    def __init__(self, modelled: Modelled) -> None:
        self._topic, self._key = modelled.source.topic, modelled.source.key
        self._is_key_needed = self._topic.name in topics_needing_a_key(modelled.topology)
        self._parts: dict[int, list[_Part]] = {}
        self._journal = Journal()
        self._decoder = RecordDecoder(self._topic, columns_read(modelled.topology, self._topic))
        clock = Clock([self._topic.name])
        self._steps = [
            StatelessOperator(node=step, clock=clock, journal=self._journal)
            for step in modelled.steps
            if not isinstance(step, Repartition)
        ]

    def take(self, records: Records, latest_ms: list[int]) -> Iterator[tuple[int, int, list[Record]]]:
        """Yield the index, the event time and the outcome of the steps of each good record of ``records``.

        A record is bad that cannot be decoded, lacks the key that is needed, or is later than ``latest_ms``. A key that
        is no text counts as none.
        """
        keys = pa.array(records.keys, pa.binary())
        decoded = self._decoder.decode(records.values, keys, records.headers)
        bad = {fault.index for fault in decoded.faults}
        part = _Part(
            offsets=np.array(records.offsets, np.int64),
            columns=decoded.columns,
            keys=decoded.keys.to_pylist(),
            is_null=[value is None for value in records.values],
        )
        self._parts.setdefault(records.partition, []).append(part)
        named = self._topic.event_time
        times = records.timestamps_ms if named is None else decoded.columns[named].to_pylist()
        names, columns = list(part.columns), [column.to_pylist() for column in part.columns.values()]
        for index, (key, time_ms) in enumerate(zip(part.keys, times, strict=True)):
            is_bad = index in bad or (self._is_key_needed and key is None)
            if not is_bad and time_ms is not None and 0 <= time_ms <= latest_ms[index]:
                row = {name: column[index] for name, column in zip(names, columns, strict=True)}
                place = (records.partition, records.offsets[index])
                yield index, time_ms, self._passed(place, time_ms, {**row, self._key: key}, part.is_null[index])

    def made(self, partition: int, offsets: Longs, times_ms: Sequence[int]) -> Iterator[list[Record]]:
        """Yield the outcome of the steps of each of these taken records of ``partition``; ``offsets`` do not fall."""
        times = iter(times_ms)
        for part in self._parts[partition]:
            mine = offsets[(offsets >= part.offsets[0]) & (offsets <= part.offsets[-1])]
            at = np.searchsorted(part.offsets, mine)
            names, columns = list(part.columns), [column.take(at).to_pylist() for column in part.columns.values()]
            for nth, (index, offset) in enumerate(zip(at.tolist(), mine.tolist(), strict=True)):
                row = {name: column[nth] for name, column in zip(names, columns, strict=True)}
                yield self._passed(
                    (partition, offset), next(times), {**row, self._key: part.keys[index]}, part.is_null[index]
                )

    def _passed(self, place: tuple[int, int], time_ms: int, row: dict[str, Any], is_null: bool) -> list[Record]:
        """Return the outcome of the steps, nothing where a function raised."""
        entry = Entry(topic=self._topic.name, partition=place[0], offset=place[1], timestamp_ms=time_ms)
        order = (self._topic.name, *place)
        found = [Record(row=row, timestamp_ms=time_ms, order=order, entry=entry, is_null=is_null)]
        for step in self._steps:
            found = [made for record in found for made in step.receive(record, 0)]
        return [] if entry in self._journal.raised else found
