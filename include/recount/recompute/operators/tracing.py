"""Which records of the log make which rows of the sinks: found by following them through both recomputes.

A row names by its ``ORDER`` what it was made of: places in the log, and results of windows and groups. A record reaches
a row when the row names its place, or a result that the record reaches. It reaches what stood with it too: the other
records of a window that each make a result, of an id of which one is the first, of a pair, and all that a processor
says of its key. Where operators look back into an earlier interval of the log nothing is said of the rows before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from recount.declare.columns import IS_NULL as DELETED
from recount.declare.columns import ORIGIN, RESULT_TIME
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import Node, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, Process
from recount.declare.operators.tables import TableAggregate
from recount.declare.topology import Written
from recount.declare.windows import SessionWindows, SlidingWindows
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, named
from recount.recompute.frames.duck_frames import Frame, once, union_of
from recount.recompute.operators.carried import IDENTITY
from recount.recompute.operators.log_joins import LEFT, RIGHT, of
from recount.recompute.operators.log_order import is_running
from recount.recompute.operators.log_rows import ORDER, TIME, Rows, is_place, of_window, origin, step
from recount.recompute.operators.log_windows import END, START
from recount.recompute.operators.recomputed import Recomputed
from recount.recompute.rules.expression_rules import column

KEY, AT = "__key", "__at"
RECORD = "__record"
_TAG, _ROW = "__tag", "__row"


@dataclass(kw_only=True)
class Tracing:
    """Follows ``records`` (topic, partition, offset) through the ``sides``: recomputes of one interval of the log."""

    sides: Sequence[Recomputed]
    records: Frame
    _reached: dict[Node, Frame] = field(default_factory=dict)

    def results(self, sink: Written) -> Frame:
        """The rows of ``sink`` by either recompute that each record reaches, with ``RECORD``: columns as of results."""
        rows = [
            one.frame.select(
                *map(named, one.node.fields),
                F.col(TIME).alias(RESULT_TIME),
                F.col(IS_NULL).alias(DELETED),
                origin().alias(ORIGIN),
                ORDER,
            )
            for one in self._made(sink)
        ]
        return self._reached_in(rows, self._of(sink)).drop(ORDER)

    def _of(self, node: Node) -> Frame:
        if node not in self._reached:
            self._reached[node] = self._found(node)
        return self._reached[node]

    def _found(self, node: Node) -> Frame:
        if not node.inputs:
            place = step(*(F.col(name) for name in ("topic", "partition", "offset")))
            record = F.struct("topic", "partition", "offset").alias(RECORD)
            return once(self.records.select(F.array(place).alias(_TAG), record))
        above = union_of([self._of(one) for one in dict.fromkeys(node.inputs)])
        above = above if len(set(node.inputs)) == 1 else above.distinct()
        further = self._further(node)
        return above if further is None else once(above.union(further).distinct())

    def _further(self, node: Node) -> Frame | None:
        """The tags that the operator itself makes, which the rows above do not have."""
        match node:
            case WindowedAggregate():
                return self._windows(node)
            case TableAggregate():
                return self._groups(node)
            case TableTableJoin():
                return self._by_key(node, node.inputs, lambda one: named(one.node.key))
            case Process():
                return self._by_key(node, node.inputs, lambda one: named(one.node.key))
            case Deduplicate():
                return self._of_one_id(node)
            case StreamStreamJoin():
                return self._pairs(node)
            case StreamTableJoin():
                return self._looked_up(node)
        return None

    def _made(self, node: Node) -> list[Rows]:
        return [one.rows[node] for one in self.sides]

    def _reached_in(self, frames: Sequence[Frame], by: Frame) -> Frame:
        """The rows of ``frames``, which have ``ORDER``, that records reach ``by`` their tags, with ``RECORD``."""
        return _tagged(union_of(frames)).join(by, [_TAG]).drop(_TAG).distinct()

    def _windows(self, node: WindowedAggregate) -> Frame:
        key = named(node.key).alias(KEY)
        placed = [
            one.placed[node].where(F.col(ORDER).is_not_null()).select(key, START, END, ORDER) for one in self.sides
        ]
        reached = self._reached_in(placed, self._of(node.input))
        if is_running(node):
            those = union_of(placed).distinct().renamed({ORDER: AT})
            later = reached.join(those, [KEY, START, END]).where(F.col(AT) >= F.col(ORDER))
            return _tagged(later.select(F.col(AT).alias(ORDER), RECORD)).select(_TAG, RECORD)
        windows = reached.select(KEY, START, END, RECORD).distinct()
        reach_ms = _reach_ms(node)
        if reach_ms is not None:
            # a window that is placed by records is another one without the record
            near = union_of([one.select(KEY, START, END) for one in placed]).distinct()
            others = near.select(F.col(KEY).alias("__k"), F.col(START).alias("__s"), F.col(END).alias("__e"))
            touches = (F.col("__s") <= F.col(END) + reach_ms) & (F.col("__e") >= F.col(START) - reach_ms)
            met = windows.join(others, (F.col(KEY) == F.col("__k")) & touches)
            windows = met.select(
                F.col("__k").alias(KEY), F.col("__s").alias(START), F.col("__e").alias(END), RECORD
            ).distinct()
        return windows.select(of_window(F.col(KEY), F.col(START), F.col(END)).alias(_TAG), RECORD)

    def _groups(self, node: TableAggregate) -> Frame:
        """The groups that the row of a key is in, by either recompute."""
        by = F.when(~F.col(IS_NULL), column(node.by, node.input.fields))
        rows = [
            one.current.select(named(one.node.key).alias(KEY), by.alias(_ROW), ORDER) for one in self._made(node.input)
        ]
        keys = self._reached_in(rows, self._of(node.input)).select(KEY, RECORD).distinct()
        groups = union_of(rows).select(KEY, _ROW).where(F.col(_ROW).is_not_null()).distinct()
        found = groups.join(keys, [KEY])
        return found.select(of_window(F.col(_ROW), F.lit(0), F.lit(0)).alias(_TAG), RECORD)

    def _by_key(self, node: Node, inputs: Sequence[Node], key: Callable[[Rows], Column]) -> Frame:
        """All that leaves of a key of which a row is reached."""
        reached = [
            self._reached_in(
                [one.frame.select(key(one).alias(KEY), ORDER) for one in self._made(above)], self._of(above)
            )
            for above in dict.fromkeys(inputs)
        ]
        keys = union_of(reached).select(KEY, RECORD).distinct()
        made = [one.frame.select(named(node.key).alias(KEY), ORDER) for one in self._made(node)]
        return _tagged(union_of(made)).join(keys, [KEY]).select(_TAG, RECORD)

    def _of_one_id(self, node: Deduplicate) -> Frame:
        """All records of one id: one that counts takes the place of another, which no longer shuts out a third."""
        by = column(node.by, node.input.fields)
        rows = [one.current.select(by.alias(IDENTITY), ORDER) for one in self._made(node.input)]
        reached = self._reached_in(rows, self._of(node.input)).select(IDENTITY, RECORD).distinct()
        met = union_of(rows).join(reached, [IDENTITY])
        return _tagged(met.select(ORDER, RECORD)).select(_TAG, RECORD)

    def _pairs(self, node: StreamStreamJoin) -> Frame:
        """A record that is reached by another's pair left alone without it."""
        both = union_of([self._of(one) for one in dict.fromkeys(node.inputs)])
        reached = self._reached_in([one.frame.select(ORDER) for one in self._made(node)], both)
        return _tagged(reached.select(ORDER, RECORD)).select(_TAG, RECORD)

    def _looked_up(self, node: StreamTableJoin) -> Frame:
        """The rows that found a row of the table that is reached."""
        found = [
            one.looked_up[node].select(of(RIGHT, ORDER).alias(ORDER), of(LEFT, ORDER).alias(AT)) for one in self.sides
        ]
        there = [one.where(F.col(ORDER).is_not_null()) for one in found]
        reached = self._reached_in(there, self._of(node.right))
        return _tagged(reached.select(F.col(AT).alias(ORDER), RECORD)).select(_TAG, RECORD)


def _tagged(rows: Frame) -> Frame:
    """``rows``, which have ``ORDER``, once for each of its tags: places, and results of windows and groups."""
    order = F.col(ORDER)
    places = F.mapped(F.filtered(order, is_place), lambda one: F.array(one))
    pairs = F.mapped(
        F.sequence(F.lit(1), F.greatest(F.size(order) - 1, F.lit(1))), lambda at: F.part_of_list(order, at, F.lit(2))
    )
    results = F.filtered(pairs, lambda pair: (F.size(pair) == 2) & (pair.at(1).part("partition") == -1))
    return rows.with_column(_TAG, F.each_of(F.list_of_all(places, results)))


def _reach_ms(node: WindowedAggregate) -> int | None:
    match node.windows:
        case SessionWindows(gap_ms=gap_ms):
            return gap_ms
        case SlidingWindows():
            return 1
    return None
