"""The raw log of an offset range without Spark, and its records as they reach the aggregation.

Kafka has what is newer, the topic's archive what is older. Records are decoded, and pass the stateless steps, as in the
stream's own tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from recount.advise.lens_model import NEVER, Longs, Modelled, Span
from recount.declare.columns import IS_NULL, TIMESTAMP
from recount.declare.operators.keys_and_fields import columns_read, topics_needing_a_key
from recount.engine.operators.batch_operator import Batch
from recount.engine.operators.batch_rows import OFFSET, PARTITION, REACHED, WITHIN
from recount.engine.operators.batch_stateless import StatelessOperator
from recount.engine.operators.folds import python_rows
from recount.engine.operators.set_aside import Ranges
from recount.engine.stage.map_stage import HEADERS, INPUT_COLUMNS, Intake
from recount.engine.stage.polars_expressions import field_column
from recount.engine.stage.record_stage import HandedOn
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import record_headers
from recount.kafka.offsets import is_compacted, log_ranges, messages, partitions_of
from recount.reference.records import Entry, Record
from recount.runtime.errors import Terminal
from recount.tables.places import Tables

_AT_ONCE = 50_000
_HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
_TYPES = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary(), _HEADERS)
LOG = pa.schema(list(zip((*INPUT_COLUMNS, HEADERS), _TYPES, strict=True)))
"""Records as they lie in the log; a batch has those of one partition, in offset order."""
_ALONE = Batch(reached={}, stood={}, times=pl.DataFrame(), known=frozenset(), awake=frozenset())
"""The steps look at each record by itself."""


def records_of(span: Span, connection: Connection, tables: Tables) -> Iterator[pa.RecordBatch]:
    """The records of ``span``, partition by partition, at most 50,000 at once.

    Raises ``Terminal`` where there are not as many as the stream has read.
    """
    kept = log_ranges(connection, partitions_of(connection, span.topic))
    is_archived = DeltaTable.is_deltatable(tables.archive(span.topic))
    # nothing of a compacted topic that has an archive
    is_from_archive = is_archived and is_compacted(connection, span.topic)
    for partition, (start, end) in span.ranges.items():
        on_kafka = kept[span.topic, partition]
        first = min(max(start, on_kafka.end if is_from_archive else on_kafka.start), end)
        older = _archived(tables, span.topic, partition, start, first) if is_archived and start < first else ()
        newer = _on_kafka(connection, span.topic, partition, first, end)
        found, expected = 0, int(span.parts.filter(pl.col("partition") == partition)["records"].sum())
        for records in chain(older, newer):
            found += records.num_rows
            yield records
        if found != expected:
            raise Terminal(
                f"the log of {span.topic}-{partition} is not what the stream has read",
                given=f"{found:,} records at offsets {start} to {end}",
                expected=f"{expected:,} records, as its ledger says",
                remedy="records have expired, or a key was erased: look at a later interval (--start), or declare "
                "Archive(topic=...) and run it before records expire",
            )


def _archived(tables: Tables, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    place, inside = pl.col("partition") == partition, pl.col("offset").is_between(start, end, closed="left")
    rows = pl.scan_delta(tables.archive(topic)).filter(place & inside).with_columns(topic=pl.lit(topic))
    found = rows.select(LOG.names).collect().sort("offset")
    yield from found.to_arrow().cast(LOG).to_batches(_AT_ONCE)


def _on_kafka(connection: Connection, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    found = messages(connection, topic, partition, start, end, "read_committed")
    while part := list(islice(found, _AT_ONCE)):
        rows = [
            (
                *(topic, partition, one.offset(), one.timestamp()[1], one.key(), one.value()),
                [{"key": name, "value": value} for name, value in record_headers(one)],
            )
            for one in part
        ]
        columns = zip(zip(*rows, strict=True), LOG.types, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in columns], schema=LOG)


@dataclass(frozen=True, kw_only=True)
class Reaching:
    """The records that reach the aggregation with a key, in the order of (partition, offset).

    ``rows`` has of each, beside its fields, ``partition``, ``offset``, ``time_ms``; ``own_ms``, the stream time of its
    own partition at its offset, by which Recount judges; ``key``, an index of ``keys``; ``batch``, in which the other
    engines read it; ``is_judged``: whether it is asked about. ``seen_ms`` is the largest event time of every batch
    among all good records, of which steps may have dropped some. ``read`` is how many records were read.
    """

    modelled: Modelled
    rows: pl.DataFrame
    keys: Sequence[str | int]
    seen_ms: Longs
    read: int

    def column(self, name: str) -> Longs:
        """Return a column of ``rows``."""
        return self.rows[name].to_numpy()

    def records(self, rows: Sequence[int]) -> Iterator[Record]:
        """The records of ``rows``, as they reach the aggregation."""
        chosen, topic = self.rows[rows], self.modelled.source.topic.name
        places = chosen.select("partition", "offset", "time_ms", IS_NULL).iter_rows()
        fields = python_rows(chosen, self.modelled.aggregate.input.fields)
        for row, (partition, offset, time_ms, is_null) in zip(fields, places, strict=True):
            entry = Entry(topic=topic, partition=partition, offset=offset, timestamp_ms=time_ms)
            order = (topic, partition, offset)
            yield Record(row=row, timestamp_ms=time_ms, order=order, entry=entry, is_null=is_null)


def reaching(modelled: Modelled, span: Span, log: Iterable[pa.RecordBatch]) -> Reaching:
    """Decode ``log`` and send it down the steps, partition by partition in offset order.

    A record without the key that the aggregation needs advances no clock; one that is filtered advances Recount's.
    """
    steps, key = _Steps(modelled, span), field_column(modelled.aggregate.key)
    read, good, rows = 0, [], []
    for records in log:
        read += records.num_rows
        taken, passed = steps.taken(records)
        good.append(taken)
        rows.append(passed)
    entries, reached = pl.concat(good), pl.concat(rows)
    keyed = reached.filter(pl.col(key).is_not_null())
    place, time = [PARTITION, OFFSET], pl.col("time_ms")
    keyless = reached.join(keyed, place, "anti").select(place).unique().with_columns(is_keyless=pl.lit(value=True))
    stood = pl.DataFrame(list(span.reached_ms.items()), {PARTITION: pl.Int32(), "stood_ms": pl.Int64()}, orient="row")
    clocked = entries.join(keyless, place, "left", maintain_order="left").join(
        stood, PARTITION, "left", maintain_order="left"
    )
    advancing = pl.when(pl.col("is_keyless").is_null()).then(time)
    own_ms = pl.max_horizontal(advancing.cum_max().forward_fill().over(PARTITION), "stood_ms")
    keys = keyed[key].unique(maintain_order=True)
    seen = entries.group_by("batch").agg(time.max())
    seen_ms = np.full(span.batches, NEVER, np.int64)
    seen_ms[seen["batch"].to_numpy()] = seen["time_ms"].to_numpy()
    timed = clocked.with_columns(own_ms=own_ms).drop("is_keyless", "stood_ms")
    numbered = pl.DataFrame({key: keys}).with_row_index("key").with_columns(pl.col("key").cast(pl.Int64))
    found = keyed.join(timed, place, maintain_order="left").join(numbered, key, maintain_order="left")
    return Reaching(
        modelled=modelled, rows=found.with_row_index("row"), keys=keys.to_list(), seen_ms=seen_ms, read=read
    )


class _Steps:
    """Decoding, and the stateless steps from the source to the aggregation."""

    def __init__(self, modelled: Modelled, span: Span) -> None:
        topology, self._source = modelled.topology, modelled.source
        topic, by_offset = self._source.topic, ["offset", "batch"]
        self._max_future_ms = topology.max_future_ms
        self._intake = Intake(
            self._source,
            columns_read(topology, topic),
            needs_key=topic.name in topics_needing_a_key(topology),
            latest_ms=int(span.parts.select(pl.col("recorded_ms").max()).item()) + self._max_future_ms,
        )
        self._entered = HandedOn(self._source, topic.name, frozenset(), ordered=False)
        self._steps = [(Ranges(step), StatelessOperator(node=step)) for step in modelled.steps]
        own = span.parts.select("partition", "offset", "recorded_ms", is_judged=pl.col("recorded_ms") >= span.start_ms)
        self._own, self._cuts = (one.sort("offset", maintain_order=True) for one in (own, span.cuts.sort(by_offset)))

    def taken(self, records: pa.RecordBatch) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The places, times and batches of the good ones of ``records``; and what the steps make of them.

        Good is a record that can be decoded, has the key that is needed, and is no later than its own batch says it may
        be. Nothing is made of a record for which a function raised.
        """
        good, _ = self._intake.take(records)
        for parts in (self._own, self._cuts):
            good = good.join_asof(parts, on=OFFSET, by=PARTITION, check_sortedness=False)
        good = good.filter(pl.col(TIMESTAMP) <= pl.col("recorded_ms") + self._max_future_ms)
        is_null = pl.col("record_value").is_null()
        rows = self._entered.rows(good.with_columns(is_null.alias(IS_NULL), pl.col(TIMESTAMP).alias(REACHED)))
        raised = list[pl.DataFrame]()
        for ranges, step in self._steps:
            rows, beyond = ranges.checked(rows)
            output = step.process(_ALONE, [rows])
            rows, raised = output.rows, [*raised, beyond, output.raised]
        for one in raised:
            rows = rows.join(one, OFFSET, "anti", maintain_order="left")
        entries = good.select(PARTITION, OFFSET, "batch", "is_judged", time_ms=TIMESTAMP)
        fields = [name for name in rows.columns if name.startswith(field_column(""))]
        return entries, rows.select(*fields, PARTITION, OFFSET, WITHIN, IS_NULL)
