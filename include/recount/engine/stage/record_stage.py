"""The map stage of a general topology: tasks decode records, set bad ones aside, and run the first operators.

A task has the records of one partition, and takes each as far as it goes by itself. On every path the driver goes on at
the first operator that needs other records, several inputs, or Python functions: these run where their errors keep
their type, and their actions happen once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from recount.declare.columns import IS_NULL, REVISION, STREAM_TIME, TIMESTAMP
from recount.declare.operators.keys_and_fields import Fields, columns_read, fields_read
from recount.declare.operators.nodes import Node, Sink, Source
from recount.declare.operators.stateless import Through
from recount.declare.topology import Topology, Written
from recount.engine.commit.output_records import encoded_values
from recount.engine.operators.batch_operator import READ_SCHEMA
from recount.engine.operators.batch_rows import (
    LOG_ORDER,
    META,
    OFFSET,
    ORDER,
    PARTITION,
    PLACE_IN_LOG,
    SUPERSEDED,
    TOPIC,
    WITHIN,
    as_written,
    nth,
    rows_schema,
    written_schema,
)
from recount.engine.operators.batch_stateless import RowByRow, alone
from recount.engine.operators.set_aside import NOTHING_RAISED, RAISED_SCHEMA, Ranges
from recount.engine.stage.map_stage import (
    ARROW_OUTPUT,
    IN_SECONDS,
    REJECTED_SCHEMA,
    Intake,
    Partition,
    partition_of,
    to_ipc,
)
from recount.engine.stage.polars_expressions import field_column, polars_type

VALUE = "__value"
"""In the rows of a sink that tasks run: the value of the output record, encoded."""
RECORD_KEY = "record_key_text"
SET_ASIDE = "set aside"
"""The table of the records for which an expression has a value that its type cannot hold (``RAISED_SCHEMA``)."""
REJECTED = "rejected"
WRITTEN = "__written"
"""Whether the record reached a sink that tasks run."""
READ: dict[str, pl.DataType] = {
    **{name: kind for name, kind in READ_SCHEMA.items() if name != TOPIC},
    WRITTEN: pl.Boolean(),
    IN_SECONDS: pl.Boolean(),
}


@dataclass(frozen=True)
class HandedOn:
    """The rows of ``node`` on their way to the driver, without what follows from their place in the log of ``topic``.

    ``read`` are the fields that anybody looks at; the others are null from here on. ``ordered``: the rows know which
    way they came, see ``nth``.
    """

    node: Node
    topic: str
    read: Fields
    ordered: bool

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns that are sent."""
        fields = {field_column(name): polars_type(self.node.fields[name]) for name in sorted(self.read)}
        place = (PARTITION, OFFSET, TIMESTAMP, IS_NULL, *([WITHIN] if self.ordered else []))
        return {**fields, **{name: META[name] for name in place}}

    def rows(self, sent: pl.DataFrame) -> pl.DataFrame:
        """``sent`` with all columns of rows."""
        placed = sent.with_columns(pl.lit(self.topic).alias(TOPIC)).with_columns(LOG_ORDER.alias(ORDER))
        return _completed(placed, self.node)


