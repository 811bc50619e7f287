"""The estimate of a topology: rows that leave each operator, and what it keeps in the engine's states.

Filters and processors are taken to let every record pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import polars as pl

from recount.advise.estimates import estimated_state
from recount.advise.estimates.estimated_state import (
    Kept,
    changed_windows,
    join_cost,
    one_per_key,
    pairs_per_s,
    passing,
    sessions_per_s,
    time_windows,
)
from recount.advise.estimates.workload import SECONDS_A_DAY, Arrivals, Inflow, Workload, key_name
from recount.declare.columns import REVISION
from recount.declare.fingerprint import operator_numbers
from recount.declare.operators.event_time import delay_above_ms, judges_above, topics_of
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import WINDOW_START, Node, Source, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.topology import Topology
from recount.declare.windows import SessionWindows, SlidingWindows, TimeWindows
from recount.engine.operators.batch_graph import operators_of
from recount.engine.operators.batch_operator import Operator
from recount.engine.operators.batch_rows import ORDER, TOPIC
from recount.engine.operators.settling import revised_for_ms
from recount.engine.stage.partials import AggregationPlan, Partials, plan_of

OPEN_WINDOWS = "open windows"
"""The one state of a topology that is computed the short way (docs/decisions/0008)."""
CLOCK = "time of "
"""How the engine names the state in which an operator remembers how far time has come."""
_VIEW, _INLINE = 16, 12
_BIT = 0.125
_PLACE_DIGITS = 30
"""A place in ``order``: a topic, a separator, 10 digits of partition and 19 of offset."""
_WINDOW_DIGITS = 39
"""The place of a window's result: a separator, 19 digits of start and of end, the key."""


def rates(topology: Topology, given: Workload) -> dict[Node, float]:
    """Rows a second that leave each operator, inputs first."""
    leaving: dict[Node, float] = {}
    for node in topology.nodes():
        leaving[node] = _leaving(node, leaving, given)
    return leaving


def inputs_of(node: Node, leaving: Mapping[Node, float], given: Workload) -> tuple[Arrivals, ...]:
    """The rows at each input of ``node``, over the keys by which it takes them."""
    if isinstance(node, Deduplicate):
        return (Arrivals(per_s=leaving[node.input], keys=given.ids_of(node)),)
    return tuple(Arrivals(per_s=leaving[above], keys=given.keys_of(key_name(above))) for above in node.inputs)


def _leaving(node: Node, leaving: Mapping[Node, float], given: Workload) -> float:
    inputs = inputs_of(node, leaving, given)
    match node:
        case Source():
            return given.rate_of(node.topic.name)
        case WindowedAggregate():
            return _results_per_s(node, inputs[0], given.trigger_ms)
        case StreamStreamJoin():
            alone = {"inner": 0.0, "left": inputs[0].per_s, "outer": inputs[0].per_s + inputs[1].per_s}[node.kind]
            return max(pairs_per_s(node, *inputs), alone)
        case StreamTableJoin():
            return inputs[0].per_s
        case TableAggregate():
            return 2 * inputs[0].per_s
        case Suppress(limit_ms=pause_ms) | Deduplicate(horizon_ms=pause_ms):
            return inputs[0].firsts_per_s(pause_ms)
    return sum(above.per_s for above in inputs)


def _results_per_s(node: WindowedAggregate, rows: Arrivals, trigger_ms: int) -> float:
    if node.emission.kind == "each record":
        return rows.per_s * _windows_of_a_record(node, rows)
    if node.emission.kind == "each batch":
        return _changed_in(node, rows, trigger_ms) * 1_000 / trigger_ms
    match node.windows:
        case TimeWindows() as windows:
            return rows.keys_within(windows.size_ms) * 1_000 / windows.advance_ms
        case SlidingWindows() as windows:
            return rows.per_s * (2 - rows.silence(windows.difference_ms))
        case SessionWindows() as windows:
            return sessions_per_s(windows, rows)
    raise AssertionError("refused at declaration")


def _changed_in(node: WindowedAggregate, rows: Arrivals, span_ms: int) -> float:
    """How many windows of all keys the rows of ``span_ms`` change."""
    if isinstance(node.windows, TimeWindows):
        return changed_windows(node.windows, rows, span_ms)
    return rows.keys_within(span_ms) * _windows_of_a_record(node, rows)


def _windows_of_a_record(node: WindowedAggregate, rows: Arrivals) -> float:
    """How many windows a record changes; sliding: its own, and those after the records that lie in the difference."""
    match node.windows:
        case TimeWindows() as windows:
            return windows.size_ms / windows.advance_ms
        case SlidingWindows() as windows:
            return 1 + rows.within(windows.difference_ms) / rows.keys
    return 1


