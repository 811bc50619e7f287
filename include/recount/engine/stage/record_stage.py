"""The map stage of a general topology: tasks decode records, set bad ones aside, and run the first operators.

A task has the records of one partition, and takes each as far as it goes by itself. On every path the driver goes on at
the first operator that needs other records, several inputs, or Python functions: these run where their errors keep
their type, and their actions happen once.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from recount.declare.columns import IS_NULL, REVISION, TIMESTAMP
from recount.declare.operators.event_time import is_held_back, records_from
from recount.declare.operators.joins import StreamStreamJoin
from recount.declare.operators.keys_and_fields import Fields, columns_read, fields_read
from recount.declare.operators.nodes import Node, SelectKey, Sink, Source, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate, Process
from recount.declare.operators.stateless import Select, Through
from recount.declare.topology import Topology, Written
from recount.engine.commit.output_records import RECORD_SCHEMA, encoded_values, record_columns, records_as
from recount.engine.commit.stream_tables import FILES, FILES_SCHEMA, Order, filed, output_name
from recount.engine.operators.batch_operator import TIMES_SCHEMA
from recount.engine.operators.batch_rows import (
    ENTRY,
    LOG_ORDER,
    META,
    OFFSET,
    ORDER,
    PARTITION,
    PLACE_IN_LOG,
    REACHED,
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
from recount.engine.stage.intake import (
    ARROW_OUTPUT,
    IN_SECONDS,
    REJECTED_SCHEMA,
    Intake,
    Partition,
    partition_of,
    to_ipc,
)
from recount.engine.stage.polars_expressions import compiled, field_column, polars_type
from recount.engine.stage.reduction import reductions
from recount.runtime.errors import Terminal

VALUE = "__value"
"""In the rows of a sink that tasks run: the value of the output record, encoded."""
RECORD_KEY = "record_key_text"
SET_ASIDE = "set aside"
"""The table of the records for which an expression has a value that its type cannot hold (``RAISED_SCHEMA``)."""
REJECTED = "rejected"
WRITTEN = "written"
"""The table of the records that reached a sink or windows in tasks, where another operator may say their fate."""
TOTALS, GOOD, IN_TASKS = "totals", "good", ("counted", "filtered", "dead_lettered")
TOTALS_SCHEMA: dict[str, pl.DataType] = {
    **{name: META[name] for name in (TOPIC, PARTITION, REACHED)},
    **dict.fromkeys((GOOD, *IN_TASKS, IN_SECONDS), pl.Int64()),
}
"""Of a partition the largest event time of its good records, how many there are, and how many met their fate here.