class RecordSteps:
    """The operators of ``topology`` that tasks run.

    ``sinks`` are those whose rows are done when they leave a task, ``handed_on`` are the rows that the driver goes on
    from: both by the name of the table in which they leave.
    """

    def __init__(self, topology: Topology) -> None:
        number = {node: place for place, node in enumerate(topology.nodes())}
        self._nodes: list[Node] = []
        for node in number:
            if isinstance(node, Source) or (isinstance(node, RowByRow) and node.input in self._nodes):
                self._nodes.append(node)
        self._ranges = {node: Ranges(node) for node in self._nodes}
        forks = topology.forks()
        self._forks = {reader: which for (reader, _), which in forks.items() if reader in self._nodes}
        self.sinks = {f"written {number[node]}": node for node in self._nodes if isinstance(node, Sink | Through)}
        readers, read = topology.readers(), fields_read(topology)
        self.handed_on = {
            f"rows {number[node]}": HandedOn(node, _topic_of(node), read[node], ordered=bool(forks))
            for node in self._nodes
            if any(reader not in self._nodes for reader, _ in readers[node])
        }
        self.columns = {source.topic.name: columns_read(topology, source.topic) for source in topology.sources}

    @property
    def nodes(self) -> frozenset[Node]:
        """The operators, sources among them."""
        return frozenset(self._nodes)

    @property
    def schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """The columns of every table that leaves."""
        written = {name: {**written_schema(sink.fields), VALUE: pl.Binary()} for name, sink in self.sinks.items()}
        handed_on = {name: rows.schema for name, rows in self.handed_on.items()}
        return {**written, **handed_on, SET_ASIDE: RAISED_SCHEMA}

    def taken(self, topic: str, good: pl.DataFrame) -> tuple[dict[str, pl.DataFrame], pl.Series]:
        """The tables that leave a task for the ``good`` records of a partition of ``topic``, in offset order.

        And the offsets of those that reached a sink here. A good record has its place, ``timestamp_ms``, ``is_null``,
        ``record_key_text`` and the declared fields that are read.
        """
        leaving: dict[Node, pl.DataFrame] = {}
        set_aside = [NOTHING_RAISED]
        for node in self._nodes:
            if isinstance(node, Source):
                if node.topic.name == topic:
                    leaving[node] = _entered(node, good)
            elif (above := node.inputs[0]) in leaving:
                assert isinstance(node, RowByRow)
                taken, beyond = self._ranges[node].checked(self._received(node, leaving[above]))
                leaving[node] = alone(node, taken)
                set_aside.append(beyond)
        sent = {name: _written(sink, leaving[sink]) for name, sink in self.sinks.items() if sink in leaving}
        for name, rows in self.handed_on.items():
            if rows.node in leaving:
                sent[name] = leaving[rows.node].select(list(rows.schema))
        sent[SET_ASIDE] = pl.concat(set_aside)
        arrived = [leaving[sink][OFFSET] for sink in self.sinks.values() if sink in leaving]
        return sent, pl.concat([pl.Series(OFFSET, dtype=META[OFFSET]), *arrived])

    def _received(self, node: Node, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(nth(pl.lit(self._forks[node]))) if node in self._forks else rows


def _topic_of(node: Node) -> str:
    while not isinstance(node, Source):
        [node] = node.inputs
    return node.topic.name


def _entered(source: Source, good: pl.DataFrame) -> pl.DataFrame:
    """The ``good`` records as they leave ``source``."""
    return _completed(good.with_columns(pl.col(RECORD_KEY).alias(field_column(source.key))), source)


def _completed(rows: pl.DataFrame, node: Node) -> pl.DataFrame:
    """``rows`` straight from the log, with all columns of rows that leave ``node``: null where nobody reads a field."""
    usual = {REVISION: pl.lit(0, META[REVISION]), SUPERSEDED: pl.lit(False), WITHIN: pl.lit("")}
    columns = (
        usual.get(name, pl.lit(None, kind)).alias(name)
        for name, kind in rows_schema(node.fields).items()
        if name not in rows.columns
    )
    return rows.with_columns(columns).select(list(rows_schema(node.fields)))


def _written(sink: Written, rows: pl.DataFrame) -> pl.DataFrame:
    written = as_written(rows, sink, origin=PLACE_IN_LOG)
    return written.with_columns(encoded_values(sink, written).alias(VALUE))


@dataclass(frozen=True, kw_only=True)
class RecordStage:
    """One batch's stage, shipped to every task.

    It leaves ``rejected``, per topic (``read_of``) every good record that was read, with its stream time, and the
    tables of ``steps``. ``keyed`` are the topics of which every record needs a key; ``stream_times`` are those of the
    partitions before the batch; ``latest_ms`` is the last event time that is not absurd: the batch's recorded time plus
    ``max_future``.
    """

    steps: RecordSteps
    sources: Mapping[str, Source]
    keyed: frozenset[str]
    stream_times: Mapping[Partition, int | None]
    latest_ms: int
    set_aside: Mapping[Partition, frozenset[int]] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The task: Arrow batches of one partition in, the tables out."""
        intake: Intake | None = None
        place: Partition = ("", -1)
        good, rejected = [], []
        for batch in batches:
            if batch.num_rows:
                place = partition_of(batch)
                intake = intake or self._intake(place)
                taken, bad = intake.take(batch)
                good.append(taken)
                rejected.append(bad)
        if intake:
            tables = {**self._tables(place, pl.concat(good)), REJECTED: pl.concat(rejected)}
            yield pa.record_batch([list(tables), [to_ipc(table) for table in tables.values()]], schema=ARROW_OUTPUT)

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The tables without rows, to which those of the tasks are added."""
        schemas = {**{read_of(topic): READ for topic in self.sources}, **self.steps.schemas, REJECTED: REJECTED_SCHEMA}
        return {name: [pl.DataFrame(schema=schema)] for name, schema in schemas.items()}

    def _intake(self, place: Partition) -> Intake:
        topic, _ = place
        return Intake(
            self.sources[topic],
            self.steps.columns[topic],
            needs_key=topic in self.keyed,
            latest_ms=self.latest_ms,
            set_aside=self.set_aside.get(place, frozenset()),
        )

    def _tables(self, place: Partition, good: pl.DataFrame) -> dict[str, pl.DataFrame]:
        topic, _ = place
        reached = pl.max_horizontal(pl.col(TIMESTAMP).cum_max(), pl.lit(self.stream_times.get(place), pl.Int64))
        key = pl.col(field_column(self.sources[topic].key))
        records = good.with_columns(key.alias(RECORD_KEY), pl.col("record_value").is_null().alias(IS_NULL))
        tables, written = self.steps.taken(topic, records)
        read = good.with_columns(reached.alias(STREAM_TIME), pl.col(OFFSET).is_in(written.implode()).alias(WRITTEN))
        return {**tables, read_of(topic): read.select(list(READ))}


def read_of(topic: str) -> str:
    """The name of the table of all good records of ``topic``."""
    return f"read {topic}"
