"""The estimate of a topology: rows that leave each operator, and what it keeps in the engine's states.

Filters and processors are taken to let every record pass.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import polars as pl

from recount.advise.operator_states import CLOCK, Inflow, Kept, kept_by, leaving_per_s, pairs_per_s
from recount.advise.workload import SECONDS_A_DAY, Arrivals, Workload, counted, key_name
from recount.declare.fingerprint import operator_numbers
from recount.declare.operators.event_time import delay_above_ms, judges_above, topics_of
from recount.declare.operators.joins import StreamStreamJoin
from recount.declare.operators.nodes import WINDOW_START, Node, Source, WindowedAggregate
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.tables import Suppress
from recount.declare.topology import Topology
from recount.engine.operators.batch_graph import operators_of
from recount.engine.operators.batch_rows import ORDER, TOPIC
from recount.engine.operators.windowed_state import revised_for_ms
from recount.runtime.times import readable

_VIEW, _INLINE = 16, 12
_BIT = 0.125
_PLACE_DIGITS = 30
"""A place in ``order``: a topic, a separator, 10 digits of partition and 19 of offset."""
_WINDOW_DIGITS = 39
"""The place of a window's result: a separator, 19 digits of start and of end, the key."""


@dataclass(frozen=True, kw_only=True)
class StateEstimate:
    """One state of an operator; ``name`` is what the stream's state table calls it.

    A row takes ``row_bytes`` in the driver's memory, one more value in its lists ``value_bytes``.
    """

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
    node: Node
    rows_per_s: float
    states: tuple[StateEstimate, ...]
    cost: str = ""

    @property
    def title(self) -> str:
        """The operator as ``recount describe`` calls it."""
        return str(self.node)


def operator_estimates(topology: Topology, given: Workload) -> list[OperatorEstimate]:
    """Every operator of ``topology``, inputs first; raises ``NotExpressible`` for one that the engine refuses."""
    places = operator_numbers(topology)
    operators = operators_of([node for node in topology.nodes() if not isinstance(node, Source)], {})
    leaving: dict[Node, float] = {}
    found = []
    for number, node in enumerate(topology.nodes(), start=1):
        inputs = _inputs(node, leaving, given)
        leaving[node] = leaving_per_s(node, inputs, given.trigger_ms)
        if isinstance(node, Source):
            leaving[node] = given.rate_of(node.topic.name)
        states: list[StateEstimate] = []
        if node in operators:
            operator = operators[node]
            settles = all(clock.settles for clock in operator.clocks.values())
            inflow = _inflow(topology, node, inputs, given, settles=settles)
            schemas = {name: rows.schema for name, rows in operator.states.items()}
            schemas |= {f"{CLOCK}{name}": clock.state.schema for name, clock in operator.clocks.items()}
            for title, schema in schemas.items():
                kept = kept_by(node, title, inflow, given.keys_of(key_name(node)))
                name = f"operator {places[node]} {type(node).__name__} {title}"
                states.append(_state(node, name, schema, kept, topology, given))
        cost = _join_cost(node, *inputs) if isinstance(node, StreamStreamJoin) else ""
        found.append(
            OperatorEstimate(number=number, node=node, rows_per_s=leaving[node], states=tuple(states), cost=cost)
        )
    return found


def _inputs(node: Node, leaving: Mapping[Node, float], given: Workload) -> tuple[Arrivals, ...]:
    """The rows at each input of ``node``, over the keys by which it takes them."""
    if isinstance(node, Deduplicate):
        return (Arrivals(per_s=leaving[node.input], keys=given.ids_of(node)),)
    return tuple(Arrivals(per_s=leaving[above], keys=given.keys_of(key_name(above))) for above in node.inputs)


def _inflow(
    topology: Topology, node: Node, inputs: tuple[Arrivals, ...], given: Workload, *, settles: bool = True
) -> Inflow:
    topics = [source.topic for source in topology.sources if source.topic.name in topics_of(node)]
    partitions = sum(topic.partitions for topic in topics)
    in_one_partition = isinstance(node, WindowedAggregate) and all(topic.key == key_name(node) for topic in topics)
    above_ms = 0 if isinstance(node, Suppress) else delay_above_ms(node)
    revised_ms = max((revised_for_ms(judge) for judge, _ in judges_above(node)), default=0)
    return Inflow(
        inputs=inputs,
        trigger_ms=given.trigger_ms,
        behind_ms=above_ms + revised_ms + given.late_by_ms,
        settles=settles,
        partitions=1 if in_one_partition else partitions,
        source_partitions=partitions,
    )


def _join_cost(node: StreamStreamJoin, left: Arrivals, right: Arrivals) -> str:
    """How many pairs a second, and how that follows."""
    pairs, keys = f"{counted(pairs_per_s(node, left, right))} pairs/s", max(left.keys, right.keys)
    if math.isinf(keys):
        return f"{pairs}: one for each row of the rarer side"
    span = readable(node.before_ms + node.after_ms)
    return f"{pairs}: {counted(left.per_s)}/s x {counted(right.per_s)}/s x {span} / {counted(keys)} keys"


def _state(
    node: Node, name: str, schema: Mapping[str, pl.DataType], kept: Kept, topology: Topology, given: Workload
) -> StateEstimate:
    """The state with its bytes; a record's bytes are shared out among its fields, names and punctuation included."""
    topics = topics_of(node)
    fields = min(len(source.topic.value.fields) for source in topology.sources if source.topic.value)
    field, of_windows = given.record_bytes / fields, any(WINDOW_START in above.fields for above in node.inputs)
    order = _WINDOW_DIGITS + field if of_windows else sum(len(topic) + _PLACE_DIGITS for topic in topics)
    texts = {TOPIC: max(map(len, topics)), ORDER: order}
    empty, of_one, row_bytes = (_row_bytes(schema, texts, field, values) for values in (0, 1, kept.records))
    title = name.partition(f"{type(node).__name__} ")[2] or name
    return StateEstimate(name=name, title=title, kept=kept, row_bytes=row_bytes, value_bytes=of_one - empty)


def _row_bytes(schema: Mapping[str, pl.DataType], texts: Mapping[str, float], field: float, values: float) -> float:
    """The bytes of one row; its lists have ``values`` elements, its texts the length of ``texts``, others ``field``.

    Source: the Arrow columnar format, as Polars keeps it: fixed widths, a bit for a boolean and one for being there, a
    text in a view of 16 bytes and beside it when it is longer than 12, a list as an offset of 8 bytes and its elements.
    """

    def width(kind: pl.DataType, text: float, values: float) -> float:
        match kind:
            case pl.Boolean():
                return _BIT
            case pl.String():
                return _VIEW + (text if text > _INLINE else 0)
            case pl.List(inner=pl.DataType() as inner):
                return 8 + values * width(inner, field, 1)
            case pl.Struct(fields=fields):
                inside = {one.name: cast("pl.DataType", one.dtype) for one in fields}
                return _row_bytes(inside, texts, field, values)
            case pl.Decimal():
                return 16
            case pl.Int32():
                return 4
        return 8

    return sum(width(kind, texts.get(name, field), values) + _BIT for name, kind in schema.items())
