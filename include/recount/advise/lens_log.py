"""The part of a stream's log that the lens looks at, and its records as they reach the aggregation.

Modelled are topologies with one source, stateless steps, one windowed aggregation. The log is read without Spark: Kafka
has what is newer, the topic's archive what is older. Records are decoded, and pass the stateless steps, as in the
stream's own tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from recount.declare.columns import IS_NULL, TIMESTAMP
from recount.declare.operators.keys_and_fields import columns_read, fields_read, topics_needing_a_key
from recount.declare.operators.nodes import (
    Filter,
    Node,
    SelectKey,
    Sink,
    Source,
    Stateless,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.stateless import FlatMap, Peek, Repartition, Select
from recount.declare.topology import Topology
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.engine.operators.batch_operator import Batch
from recount.engine.operators.batch_rows import OFFSET, PARTITION, REACHED, WITHIN
from recount.engine.operators.batch_stateless import StatelessOperator
from recount.engine.operators.folds import python_rows
from recount.engine.operators.set_aside import Ranges
from recount.engine.stage.intake import HEADERS, INPUT_COLUMNS, Intake
from recount.engine.stage.polars_expressions import field_column
from recount.engine.stage.record_stage import HandedOn
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import record_headers
from recount.kafka.offsets import is_compacted, log_ranges, messages, partitions_of
from recount.reference.records import Entry, Record
from recount.runtime.errors import Terminal
from recount.runtime.times import told_window
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

_STEPS = (Filter, WithFields, SelectKey, Select, FlatMap, Repartition)
Longs = npt.NDArray[np.int64]
NEVER = int(np.iinfo(np.int64).min)
"""The clock of which nothing has been seen yet."""
CUTS = {"partition": pl.Int32(), "offset": pl.Int64(), "batch": pl.Int64()}
"""From which offset of each partition on a batch reads, until its next cut."""
PARTS = {**CUTS, "end": pl.Int64(), "records": pl.Int64(), "recorded_ms": pl.Int64()}
"""What the stream's own batches have read of each partition, and when they were recorded."""


class NoModel(Terminal):
    """A topology with an operator of which there is no model of the other engines."""


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """The way of a record from ``source`` over ``steps`` to ``aggregate``; what comes below it is not looked at.

    Actions are no steps: nothing is done to the world when a log is looked at.
    """

    topology: Topology
    source: Source
    steps: tuple[Stateless, ...]
    aggregate: WindowedAggregate
    windows: TimeWindows | SessionWindows

    @classmethod
    def of(cls, topology: Topology) -> Modelled:
        """The way through ``topology``; raises ``NoModel`` with the name of the operator that has no model."""
        aggregates = [node for node in topology.nodes() if isinstance(node, WindowedAggregate)]
        for node in topology.nodes():
            # a Foreach is a Peek
            if node not in aggregates and not isinstance(node, (Source, Sink, Peek, *_STEPS)):
                raise _no_model(topology, str(node))
        if len(aggregates) != 1:
            raise _no_model(topology, f"{len(aggregates)} windowed aggregations")
        [aggregate] = aggregates
        way: list[Node] = [aggregate]
        while way[-1].inputs:
            way += way[-1].inputs
        source, steps, windows = way[-1], [one for one in way[:0:-1] if isinstance(one, _STEPS)], aggregate.windows
        assert isinstance(source, Source), "no other operator is without an input"
        keyed = [number for number, step in enumerate(steps) if isinstance(step, SelectKey)]
        spread = [number for number, step in enumerate(steps) if isinstance(step, Repartition)]
        if isinstance(windows, GlobalWindow | LastN):
            raise _no_model(topology, f"{aggregate}: no record is late for it in any engine")
        if isinstance(windows, SlidingWindows):
            raise _no_model(topology, str(aggregate))
        if isinstance(windows, SessionWindows) and windows.max_duration_ms is not None:
            raise _no_model(topology, f"{windows}: neither of the others has a longest duration of sessions")
        if spread and (len(spread) > 1 or spread[0] < max(keyed, default=0)):
            raise _no_model(topology, f"{steps[spread[0]]}, after which records are spread once more")
        if any(one.topic != source.topic for one in topology.sources):
            raise _no_model(topology, f"{len(topology.sources)} source topics")
        return cls(topology=topology, source=source, steps=tuple(steps), aggregate=aggregate, windows=windows)

    @property
    def is_spread_by_key(self) -> bool:
        """Whether Kafka Streams would send the records through a repartition topic."""
        return any(isinstance(step, SelectKey | Repartition) for step in self.steps)

    @property
    def declared_tasks(self) -> int | None:
        """Into how many partitions they would be spread; None: as many as the source topic has."""
        return next((step.partitions for step in self.steps if isinstance(step, Repartition)), None)


