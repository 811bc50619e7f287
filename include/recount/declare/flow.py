"""The fluent API: streams and tables, on which a topology reads like the sentence that asked for it.

Each method only wraps the operators of ``nodes``, ``stateless``, ``joins``, ``tables`` and ``processing``, where
their meaning is written down; nothing is read and nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

from recount.declare.aggregates import Aggregate
from recount.declare.expression_types import columns_of
from recount.declare.expressions import Expression, col
from recount.declare.operators.joins import AsOf, JoinKind, StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import Emission, Filter, Node, Sink, Source, WindowedAggregate
from recount.declare.operators.placement import BY_DEFAULT, history_ms_of
from recount.declare.operators.processing import Deduplicate, InOrder, KeyState, Process
from recount.declare.operators.stateless import Merge, Peek, Repartition, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.output import OnTooLarge
from recount.declare.schema import FieldType
from recount.declare.steps import Row, Rows, Steps, node_of, one_key, require_topic
from recount.declare.topics import Topic
from recount.declare.unknown_names import declares, refuse_name
from recount.declare.windows import GlobalWindow, Windows
from recount.runtime.errors import InvalidDeclaration
from recount.runtime.times import Duration, milliseconds


@declares
@dataclass(frozen=True)
class RecordStream(Steps):
    """An unbounded sequence of records."""

    def join(self, other: RecordStream, *, before: Duration, after: Duration, grace: Duration) -> RecordStream:
        """Pairs of records whose times fit; ``before`` and ``after`` say where the other's may lie."""
        return self._join(other, "inner", before, after, grace)

    def left_join(self, other: RecordStream, *, before: Duration, after: Duration, grace: Duration) -> RecordStream:
        """The same, and each record of this stream that found no partner, once, alone."""
        return self._join(other, "left", before, after, grace)

    def outer_join(self, other: RecordStream, *, before: Duration, after: Duration, grace: Duration) -> RecordStream:
        """The same, and each record of either stream that found no partner, once, alone."""
        return self._join(other, "outer", before, after, grace)

    def _join(
        self, other: RecordStream, kind: JoinKind, before: Duration, after: Duration, grace: Duration
    ) -> RecordStream:
        return RecordStream(
            StreamStreamJoin(
                left=self.node,
                right=node_of(other, RecordStream),
                kind=kind,
                before_ms=milliseconds(before, "before"),
                after_ms=milliseconds(after, "after"),
                grace_ms=milliseconds(grace, "grace"),
            )
        )

    def join_table(
        self,
        table: Table,
        *,
        grace: Duration | None = None,
        by: Expression | None = None,
        as_of: AsOf = "event",
        history: Duration | None = BY_DEFAULT,
    ) -> RecordStream:
        """Each record with the table's row as of its time; records without one are dropped.

        ``history``: how far behind its partition's stream time a record can look; None: any time. By default 400 days.
        """
        return self._join_table(table, "inner", grace, by, as_of, history)

    def left_join_table(
        self,
        table: Table,
        *,
        grace: Duration | None = None,
        by: Expression | None = None,
        as_of: AsOf = "event",
        history: Duration | None = BY_DEFAULT,
    ) -> RecordStream:
        """The same, and each record that found no row, with nulls."""
        return self._join_table(table, "left", grace, by, as_of, history)

    def _join_table(
        self,
        table: Table,
        kind: Literal["inner", "left"],
        grace: Duration | None,
        by: Expression | None,
        as_of: AsOf,
        history: Duration | None,
    ) -> RecordStream:
        return RecordStream(
            StreamTableJoin(
                left=self.node,
                right=node_of(table, Table),
                kind=kind,
                grace_ms=None if grace is None else milliseconds(grace, "grace"),
                by=by,
                as_of=as_of,
                history_ms=history_ms_of(history, self.node, as_of),
            )
        )

    def deduplicate(self, by: str | Expression, *, horizon: Duration) -> RecordStream:
        """Only the first record of each id ``by`` within ``horizon``; see ``Deduplicate`` for what first means."""
        tree = col(by) if isinstance(by, str) else by
        return RecordStream(
            Deduplicate(
                input=self.node,
                by=tree,
                horizon_ms=milliseconds(horizon, "horizon"),
                partitioned=frozenset() < columns_of(tree) <= _partition_keys(self.node),
            )
        )

    def in_order(self, *, grace: Duration) -> RecordStream:
        """The records by event time, then topic, partition and offset; see ``InOrder`` for when each leaves.

        Below it each update of an aggregate, a filter of them and a processor depend on nothing but the log, whatever
        the key.
        """
        return RecordStream(InOrder(input=self.node, grace_ms=milliseconds(grace, "grace")))

    def process(
        self,
        on_record: Callable[[Row, KeyState], Iterable[Row]],
        /,
        *,
        on_timer: Callable[[int, KeyState], Iterable[Row]] | None = None,
        **made: FieldType,
    ) -> RecordStream:
        """A custom processor with state per key and timers in event time; ``made`` declares its rows."""
        return RecordStream(Process(input=self.node, on_record=on_record, on_timer=on_timer, made=dict(made)))

    def windowed_by(self, windows: Windows) -> WindowedStream:
        """The records grouped by key and window."""
        return WindowedStream(self.node, windows)

    def aggregate(self, /, **aggregates: Aggregate) -> Table:
        """One row per key over all time, an update with every record."""
        return Table(
            WindowedAggregate(
                input=self.node, windows=GlobalWindow(), aggregates=aggregates, emission=Emission(kind="each record")
            )
        )

    def to_table(self, *, versioned: bool = False) -> Table:
        return Table(ToTable(input=self.node, versioned=versioned))


