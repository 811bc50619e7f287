"""A windowed operator, or a chain of them, fed with the rows of a log batch by batch; and the interpreter beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.unit.engine.operators import feeding
from tests.unit.engine.operators.feeding import PARTITIONS, Event, Result

from recount.declare.columns import IS_NULL, REVISION, TIMESTAMP
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, WindowedTable, stream
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START, EmissionKind, WindowedAggregate
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.engine.stage.polars_expressions import field_column

EVENTS = Topic(
    name="left",
    key="id",
    value=RecordSchema.of(word=STRING, items=LONG, amount=decimal(9, 2), weight=DOUBLE),
)
RESULTS = Topic(name="results", key="k")
CLOSING_MS = 1_000_000


CLOSING = tuple(Event(CLOSING_MS, key="closing", partition=partition) for partition in range(PARTITIONS))


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


class Interpreted(feeding.Interpreted):
    """The interpreter's results, batch by batch."""

    def __init__(self, results: RecordStream, batches: Sequence[Sequence[Event]]) -> None:
        super().__init__(topology(results))
        self.emitted = [self._batch(batch) for batch in batches]

    def _batch(self, events: Sequence[Event]) -> list[Result]:
        with self.driver.batch():
            self.feed(events)
        outputs = self.driver.read(RESULTS.name)
        return [(o.key, o.window or (), o.timestamp_ms, o.revision, comparable(o.value)) for o in outputs]


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
        assert isinstance(results.node, WindowedAggregate)
        self._node, self._fed = results.node, feeding.Fed(topology(results), reads_by_partition=False)
        self.emitted: list[list[Result]] = []
        for number, batch in enumerate(batches):
            if number in restarts:
                self._fed.restart()
            self._fed.batch(batch, quiet=idle[number : number + 1])
            rows = self._fed.made[self._node]
            self.emitted.append([self._result(row) for row in rows.iter_rows(named=True)])

    @property
    def remembered(self) -> int:
        """How many rows the operators hold, clocks apart."""
        return sum(sum(states.values()) for states in self.held)

    @property
    def held(self) -> list[dict[str, int]]:
        """How many rows each state of each operator that has any holds, clocks apart."""
        found = [operator.states for operator in self._fed.operators.values() if operator.states]
        return [{name: state.height for name, state in states.items()} for states in found]

    @property
    def written(self) -> list[int]:
        """How many changes of states each batch wrote."""
        return self._fed.changed

    @property
    def late(self) -> list[Result]:
        return sorted(self._fed.late)

    @property
    def fates(self) -> dict[tuple[str, int, int], str]:
        return self._fed.fates

    def _result(self, row: Mapping[str, Any]) -> Result:
        window = (row[field_column(WINDOW_START)], row[field_column(WINDOW_END)]) if self._node.has_bounds else ()
        value = None if row[IS_NULL] else {name: row[field_column(name)] for name in self._node.fields}
        return row[field_column("k")], window, row[TIMESTAMP], row[REVISION], comparable(value)


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