def _no_model(topology: Topology, given: str) -> NoModel:
    return NoModel.of("lens-without-a-model", given=given, name=topology.name)


@dataclass(frozen=True, kw_only=True)
class Span:
    """The offsets of each partition of the source topic that are read, and what the ledger says of them.

    ``parts`` (``PARTS``) are the batches of the stream. Those recorded from ``start_ms`` on are asked about; those
    before are read because they are in the same windows. ``cuts`` (``CUTS``) are the ``batches`` in which the other
    engines are taken to read. ``reached_ms`` has the stream time of each partition before the first offset. Windows
    that start before ``whole_since_ms`` may have records that are not read.
    """

    topic: str
    parts: pl.DataFrame
    cuts: pl.DataFrame
    reached_ms: dict[int, int]
    start_ms: int = NEVER
    whole_since_ms: int = NEVER

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """The offsets ``start`` <= o < ``end`` of each partition."""
        read = self.parts.group_by("partition").agg(pl.col("offset").min(), pl.col("end").max()).sort("partition")
        return {partition: (start, end) for partition, start, end in read.iter_rows()}

    @property
    def batches(self) -> int:
        """In how many batches the other engines are taken to read."""
        return int(self.cuts["batch"].n_unique())

    def in_batches_of(self, batch_records: int) -> Span:
        """The same offsets in batches of ``batch_records``, as Spark cuts what is there with ``maxOffsetsPerTrigger``.

        Of each batch a partition gets its share of what is left: rounded down, but up where it is less than one.
        """
        spans, cuts, batch = self.ranges, list[tuple[int, int, int]](), 0
        at = {p: start for p, (start, _) in spans.items()}
        while left := sum(end - at[p] for p, (_, end) in spans.items()):
            for p, (_, end) in spans.items():
                share = batch_records * (end - at[p]) / left
                cuts.append((p, at[p], batch))
                at[p] = min(end, at[p] + (int(share) if share >= 1 else int(share > 0)))
            batch += 1
        return replace(self, cuts=pl.DataFrame(cuts, CUTS, orient="row"))


def span_of(modelled: Modelled, newest_first: Iterable[BatchProof], start_ms: int | None, end_ms: int | None) -> Span:
    """The batches recorded from ``start_ms`` on and before ``end_ms``, and those before them that share windows.

    Of sessions, which have no longest duration, all before them. Reads ``newest_first`` no further than it must;
    raises ``Terminal`` where no record was read in the interval.
    """
    judged: list[BatchProof] = []
    earlier: list[BatchProof] = []
    before: BatchProof | None = None
    needed_ms = NEVER
    for proof in newest_first:
        if end_ms is not None and proof.batch_timestamp_ms >= end_ms:
            continue
        if start_ms is None or proof.batch_timestamp_ms >= start_ms:
            judged.append(proof)
            continue
        if not earlier:
            needed_ms = _needed_ms(modelled, proof)
        if max(_reached(proof).values(), default=NEVER) < needed_ms:
            before = proof
            break
        earlier.append(proof)
    if not any(part.records for proof in judged for part in proof.partitions):
        raise Terminal.of(
            "lens-of-an-empty-interval",
            given=f"recorded in {told_window(start_ms, end_ms)}",
            name=modelled.topology.name,
        )
    read = [one for one in reversed([*judged, *earlier]) if any(part.start < part.end for part in one.partitions)]
    rows = [
        (part.partition, part.start, batch, part.end, part.records, one.batch_timestamp_ms)
        for batch, one in enumerate(read)
        for part in one.partitions
    ]
    parts = pl.DataFrame(rows, PARTS, orient="row")
    return Span(
        topic=modelled.source.topic.name,
        parts=parts,
        cuts=parts.select(*CUTS),
        start_ms=NEVER if start_ms is None else start_ms,
        reached_ms={} if before is None else _reached(before),
        whole_since_ms=needed_ms if before is not None else NEVER,
    )