@declares
@dataclass(frozen=True)
class WindowedStream:
    node: Node
    windows: Windows

    def aggregate(self, /, **aggregates: Aggregate) -> WindowedTable:
        """One row per key and window, a column per aggregate."""
        return WindowedTable(self.node, self.windows, aggregates)


@declares
@dataclass(frozen=True)
class WindowedTable:
    """One row per key and window; choose when its updates leave."""

    node: Node
    windows: Windows
    aggregates: Mapping[str, Aggregate]

    def emit_final(self) -> RecordStream:
        """Each result once, when its window closes (Kafka Streams: suppress until window closes)."""
        return RecordStream(self._emitting("final"))

    def emit_each_batch(self) -> RecordStream:
        """The latest result of every changed key and window, once a batch (Kafka Streams: record caching)."""
        return RecordStream(self._emitting("each batch"))

    def emit_each_record(self) -> RecordStream:
        """Every update, in offset order; for keys that live in one partition."""
        return RecordStream(self._emitting("each record"))

    def emit_after(self, limit: Duration, *, max_rows: int | None = None) -> RecordStream:
        """The latest result ``limit`` after its first change (Kafka Streams: suppress until time limit)."""
        held = Suppress(input=self._emitting("each record"), limit_ms=milliseconds(limit, "limit"), max_rows=max_rows)
        return RecordStream(held)

    def __getattr__(self, step: str) -> NoReturn:
        """Refuses the steps of streams: say before when results leave."""
        if not (hasattr(RecordStream, step) or hasattr(Table, step)):
            refuse_name(self, step)
        raise InvalidDeclaration.of("windows-without-an-emission", given=f".{step}() straight after .aggregate()")

    def _emitting(self, kind: Literal["final", "each batch", "each record"]) -> Node:
        return WindowedAggregate(
            input=self.node, windows=self.windows, aggregates=dict(self.aggregates), emission=Emission(kind=kind)
        )


@declares
@dataclass(frozen=True)
class Table(Rows):
    """The latest row of each key; it changes with each record that it is made from."""

    def filter(self, predicate: Expression) -> Table:
        """The rows for which ``predicate`` is true."""
        return Table(TableFilter(input=self.node, predicate=predicate))

    def join(self, other: Table) -> Table:
        """Rows of keys that are in both tables."""
        return Table(TableTableJoin(left=self.node, right=node_of(other, Table), kind="inner"))

    def left_join(self, other: Table) -> Table:
        """All rows of this table, with the other's where it has one."""
        return Table(TableTableJoin(left=self.node, right=node_of(other, Table), kind="left"))

    def outer_join(self, other: Table) -> Table:
        """Rows of keys that are in either table."""
        return Table(TableTableJoin(left=self.node, right=node_of(other, Table), kind="outer"))

    def group_by(self, /, **key: object) -> GroupedTable:
        """Group the rows again: ``customers.group_by(tier=col("tier"))``."""
        name, by = one_key(key, self.node)
        return GroupedTable(self.node, name, by)

    def emit_after(self, limit: Duration, *, max_rows: int | None = None) -> Table:
        """Holds each key's changes back for ``limit``; see ``Suppress``."""
        return Table(Suppress(input=self.node, limit_ms=milliseconds(limit, "limit"), max_rows=max_rows))

    def to_stream(self) -> RecordStream:
        return RecordStream(self.node)

    def to(self, topic: Topic, *, table: str | None = None, on_too_large: OnTooLarge = "stop") -> Sink:
        """Writes the changes to ``topic`` and to a Delta table; a deleted row is a null value."""
        return self.to_stream().to(topic, table=table, on_too_large=on_too_large)


@declares
@dataclass(frozen=True)
class GroupedTable:
    node: Node
    key: str
    by: Expression

    def aggregate(self, /, **aggregates: Aggregate) -> Table:
        """One row per group, over the rows that are in it now."""
        return Table(TableAggregate(input=self.node, key=self.key, by=self.by, aggregates=aggregates))


@declares
def stream(topic: Topic) -> RecordStream:
    require_topic("stream", topic)
    return RecordStream(Source(topic=topic))


@declares
def table(topic: Topic, *, versioned: bool = False) -> Table:
    """The records of ``topic`` as changes of a table, keyed by the record key."""
    return stream(topic).to_table(versioned=versioned)


@declares
def cogroup(**streams: RecordStream) -> RecordStream:
    """Several streams of one key as one; ``merged_from`` names the stream of each record.

    ``cogroup(orders=orders, payments=payments).windowed_by(...).aggregate(paid=total("paid").only(col("merged_from") ==
    "payments"))``: each stream feeds the aggregates that are meant for it.
    """
    return RecordStream(
        Merge(inputs=tuple(node_of(one, RecordStream) for one in streams.values()), names=tuple(streams))
    )


def _partition_keys(node: Node) -> frozenset[str]:
    """The fields that hold the very key by which the source topic is partitioned."""
    while isinstance(node, Filter | Peek | Repartition | Through):
        node = node.input
    return frozenset({node.key}) | node.topic.fields_like_the_key if isinstance(node, Source) else frozenset()