@dataclass(frozen=True, kw_only=True)
class StateEstimate:
    """One state of an operator; ``name`` is what the stream's state table calls it."""

    name: str
    title: str
    kept: Kept
    row_bytes: float
    value_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        """Bytes that the rows take in the driver's memory, besides what grows for ever."""
        return self.kept.rows * self.row_bytes

    @property
    def bytes_a_day(self) -> float:
        """Bytes by which the state grows a day, for good."""
        per_s = self.kept.grows_per_s * self.row_bytes + self.kept.values_per_s * self.value_bytes
        return per_s * SECONDS_A_DAY


@dataclass(frozen=True, kw_only=True)
class OperatorEstimate:
    """An operator, numbered as ``recount describe`` does; ``rows_per_s`` leave it, ``cost`` says what else it costs."""

    number: int
    title: str
    rows_per_s: float
    states: tuple[StateEstimate, ...] = ()
    cost: str = ""


def operator_estimates(topology: Topology, given: Workload) -> list[OperatorEstimate]:
    """Every operator of ``topology``, inputs first; raises ``NotExpressible`` for one that the engine refuses."""
    estimator = _Estimator(topology, given)
    return [estimator.operator(number, node) for number, node in enumerate(topology.nodes(), start=1)]


class _Estimator:
    def __init__(self, topology: Topology, given: Workload) -> None:
        self._topology = topology
        self._given = given
        self._leaving = rates(topology, given)
        self._plan = plan_of(topology)
        nodes = [node for node in topology.nodes() if not isinstance(node, Source)]
        self._places = operator_numbers(topology)
        self._operators = {} if self._plan else operators_of(nodes)

    def operator(self, number: int, node: Node) -> OperatorEstimate:
        inputs = inputs_of(node, self._leaving, self._given)
        return OperatorEstimate(
            number=number,
            title=str(node),
            rows_per_s=self._leaving[node],
            states=tuple(self._states(node)),
            cost=join_cost(node, *inputs) if isinstance(node, StreamStreamJoin) else "",
        )

    def _states(self, node: Node) -> Iterator[StateEstimate]:
        if self._plan and node is self._plan.aggregate:
            yield self._open_windows(self._plan)
        elif node in self._operators:
            operator = self._operators[node]
            inflow = self._inflow(node, settles=all(clock.settles for clock in operator.clocks.values()))
            for title, schema in _schemas(operator):
                name = f"operator {self._places[node]} {type(node).__name__} {title}"
                yield self._state(node, name, title, schema, kept_by(node, title, inflow, self._given))

    def _open_windows(self, plan: AggregationPlan) -> StateEstimate:
        """The merged windows on the driver; a batch writes what it adds to each, which is never written again."""
        node, inflow = plan.aggregate, self._inflow(plan.aggregate)
        kept = replace(
            time_windows(plan.windows, inflow), changed=changed_windows(plan.windows, inflow.only, inflow.trigger_ms)
        )
        schema = {**Partials.of(node).schema, REVISION: pl.Int32()}
        return self._state(node, OPEN_WINDOWS, OPEN_WINDOWS, schema, kept)

    def _state(self, node: Node, name: str, title: str, schema: Mapping[str, pl.DataType], kept: Kept) -> StateEstimate:
        widths = TextWidths.of(node, self._topology, self._given)
        return StateEstimate(
            name=name,
            title=title,
            kept=kept,
            row_bytes=row_bytes(schema, widths, kept.records),
            value_bytes=list_bytes(schema, widths),
        )

    def _inflow(self, node: Node, *, settles: bool = True) -> Inflow:
        topics = [source.topic for source in self._topology.sources if source.topic.name in topics_of(node)]
        partitions = sum(topic.partitions for topic in topics)
        in_one_partition = isinstance(node, WindowedAggregate) and all(topic.key == key_name(node) for topic in topics)
        above_ms = 0 if isinstance(node, Suppress) else delay_above_ms(node)
        revised_ms = max((revised_for_ms(judge) for judge, _ in judges_above(node)), default=0)
        return Inflow(
            inputs=inputs_of(node, self._leaving, self._given),
            trigger_ms=self._given.trigger_ms,
            behind_ms=above_ms + revised_ms + self._given.late_by_ms,
            settles=settles,
            partitions=1 if in_one_partition else partitions,
            source_partitions=partitions,
        )