def _needed_ms(modelled: Modelled, proof: BatchProof) -> int:
    """No record that comes after ``proof`` and is on time is in a window that starts earlier."""
    windows, reached = modelled.windows, _reached(proof)
    if not isinstance(windows, TimeWindows) or len(reached) < len(proof.partitions):
        return NEVER
    return min(reached.values()) - windows.grace_ms - windows.size_ms


def _reached(proof: BatchProof) -> dict[int, int]:
    return {part.partition: part.stream_time_ms for part in proof.partitions if part.stream_time_ms is not None}


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
            raise Terminal.of(
                "lens-of-another-log",
                given=f"{found:,} records at offsets {start} to {end}",
                topic=span.topic,
                partition=partition,
                expected=expected,
            )


def _archived(tables: Tables, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    place, inside = pl.col("partition") == partition, pl.col("offset").is_between(start, end, closed="left")
    rows = pl.scan_delta(tables.archive(topic)).filter(place & inside).with_columns(topic=pl.lit(topic))
    found = rows.select(LOG.names).collect().sort("offset")
    yield from found.to_arrow().cast(LOG).to_batches(_AT_ONCE)


def _on_kafka(connection: Connection, topic: str, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    found = messages(connection, topic, partition, start, end, "read_committed")
    while part := list(islice(found, _AT_ONCE)):
        rows = []
        for one in part:
            headers = [{"key": name, "value": value} for name, value in record_headers(one) or ()]
            row = (topic, partition, one.offset(), one.timestamp()[1], one.key(), one.value(), headers)
            rows.append(dict(zip(LOG.names, row, strict=True)))
        yield pa.RecordBatch.from_pylist(rows, LOG)


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
        return self.rows[name].to_numpy()

    def records(self, rows: Sequence[int]) -> Iterator[Record]:
        """The records of ``rows``, as they reach the aggregation."""
        chosen, topic = self.rows[rows], self.modelled.source.topic.name
        places = chosen.select("partition", "offset", "time_ms", IS_NULL).iter_rows()
        fields = self.modelled.aggregate.input.fields.items()
        read = python_rows(chosen, {name: kind for name, kind in fields if field_column(name) in chosen.columns})
        for row, (partition, offset, time_ms, is_null) in zip(read, places, strict=True):
            entry = Entry(topic=topic, partition=partition, offset=offset, timestamp_ms=time_ms)
            yield Record(row=row, timestamp_ms=time_ms, order=(topic, partition, offset), entry=entry, is_null=is_null)


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
    clocked = entries.join(keyless, place, "left", maintain_order="left")
    clocked = clocked.join(stood, PARTITION, "left", maintain_order="left")
    advancing = pl.when(pl.col("is_keyless").is_null()).then(time)
    own_ms = pl.max_horizontal(advancing.cum_max().forward_fill().over(PARTITION), "stood_ms")
    keys = keyed[key].unique(maintain_order=True)
    seen_ms = np.full(span.batches, NEVER, np.int64)
    np.maximum.at(seen_ms, entries["batch"].to_numpy(), entries["time_ms"].to_numpy())
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
        topic, by_offset, aggregate = self._source.topic, ["offset", "batch"], modelled.aggregate
        self._read = list(map(field_column, sorted({aggregate.key, *fields_read(topology)[aggregate.input]})))
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
        return entries, rows.select(*self._read, PARTITION, OFFSET, WITHIN, IS_NULL)
