"""A topology at work: its operators, wired, and the way of one batch through them, inputs first."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain

import polars as pl

from recount.declare.changes import NOTHING_ADDED, Additions
from recount.declare.fingerprint import operator_numbers
from recount.declare.operators.event_time import (
    delay_above_ms,
    is_held_back,
    judges_above,
    lookup_name,
    refusing_above,
    topics_of,
    waits_for,
)
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.keys_and_fields import folds_by_key
from recount.declare.operators.nodes import Filter, Node, SelectKey, Sink, Source, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import FlatMap, Foreach, Merge, Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.topology import Topology, Written
from recount.engine.driver.signs_of_work import worked
from recount.engine.operators.batch_joins import StreamStreamJoinOperator, StreamTableJoinOperator
from recount.engine.operators.batch_operator import (
    FATE,
    FATE_SCHEMA,
    FATE_TYPE,
    Above,
    Batch,
    Clock,
    Operator,
    Output,
    current,
    in_turn,
)
from recount.engine.operators.batch_processing import ProcessOperator
from recount.engine.operators.batch_rows import ENTRY, OFFSET, PARTITION, TOPIC, nth
from recount.engine.operators.batch_stateless import StatelessOperator
from recount.engine.operators.batch_suppression import DeduplicateOperator, InOrderOperator, SuppressOperator
from recount.engine.operators.batch_tables import (
    TableAggregateOperator,
    TableFilterOperator,
    TableTableJoinOperator,
    ToTableOperator,
)
from recount.engine.operators.batch_windows import WindowedOperator
from recount.engine.operators.set_aside import Ranges, one_of_each
from recount.engine.operators.windowed_state import comes_any_time, revised_for_ms
from recount.engine.stage.intake import LATE_SCHEMA
from recount.engine.state.keyed_rows import KeyedRows

_READS_HISTORY = (
    *(TableFilter, TableTableJoin, StreamTableJoin),
    *(Filter, WithFields, SelectKey, Select, FlatMap, Peek, Foreach, Repartition, Merge),
)
"""Operators to which also a superseded change of a versioned table means something."""


@dataclass
class Made:
    """The result of a batch: the rows that were written, late records, and one fate for every good record read.

    ``set_aside`` are the records that tasks have set aside (``RAISED_SCHEMA``).
    """

    set_aside: pl.DataFrame
    written: dict[Written, pl.DataFrame] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    lookups: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many rows asked each lookup, and how many found none."""

    @property
    def late(self) -> pl.DataFrame:
        return pl.concat([pl.DataFrame(schema=LATE_SCHEMA), *chain.from_iterable(out.late for out in self.outputs)])

    @property
    def raised(self) -> pl.DataFrame:
        """The records that were set aside, each once, with what the dead letter says (``RAISED_SCHEMA``)."""
        return one_of_each(pl.concat([self.set_aside, *(out.raised for out in self.outputs)]))

    def fates(self, read: pl.DataFrame) -> pl.DataFrame:
        """The records ``read``, each once, with their fates; where operators differ the first of ``FATES`` holds."""
        noted = pl.concat([pl.DataFrame(schema=FATE_SCHEMA), *chain.from_iterable(out.fates for out in self.outputs)])
        if noted.height == read.height == _number_of(noted) == _number_of(noted, read):
            return noted
        decided = noted.group_by(ENTRY).agg(pl.col(FATE).to_physical().min().cat.to(FATE_TYPE))
        met = read.join(decided, on=ENTRY, how="left", maintain_order="left")
        return met.with_columns(pl.col(FATE).fill_null("filtered"))


