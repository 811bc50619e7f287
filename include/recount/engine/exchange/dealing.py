"""Dealing a topology's rows out by key: to which part each row of a task goes, and whether that can be done at all.

A topology can be dealt out where all rows that an operator of it brings together have one value in common as they leave
their tasks: their key, or the id of a deduplication. See docs/decisions/0060 for what stands against it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from recount.declare.columns import IS_NULL
from recount.declare.expression_types import type_of
from recount.declare.expressions import Column, Expression
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin
from recount.declare.operators.keys_and_fields import goes_by_key, is_key
from recount.declare.operators.nodes import Filter, Node, SelectKey, Sink, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.stateless import Merge, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableFilter, ToTable
from recount.declare.topology import Topology
from recount.engine.operators.batch_rows import ENTRY, META, TOPIC
from recount.engine.stage.polars_expressions import compiled, field_column
from recount.engine.stage.record_stage import SET_ASIDE, TIMES, TOTALS, WRITTEN, HandedOn, RecordSteps
from recount.engine.state.graph_state import PART, parts_of

_ENTRY_SCHEMA = {name: META[name] for name in ENTRY}
_TO_ALL = (TOTALS, TIMES)
_TO_FIRST = (SET_ASIDE, WRITTEN)
_SAME_AS_TEXT = ("string", "long", "boolean")
"""Types of which equal values have equal texts."""
_PASSES_KEYS = Filter | Repartition | Through | Sink | TableFilter | ToTable | Suppress
Sent = tuple[int, str, pl.DataFrame]
"""A table on its way to a part: the part's number, the table's name, its rows."""


def refused_table(number: int) -> str:
    """The name of the table (``ENTRY``) of the records that operator ``number`` of a topology passes over."""
    return f"refused {number}"


@dataclass(frozen=True, kw_only=True)
class _Refusal:
    """In the rows of ``table``: which an operator passes over, and which it takes, for they have what it needs."""

    table: str
    has_none: pl.Expr
    has_one: pl.Expr


@dataclass(frozen=True, kw_only=True)
class Dealing:
    """The value by which the rows of each table are dealt out, and what operators (by number) pass over."""

    by: Mapping[str, pl.Expr]
    refusals: Mapping[int, Sequence[_Refusal]]
    topics: Mapping[str, str]

    def dealt(self, tables: Mapping[str, pl.DataFrame], parts: int, task: int) -> Iterator[Sent]:
        """The ``tables`` of task ``task``, each row for the part that takes it; what no part takes passes one by.

        Stream times, and the records that an operator passes over, concern all parts.
        """
        everywhere = {name: tables[name] for name in _TO_ALL if name in tables}
        everywhere |= {refused_table(number): self._refused(number, tables) for number in self.refusals}
        for name, rows in everywhere.items():
            if name == TOTALS or not rows.is_empty():
                yield from ((part, name, rows) for part in range(parts))
        for name, rows in tables.items():
            if rows.is_empty() or name in everywhere:
                continue
            if name in self.by:
                numbers = parts_of(rows.select(self.by[name]).to_series(), parts)
                for (part,), mine in rows.with_columns(numbers.alias(PART)).partition_by(PART, as_dict=True).items():
                    yield part, name, mine.drop(PART)
            else:
                yield 0 if name in _TO_FIRST else task % parts, name, rows

    @property
    def schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """The columns of the tables that are sent beside those of the task."""
        return {refused_table(number): _ENTRY_SCHEMA for number in self.refusals}

    def _refused(self, number: int, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """The records of which no row has what the operator needs."""
        none, one = [pl.DataFrame(schema=_ENTRY_SCHEMA)], [pl.DataFrame(schema=_ENTRY_SCHEMA)]
        for refusal in self.refusals[number]:
            if refusal.table in tables:
                rows = tables[refusal.table].with_columns(pl.lit(self.topics[refusal.table]).alias(TOPIC))
                none.append(rows.filter(refusal.has_none).select(ENTRY))
                one.append(rows.filter(refusal.has_one).select(ENTRY))
        refused = pl.concat(none)
        return refused if refused.is_empty() else refused.unique().join(pl.concat(one), on=ENTRY, how="anti")


class _NotDealt(Exception): ...


def dealing_of(topology: Topology, steps: RecordSteps) -> Dealing | None:
    """How the rows that leave ``steps`` are dealt out; None where the topology has to have all rows in one place."""
    try:
        made = _Dealer(topology, steps)
        made.deal()
    except _NotDealt:
        return None
    topics = {name: rows.topic for name, rows in steps.handed_on.items()}
    by = {name: compiled(made.by[name], rows.node.fields) for name, rows in steps.handed_on.items()}
    by |= {name: pl.col(field_column(one.node.key)) for name, one in steps.reduced.items()}
    return Dealing(by=by, refusals=made.refusals, topics=topics) if by else None


class _Dealer:
    """Asks each operator by what it brings rows together, and follows that up to the rows that tasks hand on."""

    def __init__(self, topology: Topology, steps: RecordSteps) -> None:
        self._tables = {rows.node: name for name, rows in steps.handed_on.items()}
        self._rows: Mapping[str, HandedOn] = steps.handed_on
        self._nodes = list(topology.nodes())
        self._done = steps.nodes
        self.by: dict[str, Expression] = {}
        self.refusals: dict[int, list[_Refusal]] = {}

    def deal(self) -> None:
        """Raise ``_NotDealt`` where an operator brings rows together that no one value names."""
        for number, node in enumerate(self._nodes):
            if node not in self._done:
                for above, by in _brought_together(node):
                    self._require(above, by)
                self._note_refusals(number, node)
        for node, name in self._tables.items():
            self.by.setdefault(name, Column(node.key))
        if any(type_of(tree, self._rows[name].node.fields).kind not in _SAME_AS_TEXT for name, tree in self.by.items()):  # type: ignore[union-attr]
            raise _NotDealt

    def _require(self, node: Node, by: Expression) -> None:
        """Have the rows that leave ``node`` dealt out by ``by``."""
        if node in self._tables:
            self._set(self._tables[node], by)
            return
        if not is_key(by, node):
            raise _NotDealt
        match node:
            case Merge():
                for above in node.inputs:
                    self._require(above, Column(above.key))
            case WindowedAggregate() | StreamStreamJoin():
                pass  # its own requirement says so already
            case Deduplicate() | StreamTableJoin():
                if not goes_by_key(node):
                    raise _NotDealt
            case WithFields(added=added) if node.key not in added:
                self._require(node.input, by)
            case Select(chosen=chosen) if node.key not in chosen:
                self._require(node.input, by)
            case SelectKey():
                raise _NotDealt
            case _ if isinstance(node, _PASSES_KEYS):
                self._require(node.input, by)
            case _:
                raise _NotDealt

    def _set(self, table: str, by: Expression) -> None:
        known = self.by.setdefault(table, by)
        if known is not by and not (isinstance(known, Column) and isinstance(by, Column) and known.name == by.name):
            raise _NotDealt

    def _note_refusals(self, number: int, node: Node) -> None:
        """Have all parts know what ``node`` passes over, which has to show in the rows that leave the tasks."""
        if not isinstance(node, WindowedAggregate | StreamStreamJoin | Deduplicate):
            return
        for above in node.inputs:
            for handed_on in self._given(above):
                by = node.by if isinstance(node, Deduplicate) else Column(handed_on.key)
                value = compiled(by, handed_on.fields)
                meant = ~pl.col(IS_NULL) if isinstance(node, StreamStreamJoin) else pl.lit(value=True)
                refusal = _Refusal(
                    table=self._tables[handed_on], has_none=meant & value.is_null(), has_one=meant & value.is_not_null()
                )
                self.refusals.setdefault(number, []).append(refusal)

    def _given(self, node: Node) -> Iterator[Node]:
        """The rows from tasks that come to an operator below ``node`` as they are; none where all have a key."""
        if node in self._tables:
            yield node
        elif isinstance(node, Merge):
            for above in node.inputs:
                yield from self._given(above)
        elif not self._has_keys(node):
            raise _NotDealt

    def _has_keys(self, node: Node) -> bool:
        match node:
            case _ if node in self._tables:
                return False
            case WindowedAggregate() | ToTable() | StreamStreamJoin(kind="inner"):
                return True
            case Deduplicate() | StreamTableJoin(kind="inner") if goes_by_key(node):
                return True
            case StreamTableJoin(left=left):
                return self._has_keys(left)
            case Filter() | Repartition() | Through() | TableFilter() | Suppress() | WithFields() | Select():
                return self._has_keys(node.input)
        return False


def _brought_together(node: Node) -> Iterator[tuple[Node, Expression]]:
    """Each input whose rows ``node`` brings together, and by what; raises ``_NotDealt`` where that is no one value."""
    match node:
        case WindowedAggregate(aggregates=aggregates):
            if any(one.fold is not None for one in aggregates.values()):
                raise _NotDealt
            yield node.input, Column(node.input.key)
        case StreamStreamJoin():
            for side in node.inputs:
                yield side, Column(side.key)
        case StreamTableJoin(by=by):
            if not goes_by_key(node) and node.grace_ms is not None:
                raise _NotDealt  # rows that wait do not say by what
            yield node.left, Column(node.left.key) if by is None else by
            yield node.right, Column(node.right.key)
        case Deduplicate(by=by):
            yield node.input, by
        case ToTable() | TableFilter() | Suppress(max_rows=None):
            yield node.input, Column(node.input.key)
        case Filter() | WithFields() | SelectKey() | Select() | Repartition() | Through() | Merge() | Sink():
            return
        case _:
            raise _NotDealt
