"""A topology at work: its operators, wired, and the way of one record through them."""

from collections.abc import Iterable, Mapping

from recount.declare.evaluation import OutOfRange, evaluate, risky_expressions
from recount.declare.operators.event_time import delay_above_ms, is_held_back, judges_above, refusing_above, topics_of
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import Node, Sink, Source, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.output import TooLarge, fits_of
from recount.declare.topology import Topology
from recount.reference.record_clock import Above, Clock, Operator, Output, SinkOperator, StatelessOperator
from recount.reference.record_joins import (
    StreamStreamJoinOperator,
    StreamTableJoinOperator,
    TableAggregateOperator,
    TableFilterOperator,
    TableTableJoinOperator,
    ToTableOperator,
)
from recount.reference.record_state import DeduplicateOperator, InOrderOperator, ProcessOperator, SuppressOperator
from recount.reference.record_windows import WindowedOperator
from recount.reference.records import Entry, Journal, Record, Row

_READS_HISTORY = (TableFilterOperator, TableTableJoinOperator, StreamTableJoinOperator, StatelessOperator)
"""Operators to which also a superseded change of a versioned table means something."""


class Graph:
    """The operators of a topology in the order in which records pass them, and what they have written."""

    def __init__(self, topology: Topology, partitions: Mapping[str, int]) -> None:
        self.journal = Journal()
        self._partitions = partitions
        self.written: dict[str, list[Output]] = {}
        self._clocks: list[Clock] = []
        self.operators: dict[Node, Operator] = {}
        self._readers = topology.readers()
        for node in topology.nodes():
            if not isinstance(node, Source):
                self.operators[node] = self._operator(node)
        self._risky = {node: risky_expressions(node) for node in self.operators}
        self._fits = {node: fits for node in self.operators if (fits := fits_of(node)) is not None}

    def feed(self, source: Source, entry: Entry, row: Row, *, is_null: bool) -> None:
        """Send one record from ``source`` down every path that leads from it."""
        for clock in self._clocks:
            clock.arriving = entry
        order = (entry.topic, entry.partition, entry.offset)
        record = Record(row=row, timestamp_ms=entry.timestamp_ms, order=order, entry=entry, is_null=is_null)
        self._send(source, [record])
        self.journal.close(entry)

    def settle(self, entry: Entry | None = None) -> None:
        """Time has passed, by the record at ``entry`` or by hand: let every operator emit what is due, inputs first."""
        for clock in self._clocks:
            if entry is not None:
                clock.observe(entry)
            clock.arriving = None
        for node, operator in self.operators.items():
            self._send(node, operator.on_time())

    def end_batch(self) -> None:
        """Let every operator emit what it keeps for the end of a batch, and what is due then, inputs first."""
        for clock in self._clocks:
            clock.end_batch()
        for node, operator in self.operators.items():
            self._send(node, operator.on_time())
            self._send(node, operator.end_batch())

    def advance(self, timestamp_ms: int) -> None:
        """Set the stream time of every source partition at least to ``timestamp_ms``."""
        for clock in self._clocks:
            for source in clock.sources():
                clock.advance(source, timestamp_ms)
        self.settle()

    def declare_idle(self, topic: str, partition: int | None) -> None:
        """Let the partition (None: the topic) hold the frontier back no more."""
        for clock in self._clocks:
            clock.declare_idle(topic, partition)
        self.settle()

    def _send(self, node: Node, records: Iterable[Record]) -> None:
        for record in records:
            for reader, port in self._readers[node]:
                operator = self.operators[reader]
                if record.superseded and not isinstance(operator, _READS_HISTORY):
                    continue
                if port == 0 and not self._is_in_range(reader, record):
                    continue
                self._set_aside_too_large(reader, record)
                self._send(reader, operator.receive(record, port))

    def _is_in_range(self, node: Node, record: Record) -> bool:
        """Whether all expressions of ``node`` have values that their types can hold; else the record is set aside."""
        try:
            for tree in self._risky[node]:
                evaluate(tree, record.row, node.inputs[0].fields)
        except OutOfRange as error:
            self.operators[node].raised(node, record, error)
            return False
        return True

    def _set_aside_too_large(self, node: Node, record: Record) -> None:
        """The record of a result that ``node`` does not let pass for its size becomes a dead letter."""
        fits = self._fits.get(node)
        if fits is None or record.superseded:
            return
        fields = node.inputs[0].fields
        if not evaluate(fits, record.row, fields):
            size, key = evaluate(fits.measured, record.row, fields), record.row[node.inputs[0].key]
            self.operators[node].raised(node, record, TooLarge(fits, size, key))

    def _clock(self, node: Node) -> Clock:
        if isinstance(node, Suppress | StreamTableJoin):
            # They judge nobody: all records count, and Suppress measures from the first update that it holds.
            clock = Clock(topics_of(node), 0, self._partitions, holds_back=True)
            self._clocks.append(clock)
            return clock
        return self._clock_below(node, holds_back=is_held_back(node))

    def _clock_below(self, node: Node, *, holds_back: bool) -> Clock:
        """A clock that is never ahead of what the operators above ``node`` can still let out."""
        refusing = set(refusing_above(node))
        above = [
            Above(self.operators[judge].clock, delay_ms, judge in refusing) for judge, delay_ms in judges_above(node)
        ]
        clock = Clock(topics_of(node), delay_above_ms(node), self._partitions, above=above, holds_back=holds_back)
        self._clocks.append(clock)
        return clock

    def _operator(self, node: Node) -> Operator:
        clock, journal = self._clock(node), self.journal
        match node:
            case Sink() | Through():
                written = self.written.setdefault(node.topic.name, [])
                return SinkOperator(node=node, clock=clock, journal=journal, written=written)
            case WindowedAggregate():
                return WindowedOperator(node=node, clock=clock, journal=journal)
            case StreamStreamJoin():
                return StreamStreamJoinOperator(node=node, clock=clock, journal=journal)
            case StreamTableJoin():
                table_clock = self._clock(node.right)
                frontier = self._clock_below(node, holds_back=True)
                return StreamTableJoinOperator(
                    node=node, clock=clock, journal=journal, table_clock=table_clock, frontier=frontier
                )
            case TableTableJoin():
                return TableTableJoinOperator(node=node, clock=clock, journal=journal)
            case ToTable():
                return ToTableOperator(node=node, clock=clock, journal=journal)
            case TableFilter():
                return TableFilterOperator(node=node, clock=clock, journal=journal)
            case TableAggregate():
                return TableAggregateOperator(node=node, clock=clock, journal=journal)
            case Suppress():
                return SuppressOperator(node=node, clock=clock, journal=journal)
            case Deduplicate():
                return DeduplicateOperator(node=node, clock=clock, journal=journal)
            case InOrder():
                return InOrderOperator(node=node, clock=clock, journal=journal)
            case Process():
                return ProcessOperator(node=node, clock=clock, journal=journal)
            case Source():
                raise AssertionError(node)
            case _:
                return StatelessOperator(node=node, clock=clock, journal=journal)
