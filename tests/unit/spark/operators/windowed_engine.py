"""A windowed operator, or a chain of them, fed with the rows of a log batch by batch; and the interpreter beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from recount.core.expressions import col
from recount.core.flow import RecordStream, WindowedTable, stream
from recount.core.interpreter.driver import TopologyDriver
from recount.core.nodes import KEY, WINDOW_END, WINDOW_START, EmissionKind, WindowedAggregate
from recount.core.own_columns import IS_NULL, REVISION
from recount.core.schema import DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.spark.columns import STREAM_TIME, TIMESTAMP
from recount.spark.operators.clock import READ_SCHEMA, Batch
from recount.spark.operators.graph import operators_of
from recount.spark.operators.operator import FATES, Output
from recount.spark.operators.rows import (
    LOG_ORDER,
    META,
    OFFSET,
    ORDER,
    PARTITION,
    SUPERSEDED,
    TOPIC,
    WITHIN,
    rows_schema,
)
from recount.spark.polars_expressions import field_column
from recount.spark.stage import LATE_SCHEMA

PARTITIONS = 2
EVENTS = Topic(
    name="events",
    key="id",
    value=RecordSchema.of(word=STRING, items=LONG, amount=decimal(9, 2), weight=DOUBLE),
)
RESULTS = Topic(name="results", key="k")
CLOSING_MS = 1_000_000


@dataclass(frozen=True)
class Event:
    """A record of the log; the ``value`` None is a null value, the ``key`` None a null key."""

    timestamp_ms: int
    key: str | None = "a"
    value: Mapping[str, Any] | None = field(default_factory=dict)
    partition: int = 0


CLOSING = tuple(Event(CLOSING_MS, key="closing", partition=partition) for partition in range(PARTITIONS))
Result = tuple[Any, ...]


def keyed_events() -> RecordStream:
    """The events under a key that may be null."""
    return stream(EVENTS).select_key(k=col(KEY))


def events_by_number() -> RecordStream:
    """The events under a key that is a number."""
    return stream(EVENTS).select_key(k=col("items"))


def emitting(table: WindowedTable, kind: EmissionKind) -> RecordStream:
    """The results of ``table``, leaving by ``kind``."""
    return {
        "final": table.emit_final,
        "each batch": table.emit_each_batch,
        "each record": table.emit_each_record,
    }[kind]()


def topology(results: RecordStream) -> Topology:
    """A topology that ends in ``results``."""
    return Topology(name="windows", sinks=[results.to(RESULTS)])


def comparable(value: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    """Values with their types, for 1 == 1.0 == Decimal(1)."""
    return None if value is None else tuple((name, type(cell).__name__, cell) for name, cell in sorted(value.items()))


class Interpreted:
    """The interpreter's results, batch by batch."""

    def __init__(self, results: RecordStream, batches: Sequence[Sequence[Event]]) -> None:
        self.driver = TopologyDriver(topology(results), partitions={EVENTS.name: PARTITIONS})
        self.emitted = [self._batch(batch) for batch in batches]

    def _batch(self, events: Sequence[Event]) -> list[Result]:
        with self.driver.batch():
            for event in events:
                self.driver.pipe(
                    EVENTS.name,
                    key=event.key,
                    value=event.value,
                    timestamp_ms=event.timestamp_ms,
                    partition=event.partition,
                )
        outputs = self.driver.read(RESULTS.name)
        return [(o.key, o.window or (), o.timestamp_ms, o.revision, comparable(o.value)) for o in outputs]

    @property
    def late(self) -> list[Result]:
        return sorted(
            tuple(str(getattr(late, name)) if name == "key" else getattr(late, name) for name in LATE_SCHEMA)
            for late in self.driver.late
        )

    @property
    def fates(self) -> dict[tuple[int, int], str]:
        return {(at.partition, at.offset): fate.replace(" ", "_") for at, fate in self.driver.fate_of.items()}