class Graph:
    """The operators of ``topology`` but those that are ``done_before``; ``sinks`` are those that write.

    ``states`` is all that they remember, under names that a restart finds again as long as the declaration means
    the same: an operator that remembers nothing may come or go, and sinks may change their order. What upgrades have
    ``added`` changes no name: they are those that the topology had without it. ``owners`` has of each, but for those of
    ``clocks``, the operator and the operator's own name for it.
    """

    def __init__(
        self,
        topology: Topology,
        done_before: Set[Node] = frozenset(),
        added: Additions = NOTHING_ADDED,
        closed_ms: int | None = None,
    ) -> None:
        nodes = [node for node in topology.nodes() if not isinstance(node, Source)]
        former = added.taken_from(topology)
        now, before = _tables_of(topology), _tables_of(former.topology)
        of_results: dict[Node, str | None] = {
            node: before.get(former.operators[node]) if node in former.operators else now.get(node) for node in nodes
        }
        self._operators = operators_of(nodes, of_results, closed_ms)
        self._nodes = [node for node in nodes if node not in done_before]
        self._ranges = {node: Ranges(node) for node in self._nodes}
        self._forks = topology.forks()
        self._takes_turns = any(map(_asks_for_order, nodes))
        self.sinks = [node for node in topology.written if node not in done_before]
        self.states: dict[str, KeyedRows] = {}
        self.owners: dict[str, tuple[Node, str]] = {}
        numbers = operator_numbers(former.topology)
        for node in nodes:
            operator, place = self._operators[node], former.operators.get(node)
            name = f"operator {numbers.get(place) if place else None} {type(node).__name__}"
            self.states |= {f"{name} {state}": rows for state, rows in operator.states.items()}
            self.owners |= {f"{name} {state}": (node, state) for state in operator.states}
            self.states |= {f"{name} time of {clock}": held.state for clock, held in operator.clocks.items()}
        self.clocks = frozenset(self.states.keys() - self.owners.keys())

    def process(
        self,
        batch: Batch,
        given: Mapping[Node, pl.DataFrame],
        set_aside: pl.DataFrame,
        written: pl.DataFrame,
        refused: Mapping[Node, pl.DataFrame],
        reduced: Mapping[Node, pl.DataFrame],
    ) -> Made:
        """Send the batch's rows down every path that leads from the operators whose rows are ``given``.

        ``set_aside`` are the records that operators above these have set aside, ``written`` (``ENTRY``) those that
        sinks above have let pass. ``refused`` (``ENTRY``) has the records that an operator passes over, where only a
        part of the rows is given, ``reduced`` the windows that tasks have begun. Where an operator asks for the order
        of a key's records they are taken in turn.
        """
        made, batch = Made(set_aside), replace(batch, entered=tuple(given.values()))
        passed = Output(written)
        passed.note(written, "counted")
        made.outputs.append(passed)
        leaving = {node: in_turn(rows) for node, rows in given.items()} if self._takes_turns else dict(given)
        for node in self._nodes:
            inputs = [self._received(node, port, leaving[above]) for port, above in enumerate(node.inputs)]
            inputs[0], beyond = self._ranges[node].checked(inputs[0])
            known = replace(batch, refused=refused.get(node), reduced=reduced.get(node))
            output = self._operators[node].process(known, inputs)
            worked()
            output.raised = pl.concat([beyond, output.raised])
            leaving[node] = output.rows
            made.outputs.append(output)
            if isinstance(node, StreamTableJoin) and output.asked is not None:
                made.lookups[lookup_name(node)] = output.asked
            if isinstance(node, Sink | Through):
                made.written[node] = output.rows
        return made

    def _received(self, node: Node, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        received = rows if isinstance(node, _READS_HISTORY) else current(rows)
        number = self._forks.get((node, port))
        return received if number is None else received.with_columns(nth(pl.lit(number)))


def _number_of(*records: pl.DataFrame) -> int:
    """How many different records there are in all frames together."""
    topic = pl.col(TOPIC).cast(pl.Categorical).to_physical()
    return pl.concat(one.select(ENTRY) for one in records).select(topic, PARTITION, OFFSET).unique().height


def _asks_for_order(node: Node) -> bool:
    """Whether the order in which a key's records are read means something to ``node``."""
    match node:
        case ToTable() | Process() | Deduplicate(partitioned=True):
            return True
        case WindowedAggregate():
            return node.emission.kind == "each record" or folds_by_key(node)
    return False


def _tables_of(topology: Topology) -> dict[Node, str]:
    """An output table that has all rows of an operator as they leave it, by operator."""
    return {node.input: node.table for node in topology.sinks}


def operators_of(
    nodes: Iterable[Node], of_results: Mapping[Node, str | None], closed_ms: int | None = None
) -> dict[Node, Operator]:
    """The operators at work for ``nodes``, which come in the order in which rows pass them; sources have none.

    ``of_results`` are output tables that have all that an operator has let go; for ``closed_ms`` see
    ``WindowedOperator``.
    """
    operators: dict[Node, Operator] = {}
    for node in nodes:
        if isinstance(node, WindowedAggregate):
            clock, table = _clock(node, operators), of_results.get(node)
            operators[node] = WindowedOperator(node=node, clock=clock, table=table, closed_ms=closed_ms)
        else:
            operators[node] = _operator(node, operators)
    return operators


def _operator(node: Node, operators: Mapping[Node, Operator]) -> Operator:
    """The operator at work for ``node``; ``operators`` are those above it."""
    match node:
        case StreamStreamJoin():
            return StreamStreamJoinOperator(node=node, clock=_clock(node, operators))
        case StreamTableJoin():
            return StreamTableJoinOperator(
                node=node,
                clock=None if node.history_ms is None else _clock(node, operators, all_count=True),
                table_clock=None if node.grace_ms is None else _clock(node.right, operators),
            )
        case TableTableJoin():
            return TableTableJoinOperator(node=node)
        case ToTable():
            return ToTableOperator(node=node)
        case TableFilter():
            return TableFilterOperator(node=node)
        case TableAggregate():
            return TableAggregateOperator(node=node)
        case Suppress():
            return SuppressOperator(node=node, clock=_clock(node, operators))
        case Deduplicate():
            return DeduplicateOperator(node=node, clock=_clock(node, operators))
        case InOrder():
            return InOrderOperator(node=node, clock=_clock(node, operators))
        case Process():
            return ProcessOperator(node=node, clock=_clock(node, operators))
        case Source() | WindowedAggregate():
            raise AssertionError(node)
        case _:
            return StatelessOperator(node=node)


def _clock(node: Node, operators: Mapping[Node, Operator], *, all_count: bool = False) -> Clock:
    """The clock of ``node``; all records advance it where they were held back above, or ``all_count``."""
    if isinstance(node, Suppress):
        # It measures from the first update that it holds, whatever stands above it.
        return Clock(topics_of(node))
    refusing = set(refusing_above(node))
    above = [
        Above(operators[judge].clocks["clock"], delay_ms, judge in refusing, revised_for_ms(judge))
        for judge, delay_ms in judges_above(node)
    ]
    settles = not any(comes_any_time(one) for one in waits_for(node))
    holds_back = all_count or is_held_back(node)
    return Clock(topics_of(node), delay_above_ms(node), above, holds_back=holds_back, settles=settles)
