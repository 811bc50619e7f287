"""The raw log of an offset range without Spark, and its records as they reach the aggregation.

Kafka has what is newer, the topic's archive what is older. Stateless steps run on the fields of each record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from recount.advise.lens_model import NEVER, Longs, Modelled, Span
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


def records_of(span: Span, connection: Connection, tables: Tables) -> Iterator[Records]:
    """The records of ``span``, partition by partition, at most 50,000 at once.

    Raises ``Terminal`` where there are not as many as the stream has read.
    """
    kept = log_ranges(connection, partitions_of(connection, span.topic))
    is_archived = DeltaTable.is_deltatable(tables.archive(span.topic))
    # nothing of a compacted topic that has an archive
    is_from_archive = is_archived and is_compacted(connection, span.topic)
    since = {partition: one.end if is_from_archive else one.start for (_, partition), one in kept.items()}
    for partition, (start, end) in span.ranges.items():
        found = 0
        first = min(max(start, since[partition]), end)
        older = _archived(tables, span.topic, partition, start, first) if is_archived and start < first else ()
        for records in chain(older, _on_kafka(connection, span.topic, partition, first, end)):
            found += len(records.offsets)
            yield records
        if found != span.records[partition]:
            raise Terminal(
                f"the log of {span.topic}-{partition} is not what the stream has read",
                given=f"{found:,} records at offsets {start} to {end}",
                expected=f"{span.records[partition]:,} records, as its ledger says",
                remedy="records have expired, or a key was erased: look at a later interval (--start), or declare "
                "Archive(topic=...) and run it before records expire",
            )


def _archived(tables: Tables, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
    place, inside = pl.col("partition") == partition, pl.col("offset").is_between(start, end, closed="left")
    rows = (
        pl.scan_delta(tables.archive(topic))
        .filter(place & inside)
        .select("offset", "timestamp_ms", "key", "value", "headers")
    )
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
        yield Records(
            partition=partition,
            offsets=[message.offset() or 0 for message in part],
            timestamps_ms=[message.timestamp()[1] for message in part],
            keys=[_raw(message.key()) for message in part],
            values=[_raw(message.value()) for message in part],
            headers=[[{"key": name, "value": _raw(value)} for name, value in record_headers(one)] for one in part],
        )


def _raw(found: str | bytes | None) -> bytes | None:
    return found.encode() if isinstance(found, str) else found


@dataclass(frozen=True, kw_only=True)
class GoodRecords:
    """The good records of one partition, in offset order; ``fields`` have the key among them.

    Good is a record that can be decoded, has the key that is needed, and is no later than it may be.
    """

    partition: int
    offsets: Longs
    times_ms: Longs
    fields: pa.RecordBatch
    is_null: Sequence[bool]

    def only(self, at: Longs) -> GoodRecords:
        """Return those at these places."""
        return GoodRecords(
            partition=self.partition,
            offsets=self.offsets[at],
            times_ms=self.times_ms[at],
            fields=self.fields.take(at),
            is_null=[self.is_null[place] for place in at],
        )


class Steps:
    """Decoding, and the stateless steps from the source to the aggregation."""

    def __init__(self, modelled: Modelled) -> None:
        self._topic, self._key = modelled.source.topic, modelled.source.key
        self._is_key_needed = self._topic.name in topics_needing_a_key(modelled.topology)
        self._journal = Journal()
        self._decoder = RecordDecoder(self._topic, columns_read(modelled.topology, self._topic))
        clock = Clock([self._topic.name])
        self._steps = [
            StatelessOperator(node=step, clock=clock, journal=self._journal)
            for step in modelled.steps
            if not isinstance(step, Repartition)
        ]

    def good(self, records: Records, latest_ms: Longs) -> GoodRecords:
        """Return the good ones of ``records``, none later than its ``latest_ms``. A key that is no text is none."""
        decoded = self._decoder.decode(records.values, pa.array(records.keys, pa.binary()), records.headers)
        named = self._topic.event_time
        times = pa.array(records.timestamps_ms, pa.int64()) if named is None else decoded.columns[named]
        times_ms = times.fill_null(-1).to_numpy(zero_copy_only=False)
        is_good = (times_ms >= 0) & (times_ms <= latest_ms)
        is_good[[fault.index for fault in decoded.faults]] = False
        if self._is_key_needed:
            is_good &= decoded.keys.is_valid().to_numpy(zero_copy_only=False)
        everything = GoodRecords(
            partition=records.partition,
            offsets=np.array(records.offsets, np.int64),
            times_ms=times_ms,
            fields=pa.RecordBatch.from_pydict({**decoded.columns, self._key: decoded.keys}),
            is_null=[value is None for value in records.values],
        )
        return everything.only(np.flatnonzero(is_good))

    def passed(self, records: GoodRecords) -> Iterator[list[Record]]:
        """Yield what the steps make of each record, nothing where a function raised."""
        places = zip(records.offsets.tolist(), records.times_ms.tolist(), records.is_null, strict=True)
        for row, (offset, time_ms, is_null) in zip(records.fields.to_pylist(), places, strict=True):
            entry = Entry(topic=self._topic.name, partition=records.partition, offset=offset, timestamp_ms=time_ms)
            order = (self._topic.name, records.partition, offset)
            found = [Record(row=row, timestamp_ms=time_ms, order=order, entry=entry, is_null=is_null)]
            for step in self._steps:
                found = [made for record in found for made in step.receive(record, 0)]
            yield [] if entry in self._journal.raised else found


@dataclass(frozen=True, kw_only=True)
class Reaching:
    """The records that reach the aggregation with a key, in the order of (partition, offset).

    ``rows`` has a row of integers for each. A flat-map can make several of a record: ``number`` counts them. ``own_ms``
    is the stream time of the record's own partition at its offset, by which Recount judges. ``key`` is an index of
    ``keys``, ``batch`` the number of its batch. ``seen_ms`` is the largest event time of every batch among all records
    that can be decoded, of which steps may have dropped some. ``read`` is how many records were read.
    """

    rows: pl.DataFrame
    keys: Sequence[str | int]
    seen_ms: Longs
    read: int
    steps: Steps
    good: Sequence[GoodRecords]

    def column(self, name: str) -> Longs:
        """Return a column of ``rows``."""
        return self.rows[name].to_numpy()

    @property
    def keys_in_several_partitions(self) -> int:
        """How many keys have records in more than one source partition."""
        return self.rows.group_by("key").agg(pl.col("partition").n_unique()).filter(pl.col("partition") > 1).height

    def records(self, rows: Sequence[int]) -> Iterator[Record]:
        """The records of ``rows``, which rise, as they reach the aggregation."""
        wanted = self.rows[rows]
        for part in self.good:
            mine = wanted.filter(
                pl.col("partition") == part.partition, pl.col("offset").is_between(*part.offsets[[0, -1]])
            )
            made = self.steps.passed(part.only(np.searchsorted(part.offsets, mine["offset"].to_numpy())))
            yield from (one[number] for one, number in zip(made, mine["number"], strict=True))


_COLUMNS = ("partition", "offset", "number", "time_ms", "own_ms", "key", "batch")


def reaching(modelled: Modelled, span: Span, log: Iterable[Records]) -> Reaching:
    """Decode ``log`` and send it down the steps, partition by partition in offset order.

    A record without the key that the aggregation needs advances no clock; one that is filtered advances Recount's.
    """
    steps, key_name = Steps(modelled), modelled.aggregate.key
    codes: dict[str | int, int] = {}
    cells = array("q")
    reached_ms = dict(span.reached_ms)
    seen_ms, read, kept = np.full(span.batches, NEVER, np.int64), 0, []
    for records in log:
        read += len(records.offsets)
        partition, offsets = records.partition, np.array(records.offsets, np.int64)
        recorded = np.searchsorted(span.recorded_bounds[partition][1:], offsets, "right")
        good = steps.good(records, span.recorded_ms[recorded] + modelled.topology.max_future_ms)
        if not len(good.offsets):
            continue
        kept.append(good)
        batches = np.searchsorted(span.bounds[partition][1:], good.offsets, "right")
        np.maximum.at(seen_ms, batches, good.times_ms)
        places = zip(good.offsets.tolist(), good.times_ms.tolist(), batches.tolist(), strict=True)
        for (offset, time_ms, batch), made in zip(places, steps.passed(good), strict=True):
            keys = [record.row[key_name] for record in made]
            if keys and all(key is None for key in keys):
                continue
            own_ms = reached_ms[partition] = max(time_ms, reached_ms.get(partition, time_ms))
            for number, key in enumerate(keys):
                if key is not None:
                    code = codes.setdefault(key, len(codes))
                    cells.extend((partition, offset, number, time_ms, own_ms, code, batch))
    table = np.array(cells, np.int64).reshape(-1, len(_COLUMNS))
    rows = pl.DataFrame({name: table[:, place] for place, name in enumerate(_COLUMNS)}).with_row_index("row")
    return Reaching(rows=rows, keys=list(codes), seen_ms=seen_ms, read=read, steps=steps, good=kept)