class Engine:
    """The same by operators; ``restarts`` are the numbers of batches before which all operators begin anew."""

    def __init__(
        self,
        results: RecordStream,
        batches: Sequence[Sequence[Event]],
        *,
        restarts: Sequence[int] = (),
        idle: Sequence[int] = (),
    ) -> None:
        self._nodes = _chain(results)
        self._by_number = self._nodes[0].input.fields["k"] == LONG
        self._operators = list(operators_of(self._nodes).values())
        self._stored: dict[tuple[int, str], pl.DataFrame] = {}
        self._ends = dict.fromkeys(range(PARTITIONS), 0)
        self._times: dict[int, int] = {}
        self._late: list[pl.DataFrame] = []
        self._fates: dict[tuple[int, int], str] = {}
        self.written: list[int] = []
        self.emitted: list[list[Result]] = []
        for number, batch in enumerate(batches):
            if number in restarts:
                self._restart()
            quiet = {idle[number]} if number < len(idle) else set()
            self.emitted.append(self._batch(batch, quiet))

    @property
    def remembered(self) -> int:
        """How many rows the operators hold, clocks apart."""
        return sum(state.rows.height for operator in self._operators for state in operator.states.values())

    @property
    def held(self) -> list[dict[str, int]]:
        """How many rows each state of each operator holds, clocks apart."""
        return [{name: state.height for name, state in operator.states.items()} for operator in self._operators]

    @property
    def late(self) -> list[Result]:
        rows = [row for frame in self._late for row in frame.select(list(LATE_SCHEMA)).iter_rows()]
        return sorted(rows)

    @property
    def fates(self) -> dict[tuple[int, int], str]:
        return self._fates

    def _batch(self, events: Sequence[Event], quiet: set[int]) -> list[Result]:
        rows = self._frame(events)
        known = {(EVENTS.name, partition) for partition in range(PARTITIONS)}
        awake = {(topic, partition) for topic, partition in known if partition not in quiet}
        batch = Batch(read=rows.select(list(READ_SCHEMA)), known=known, awake=awake)
        rows = rows.with_columns(pl.lit(None, pl.Int64).alias(STREAM_TIME))
        for node, operator in zip(self._nodes, self._operators, strict=True):
            output = operator.process(batch, [rows])
            assert dict(output.rows.schema) == rows_schema(node.fields)
            self._take(output)
            rows = output.rows
        self._store()
        return [self._result(row) for row in rows.iter_rows(named=True)]

    def _result(self, row: Mapping[str, Any]) -> Result:
        node = self._nodes[-1]
        window = (row[field_column(WINDOW_START)], row[field_column(WINDOW_END)]) if node.has_bounds else ()
        value = None if row[IS_NULL] else {name: row[field_column(name)] for name in node.fields}
        return row[field_column("k")], window, row[TIMESTAMP], row[REVISION], comparable(value)

    def _take(self, output: Output) -> None:
        self._late += output.late
        for frame in output.fates:
            for _, partition, offset, fate in frame.iter_rows():
                known = self._fates.get((partition, offset), fate)
                self._fates[partition, offset] = min(fate, known, key=FATES.index)

    def _frame(self, events: Sequence[Event]) -> pl.DataFrame:
        made = []
        for event in events:
            offset = self._ends[event.partition]
            self._ends[event.partition] += 1
            known = self._times.get(event.partition, event.timestamp_ms)
            self._times[event.partition] = max(known, event.timestamp_ms)
            given = event.value or {}
            made.append(
                {
                    **{field_column(name): given.get(name) for name in EVENTS.value.fields},
                    field_column("__key"): event.key,
                    field_column("k"): given.get("items") if self._by_number else event.key,
                    TOPIC: EVENTS.name,
                    PARTITION: event.partition,
                    OFFSET: offset,
                    TIMESTAMP: event.timestamp_ms,
                    STREAM_TIME: self._times[event.partition],
                    IS_NULL: event.value is None,
                    REVISION: 0,
                    SUPERSEDED: False,
                    WITHIN: "",
                }
            )
        schema = rows_schema(self._nodes[0].input.fields)
        frame = pl.DataFrame(made, {name: kind for name, kind in schema.items() if name != ORDER}, orient="row")
        return frame.with_columns(LOG_ORDER.alias(ORDER)).select(*(name for name in schema if name not in META), *META)

    def _store(self) -> None:
        """A state table gets the changes of each batch, and nothing else."""
        self.written.append(0)
        for at, operator in enumerate(self._operators):
            kept = {**operator.states, **{f"clock {name}": one.state for name, one in operator.clocks.items()}}
            for name, state in kept.items():
                changes = state.changes()
                self.written[-1] += changes.height
                before = self._stored.get((at, name), changes.drop("deleted").clear())
                rest = before.join(changes, on=state.identity, how="anti", nulls_equal=True)
                now = changes.filter(~pl.col("deleted")).drop("deleted")
                self._stored[at, name] = pl.concat([rest, now]).sample(fraction=1, shuffle=True, seed=at)

    def _restart(self) -> None:
        self._operators = list(operators_of(self._nodes).values())
        for at, operator in enumerate(self._operators):
            for name, state in operator.states.items():
                if (at, name) in self._stored:
                    state.load(self._stored[at, name])
            for name, clock in operator.clocks.items():
                if (at, f"clock {name}") in self._stored:
                    clock.state.load(self._stored[at, f"clock {name}"])


def _chain(results: RecordStream) -> list[WindowedAggregate]:
    """The windowed aggregations that lead to ``results``, the first one first."""
    nodes, node = [], results.node
    while isinstance(node, WindowedAggregate):
        nodes.append(node)
        node = node.input
    return nodes[::-1]


def table(emitted: Sequence[Sequence[Result]]) -> dict[Result, Result]:
    """The rows that are left when each result replaces the one before of its key and window."""
    latest = {(key, window): (at_ms, value) for batch in emitted for key, window, at_ms, _, value in batch}
    return {about: found for about, found in latest.items() if found[1] is not None}


def revisions_count_up(emitted: Sequence[Sequence[Result]]) -> bool:
    """Whether those of each key and window are 0, 1, 2, ..."""
    seen: dict[Result, int] = {}
    for batch in emitted:
        for key, window, _, revision, _ in batch:
            if revision != seen.get((key, window), -1) + 1:
                return False
            seen[key, window] = revision
    return True