def _schemas(operator: Operator) -> Iterator[tuple[str, Mapping[str, pl.DataType]]]:
    """The states of an operator by the names that the graph gives them, each with its columns."""
    yield from ((name, rows.schema) for name, rows in operator.states.items())
    yield from ((f"{CLOCK}{name}", clock.state.schema) for name, clock in operator.clocks.items())


def kept_by(node: Node, state: str, inflow: Inflow, given: Workload) -> Kept:
    """Return what the state called ``state`` of ``node`` keeps."""
    if state.startswith(CLOCK):
        return _clock(inflow)
    match node, state:
        case WindowedAggregate(), "windows":
            return estimated_state.merged_windows(node, inflow)
        case WindowedAggregate(), "own":
            return estimated_state.own_sessions(node, inflow)
        case WindowedAggregate(), "records":
            return estimated_state.kept_records(node, inflow)
        case WindowedAggregate(), "results":
            return estimated_state.results(node, inflow)
        case StreamStreamJoin(), "left" | "right":
            return estimated_state.joined_stream(node, inflow, ("left", "right").index(state))
        case StreamTableJoin(), "table":
            return estimated_state.joined_table(node, inflow)
        case StreamTableJoin(), "waiting":
            return estimated_state.waiting_for_table(node, inflow)
        case TableTableJoin(), _:
            return estimated_state.joined_tables(node, inflow, state)
        case TableAggregate(), _:
            return estimated_state.grouped_rows(node, inflow, state, given.keys_of(key_name(node)))
        case ToTable() | TableFilter(), _:
            return one_per_key(inflow.only, inflow, "keys")
        case Suppress(), _:
            return estimated_state.held_updates(node, inflow)
        case Deduplicate(), "winners":
            return estimated_state.winners(node, inflow)
        case Deduplicate(), "waiting":
            return estimated_state.undecided(node, inflow)
        case InOrder(), _:
            return passing(inflow.only.per_s, node.grace_ms, inflow, "records")
        case Process(), _:
            return one_per_key(inflow.only, inflow, "keys that something is remembered of (its size is not counted)")
    raise AssertionError(f"no formula for the state {state!r} of {node}")


def _clock(inflow: Inflow) -> Kept:
    rows = inflow.source_partitions + 1
    return Kept(rows=rows, changed=rows, formula=f"{inflow.source_partitions} partitions + 1 frontier")


@dataclass(frozen=True, kw_only=True)
class TextWidths:
    """How long texts are: those of the engine's own columns, and of fields, of which a record has so many."""

    topic: float
    order: float
    field: float

    @classmethod
    def of(cls, node: Node, topology: Topology, given: Workload) -> TextWidths:
        """The widths at ``node``; a record's bytes are shared out among its fields, names and punctuation included."""
        topics = topics_of(node)
        fields = min(len(source.topic.value.fields) for source in topology.sources if source.topic.value)
        field, of_windows = given.record_bytes / fields, any(WINDOW_START in above.fields for above in node.inputs)
        return cls(
            topic=max(map(len, topics)),
            order=_WINDOW_DIGITS + field if of_windows else sum(len(topic) + _PLACE_DIGITS for topic in topics),
            field=field,
        )

    def of_column(self, name: str) -> float:
        """The length of a text in the column ``name``."""
        return {TOPIC: self.topic, ORDER: self.order}.get(name, self.field)


def row_bytes(schema: Mapping[str, pl.DataType], widths: TextWidths, values: float) -> float:
    """The bytes of one row; its lists have ``values`` elements.

    Source: the Arrow columnar format, as Polars keeps it: fixed widths, a bit for a boolean and one for being there, a
    text in a view of 16 bytes and beside it when it is longer than 12, a list as an offset of 8 bytes and its elements.
    """
    return sum(_width(kind, widths.of_column(name), widths, values) + _BIT for name, kind in schema.items())


def list_bytes(schema: Mapping[str, pl.DataType], widths: TextWidths) -> float:
    """The bytes that one more value adds to the lists of a row."""
    return row_bytes(schema, widths, 1) - row_bytes(schema, widths, 0)


def _width(kind: pl.DataType, text: float, widths: TextWidths, values: float) -> float:
    match kind:
        case pl.Boolean():
            return _BIT
        case pl.String():
            return _VIEW + (text if text > _INLINE else 0)
        case pl.List(inner=pl.DataType() as inner):
            return 8 + values * _width(inner, widths.field, widths, 1)
        case pl.Struct(fields=fields):
            return row_bytes({one.name: cast("pl.DataType", one.dtype) for one in fields}, widths, values)
        case pl.Decimal():
            return 16
        case pl.Int32():
            return 4
    return 8