Filtered are those of which no row leaves; counted those that reached a sink or windows, but not those in ``WRITTEN``,
of which rows leave as well; dead-lettered those in ``REJECTED``.
"""
TIMES = "times"


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
        fields = {field_column(name): polars_type(self.node.fields[name]) for name in sorted(self.read)}
        place = (PARTITION, OFFSET, TIMESTAMP, REACHED, IS_NULL, *([WITHIN] if self.ordered else []))
        return {**fields, **{name: META[name] for name in place}}

    def rows(self, sent: pl.DataFrame) -> pl.DataFrame:
        """``sent`` with all columns of rows."""
        placed = sent.with_columns(pl.lit(self.topic).alias(TOPIC)).with_columns(LOG_ORDER.alias(ORDER))
        return _completed(placed, self.node)


class RecordSteps:
    """The operators of ``topology`` that tasks run.

    ``sinks`` are those whose rows are done when they leave a task, ``handed_on`` are the rows that the driver goes on
    from, ``reduced`` the windows that tasks begin of such rows, unless it is not to be: all by the name of the table in
    which they leave.
    """

    def __init__(self, topology: Topology, *, reduces: bool = True) -> None:
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
        begun = reductions(topology, self.nodes) if reduces else []
        self.reduced = {f"reduced {number[one.node]}": one for one in begun}
        self.columns = {source.topic.name: columns_read(topology, source.topic) for source in topology.sources}
        refusals = list(_refusals(topology, self.nodes))
        self._refuses_any = any(above is None for above, _ in refusals)
        self._refused = [
            (name, test) for name, rows in self.handed_on.items() for above, test in refusals if above == rows.node
        ]

    @property
    def nodes(self) -> frozenset[Node]:
        return frozenset(self._nodes)

    @property
    def topics(self) -> dict[str, str]:
        """The topic of whose records each table of rows that leaves is made, by the table's name."""
        done = {name: _topic_of(sink) for name, sink in self.sinks.items()}
        return {**done, **{name: rows.topic for name, rows in self.handed_on.items()}}

    @property
    def schemas(self) -> dict[str, dict[str, pl.DataType]]:
        written = {name: {**written_schema(sink.fields), VALUE: pl.Binary()} for name, sink in self.sinks.items()}
        handed_on = {name: rows.schema for name, rows in self.handed_on.items()}
        reduced = {name: one.schema for name, one in self.reduced.items()}
        return {**written, **handed_on, **reduced, SET_ASIDE: RAISED_SCHEMA}

    def taken(self, topic: str, good: pl.DataFrame, stood_ms: int | None) -> tuple[dict[str, pl.DataFrame], pl.Series]:
        """The tables that leave a task for the ``good`` records of a partition of ``topic``, in offset order.

        And the offsets of those that reached a sink here, or windows. A good record has its place, ``timestamp_ms``,
        ``is_null``, ``record_key_text`` and the declared fields that are read. ``stood_ms`` is the stream time of the
        partition before them.
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
        arrived = [leaving[sink][OFFSET] for sink in self.sinks.values() if sink in leaving]
        for name, one in self.reduced.items():
            if (above := one.node.input) in leaving:
                sent[name], is_in = one.begun(leaving[above], stood_ms)
                arrived.append(leaving[above][OFFSET].filter(is_in))
                leaving[above] = leaving[above].filter(~is_in)
        for name, rows in self.handed_on.items():
            if rows.node in leaving:
                sent[name] = leaving[rows.node].select(list(rows.schema))
        sent[SET_ASIDE] = pl.concat(set_aside)
        return sent, pl.concat([pl.Series(OFFSET, dtype=META[OFFSET]), *arrived])

    def may_pass_over(self, sent: Mapping[str, pl.DataFrame]) -> bool:
        """Whether an operator may pass over a record of the partition whose rows are ``sent``."""
        return self._refuses_any or any(
            name in sent and not sent[name].filter(test).is_empty() for name, test in self._refused
        )

    def _received(self, node: Node, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(nth(pl.lit(self._forks[node]))) if node in self._forks else rows


def _refusals(topology: Topology, done: Set[Node]) -> Iterator[tuple[Node | None, pl.Expr]]:
    """The tests for rows of operators that are ``done`` which one below passes over; None where rows do not tell."""
    for node in topology.nodes():
        if node in done or is_held_back(node):
            continue
        match node:
            case WindowedAggregate() | StreamStreamJoin():
                for above in node.inputs:
                    yield from _keyless(above, done)
            case Deduplicate(input=above) if above in done:
                yield above, compiled(node.by, above.fields).is_null()
            case Deduplicate() | Process():  # a processor asks for the time just before each of its records
                yield None, pl.lit(True)


def _keyless(node: Node, done: Set[Node]) -> Iterator[tuple[Node | None, pl.Expr]]:
    if node in done:
        yield node, pl.col(field_column(node.key)).is_null()
        return
    for above in records_from(node):
        if isinstance(node, SelectKey | WithFields | Select):
            yield None, pl.lit(True)
        else:
            yield from _keyless(above, done)


def _topic_of(node: Node) -> str:
    while not isinstance(node, Source):
        [node] = node.inputs
    return node.topic.name


def _entered(source: Source, good: pl.DataFrame) -> pl.DataFrame:
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

    It leaves ``rejected``, the partition's ``totals``, the times of its good records where an operator may pass some
    over, and the tables of ``steps``. ``keyed`` are the topics of which every record needs a key; ``latest_ms`` is the
    last event time that is not absurd: the batch's recorded time plus ``max_future``, ``stood`` the stream time of each
    partition before the batch. The rows of the sinks of which
    ``outputs`` has the folder of the table are written there, for the batch ``order``, and their records leave.
    """

    steps: RecordSteps
    sources: Mapping[str, Source]
    keyed: frozenset[str]
    latest_ms: int
    stood: Mapping[Partition, int | None]
    set_aside: Mapping[Partition, frozenset[int]] = field(default_factory=dict)
    order: Order = (0, 0)
    outputs: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if tables := self.tables(batches):
            yield pa.record_batch([list(tables), [to_ipc(table) for table in tables.values()]], schema=ARROW_OUTPUT)

    def tables(self, batches: Iterator[pa.RecordBatch]) -> dict[str, pl.DataFrame]:
        """The tables of one partition's ``batches``; none where there is no record.

        Raises ``Terminal`` for records of two partitions.
        """
        intake: Intake | None = None
        place: Partition = ("", -1)
        good, rejected = [], []
        for batch in batches:
            if batch.num_rows:
                before, place = place, partition_of(batch)
                if intake and place != before:
                    raise Terminal.of("two-partitions-in-a-task", given=place, expected=str(before))
                intake = intake or self._intake(place)
                taken, bad = intake.take(batch)
                good.append(taken)
                rejected.append(bad)
        return self._tables(place, pl.concat(good), pl.concat(rejected)) if intake else {}

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The tables without rows, to which those of the tasks are added."""
        places = {name: META[name] for name in ENTRY}
        own = {TOTALS: TOTALS_SCHEMA, TIMES: TIMES_SCHEMA, WRITTEN: places, REJECTED: REJECTED_SCHEMA}
        records = {records_as(table): RECORD_SCHEMA for table in self.outputs}
        schemas = {**own, **records, FILES: FILES_SCHEMA, **self.steps.schemas}
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

    def _tables(self, place: Partition, good: pl.DataFrame, rejected: pl.DataFrame) -> dict[str, pl.DataFrame]:
        topic, partition = place
        key = pl.col(field_column(self.sources[topic].key))
        reached, is_null = pl.col(TIMESTAMP).cum_max(), pl.col("record_value").is_null()
        records = good.with_columns(key.alias(RECORD_KEY), reached.alias(REACHED), is_null.alias(IS_NULL))
        tables, written = self.steps.taken(topic, records, self.stood.get(place))
        if self.steps.may_pass_over(tables):
            tables[TIMES] = good.select(list(TIMES_SCHEMA))
        going = pl.concat(
            [
                good[OFFSET].clear(),
                *(tables[name][OFFSET] for name in (*self.steps.handed_on, SET_ASIDE) if name in tables),
            ]
        ).unique()
        arrived = written.unique()
        counted = arrived.filter(~arrived.is_in(going.implode()))
        if len(counted) < len(arrived):
            tables[WRITTEN] = good.select(ENTRY).filter(
                pl.col(OFFSET).is_in(arrived.implode()) & pl.col(OFFSET).is_in(going.implode())
            )
        totals = {
            TOPIC: topic,
            PARTITION: partition,
            REACHED: records[REACHED].max(),
            GOOD: good.height,
            "counted": len(counted),
            "filtered": good.height - len(counted) - len(going),
            "dead_lettered": rejected.height,
            IN_SECONDS: good[IN_SECONDS].sum(),
        }
        return {**self._filed(tables), REJECTED: rejected, TOTALS: pl.DataFrame([totals], TOTALS_SCHEMA)}

    def _filed(self, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        left, rows = dict(tables), []
        for name, sink in self.steps.sinks.items():
            if name in left and sink.table in self.outputs:
                written = left.pop(name)
                left[records_as(sink.table)] = record_columns(sink, written, written[VALUE])
                rows.append((output_name(sink.table), self.outputs[sink.table], written.drop(VALUE)))
        return {**left, FILES: filed(rows, self.order)}
