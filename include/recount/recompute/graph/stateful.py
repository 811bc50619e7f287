"""Operators that judge time: who is late by which stream time, who is handed on, and what is noted of each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.core.changelogs import Suppress
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import Node, WindowedAggregate
from recount.core.processing import Deduplicate, InOrder, Process
from recount.core.windows import GlobalWindow, LastN
from recount.recompute.columns import named
from recount.recompute.decoding import IS_NULL
from recount.recompute.graph import joins, lookups, remembering, windows
from recount.recompute.graph.frontiers import (
    ALL_DUE,
    NONE_DUE,
    REACHED_BEFORE,
    BatchEnds,
    Wait,
    reached_ms,
    with_left_in,
    with_reached_before,
)
from recount.recompute.graph.journal import Journal
from recount.recompute.graph.judging import STREAM_TIME, held_back, judged, refused, stream_times
from recount.recompute.graph.ordering import leaves_at_once, leaves_when_read, lies_in_the_log, require_ordered, waits
from recount.recompute.graph.rows import ORDER, PARTITION, PLACE, TIME, TOPIC, Rows, at_time, shaped
from recount.recompute.graph.stateless import returned
from recount.recompute.graph.trying import tried
from recount.recompute.rules.closing import overdue_ms
from recount.recompute.rules.deduplicating import goes_by_offset
from recount.recompute.rules.raising import tries_folds
from recount.recompute.rules.waiting import (
    is_held_back,
    judges_above,
    refusing_above,
    topics_awaited,
    waited_above_ms,
    waits_ms,
)


@dataclass(kw_only=True)
class Stateful:
    """The operators that judge time, over the ``entries`` of each topic: all that could advance stream time.

    Without ``lateness`` nothing is late. With ``batches`` only what was due after them leaves. ``passed_over`` has the
    places of records that did not advance an operator's stream time, ``on_time`` the records that an aggregation has
    placed in windows, ``processed_or_raised`` what processors made, beside the records for which they raised, ``tried``
    the records that folds were tried with. Frames that are read more than once are computed once, and held until nobody
    refers to them.
    """

    session: SparkSession
    entries: Mapping[str, DataFrame]
    lateness: bool
    table_ends: Sequence[lookups.TableEnds] | None
    frontier_ms: int | None
    batches: Sequence[BatchEnds] | None
    journal: Journal
    kept: list[DataFrame] = field(default_factory=list)
    passed_over: dict[Node, DataFrame] = field(default_factory=dict)
    frontiers: dict[Node, list[int]] = field(default_factory=dict)
    on_time: dict[Node, DataFrame] = field(default_factory=dict)
    processed_or_raised: dict[Node, DataFrame] = field(default_factory=dict)
    tried: dict[Node, DataFrame] = field(default_factory=dict)

    def windowed(self, node: WindowedAggregate, above: Rows) -> Rows:
        """Records placed in windows, the late ones noted for each, the others aggregated."""
        frame, takes = above.current, windows.takes(node)
        has_key = named(node.key).isNotNull()
        self.journal.note(frame.where(~takes), F.when(has_key, "null value").otherwise("null key"))
        judging = [(frame, ~has_key, takes)]
        without = self._without(node, judging)
        if isinstance(node.windows, GlobalWindow | LastN):
            self.journal.note(frame.where(takes), F.lit("counted"))
            return windows.aggregated(node, self._tried(node, windows.placed(node, frame.where(takes))))
        times = self._times(node, without)
        placed = self._keep(windows.placed(node, judged(frame.where(takes), times)))
        late = F.col(windows.IS_LATE)
        self.journal.note(placed, F.when(late, "late").otherwise("counted"))
        start, end = F.col(windows.START), F.col(windows.END)
        margin = overdue_ms(node.windows, end, F.col(STREAM_TIME))
        self.journal.late_for(placed.where(late), named(node.key), margin, start, end)
        on_time = self.on_time[node] = self._tried(node, placed.where(~late))
        if node.emission.kind == "final":
            on_time = on_time.where(overdue_ms(node.windows, end, F.lit(self._frontier_ms(node))) >= 0)
        return windows.aggregated(node, on_time)

    def _tried(self, node: WindowedAggregate, placed: DataFrame) -> DataFrame:
        if not tries_folds(node):
            return placed
        self.tried[node] = self._keep(tried(node, placed, (windows.START, windows.END)))
        return self.tried[node]

    def stream_joined(self, node: StreamStreamJoin, sides: Sequence[Rows]) -> Rows:
        """Each side judged by its own partitions; a null key is kept on an outer side only."""
        frames = [side.current for side in sides]
        keys = [named(side.key) for side in (node.left, node.right)]
        judging = [
            (frame, ~F.col(IS_NULL) & key.isNull(), ~F.col(IS_NULL) & key.isNotNull())
            for frame, key in zip(frames, keys, strict=True)
        ]
        times = self._times(node, self._without(node, judging))
        on_time = []
        for side, (frame, lacks_key, _) in enumerate(judging):
            bound_ms = joins.lateness_bound_ms(node, side)
            margin = F.col(STREAM_TIME) - F.col(TIME) - bound_ms - 1
            late = ~lacks_key & F.coalesce(margin >= 0, F.lit(False))
            timed = self._keep(judged(frame, times))
            dropped = lacks_key & F.lit(not joins.keeps_alone(node, side))
            fate = (
                F.when(F.col(IS_NULL), "null value").when(dropped, "null key").when(late, "late").otherwise("counted")
            )
            self.journal.note(timed, fate)
            self._late(timed.where(~F.col(IS_NULL) & late), keys[side], margin)
            on_time.append(timed.where(~F.col(IS_NULL) & ~dropped & ~late))
        bound_ms = 0 if node.kind == "inner" else self._frontier_ms(node) - waits_ms(node)
        return joins.paired(node, *on_time, alone_before_ms=bound_ms)

    def looked_up(self, node: StreamTableJoin, stream: Rows, table: Rows) -> Rows:
        """Each record with the table's row; a record without one is filtered by an inner join."""
        frame = stream.current
        self.journal.note(frame.where(F.col(IS_NULL)), F.lit("null value"))
        valued = frame.where(~F.col(IS_NULL))
        if node.grace_ms is not None:
            due = valued.where(F.col(TIME) + node.grace_ms <= self._frontier_ms(node.right))
            valued = held_back(judged(due, self._times(node.left, self._nowhere(node.left))))
        keyed = lookups.keyed_for_lookup(node, valued)
        if self.lateness or node.as_of == "arrival":
            keyed = self._with_read(node, keyed, table)
        found = self._keep(lookups.looked_up(node, keyed, table))
        self.journal.unread_by(lookups.unread_changes(node, found))
        by, row = joins.of(joins.LEFT, lookups.BY), joins.of(joins.RIGHT, TIME)
        missing = F.when(by.isNull(), "null key").otherwise("filtered")
        fate = F.lit("counted") if node.kind == "left" else F.when(row.isNotNull(), "counted").otherwise(missing)
        places = [joins.of(joins.LEFT, name).alias(name) for name in PLACE]
        self.journal.note(found.select(*places, fate.alias("__fate")), F.col("__fate"))
        return lookups.with_table_row(node, found)

    def _with_read(self, node: StreamTableJoin, keyed: DataFrame, table: Rows) -> DataFrame:
        """How far the table had been read when each record looked its row up; the whole of it, where nobody said."""
        awaited = waits(node)
        if node.grace_ms is None:
            if self.table_ends is None:
                return keyed
            lookups.require_offsets(node, table)
            if leaves_at_once(node.left):
                return lookups.with_read(keyed, self.table_ends, self.session)
            if self.batches is not None and leaves_when_read(node.left):
                return lookups.with_read_of_all(keyed, self.batches, self.session)
        if self.batches is None or awaited is None or not lies_in_the_log(node.right):
            return keyed
        until = [Wait(self.frontiers_ms(one, self.batches), ahead_ms) for one, ahead_ms in awaited]
        return lookups.with_read_when_due(keyed, self.batches, until, self.session)

    def deduplicated(self, node: Deduplicate, above: Rows) -> Rows:
        """The first of each id; a record is late when its id's horizon has passed."""
        frame = above.current.withColumn(remembering.IDENTITY, remembering.identity(node))
        has_id = F.col(remembering.IDENTITY).isNotNull()
        judging = [(frame, ~has_id, has_id)]
        timed = judged(frame, self._times(node, self._without(node, judging)))
        margin = F.col(STREAM_TIME) - F.col(TIME) - node.horizon_ms - 1
        late = F.coalesce(margin >= 0, F.lit(False))
        self.journal.note(timed, F.when(~has_id, "null key").when(late, "late"))
        self._late(timed.where(has_id & late), F.col(remembering.IDENTITY), margin)
        on_time = timed.where(has_id & ~late)
        if self.lateness and self.batches is not None and not goes_by_offset(node):
            decided_by = Wait(self.frontiers_ms(node, self.batches), node.horizon_ms + 1)
            on_time = with_left_in(on_time, self.batches, [decided_by])
        decided = self._keep(remembering.with_winners(node, on_time))
        self.journal.unread_by(remembering.read_too_late(decided))
        wins = F.col(remembering.WINS)
        self.journal.note(decided, F.when(wins, "counted").otherwise("deduplicated"))
        if not goes_by_offset(node):
            due = decided.where(F.col(TIME) + node.horizon_ms < self._frontier_ms(node))
            decided = held_back(due)
        return above.with_frame(node, shaped(decided.where(wins), node.fields), "records")

    def ordered(self, node: InOrder, above: Rows) -> Rows:
        """The records on time, each with its event time before its order."""
        frame = above.current
        timed = judged(frame, self._times(node, self._without(node, [(frame, F.lit(False), F.lit(True))])))
        timed, passed = self._with_passed(node, timed)
        margin = passed - F.col(TIME) - node.grace_ms - 1
        late = F.coalesce(margin >= 0, F.lit(False))
        self.journal.note(timed, F.when(late, "late"))
        self._late(timed.where(late).withColumn(STREAM_TIME, passed), named(node.key), margin)
        due = held_back(timed.where(~late & (F.col(TIME) + node.grace_ms < self._frontier_ms(node))))
        ordered = due.withColumn(ORDER, F.concat(at_time(), F.col(ORDER)))
        return above.with_frame(node, shaped(ordered, node.fields), "records")

    def _with_passed(self, node: Node, timed: DataFrame) -> tuple[DataFrame, Column]:
        """``timed``, and the time up to which records had left when each was read: no earlier one is on time any more.

        That of its own partition; or the frontier, where the partition had been idle.
        """
        if not self.lateness or self.batches is None:
            return timed, F.col(STREAM_TIME)
        reached = with_reached_before(timed, self.batches, self.frontiers_ms(node, self.batches))
        return self._keep(reached), F.greatest(STREAM_TIME, REACHED_BEFORE)

    def processed(self, node: Process, above: Rows) -> Rows:
        """Each key's records in their order, with timers; at last those that the frontier has reached."""
        require_ordered(node.input, node)
        frame, has_key = above.current, named(node.key).isNotNull()
        without = self._without(node, [(frame, ~has_key, remembering.takes(node))])
        entries, delay_ms = self._entries(node), waited_above_ms(node)
        timed = judged(frame.where(remembering.takes(node)), stream_times(entries, without, before=True))
        reached = timed.withColumn(STREAM_TIME, F.col(STREAM_TIME) - delay_ms)
        fate = F.when(~has_key, "null key").when(F.col(IS_NULL), "null value").otherwise("counted")
        self.journal.note(frame, fate)
        end_ms = self._timers_end_ms(node, entries, without)
        self.processed_or_raised[node] = self._keep(remembering.processed_by_key(node, above, reached, end_ms).frame)
        return above.with_frame(node, returned(self.processed_or_raised[node]), "records")

    def held_after_ms(self, node: Suppress) -> int:
        """A row whose first update is not after this has left the suppression."""
        if self.batches is None:
            return ALL_DUE
        entries, nowhere = self._entries(node), self._nowhere(node)
        return _last(reached_ms(self.batches, entries, nowhere, topics_awaited(node))) - node.limit_ms

    def release(self) -> None:
        """Give the cached frames back."""
        for frame in self.kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        """``frame``, computed once; what led to it is forgotten, for plans that grow with every operator take long."""
        checkpoint = frame.localCheckpoint(eager=False)
        self.kept.append(checkpoint)
        # columns of their own: Spark cannot rename those of a checkpoint where it meets the frame that it was made of
        return checkpoint.select(*(named(name).alias(name) for name in checkpoint.columns))

    def _entries(self, node: Node) -> DataFrame:
        first, *others = (self.entries[topic] for topic in sorted(topics_awaited(node)))
        for other in others:
            first = first.union(other)
        return first

    def _without(self, node: Node, judging: Sequence[tuple[DataFrame, Column, Column]]) -> DataFrame:
        """The places of records that do not advance the stream time of ``node``: refused by it, or further up."""
        above = [self.passed_over[judge] for judge in refusing_above(node)]
        found = self._nowhere(node) if is_held_back(node) else self._keep(refused(judging, above))
        self.passed_over[node] = found
        return found

    def _nowhere(self, node: Node) -> DataFrame:
        return refused([(self._entries(node), F.lit(False), F.lit(True))])

    def _times(self, node: Node, without: DataFrame) -> DataFrame | None:
        return stream_times(self._entries(node), without) if self.lateness else None

    def _frontier_ms(self, node: Node) -> int:
        """How far the frontier of ``node`` had come, less what the operators above delay; never ahead of theirs."""
        return ALL_DUE if self.batches is None else _last(self.frontiers_ms(node, self.batches))

    def frontiers_ms(self, node: Node, batches: Sequence[BatchEnds]) -> list[int]:
        """How far the frontier of ``node`` had come after each batch, less what the operators above delay."""
        if node not in self.frontiers:
            without = self.passed_over[node] if node in self.passed_over else self._nowhere(node)
            own = reached_ms(batches, self._entries(node), without, topics_awaited(node))
            ways = [(own, waited_above_ms(node))]
            ways += [(self.frontiers_ms(judge, batches), delay_ms) for judge, delay_ms in judges_above(node)]
            behind = [[reached - delay_ms for reached in frontiers] for frontiers, delay_ms in ways]
            self.frontiers[node] = [max(NONE_DUE, min(each)) for each in zip(*behind, strict=True)]
        return self.frontiers[node]

    def _timers_end_ms(self, node: Process, entries: DataFrame, without: DataFrame) -> int | None:
        if self.batches is not None:
            reached = self._frontier_ms(node)
            return reached if reached > NONE_DUE else None
        frontier_ms = self.frontier_ms if self.frontier_ms is not None else _frontier_ms(entries, without)
        return None if frontier_ms is None else frontier_ms - waited_above_ms(node)

    def _late(self, rows: DataFrame, key: Column, margin: Column) -> None:
        self.journal.late_for(rows, key, margin, F.lit(None), F.lit(None))


def _last(frontiers_ms: Sequence[int]) -> int:
    return frontiers_ms[-1] if frontiers_ms else NONE_DUE


def _frontier_ms(entries: DataFrame, without: DataFrame) -> int | None:
    """The smallest stream time of all partitions."""
    advancing = entries.join(without, list(PLACE), "left").where(F.col("__refused").isNull())
    reached = advancing.groupBy(TOPIC, PARTITION).agg(F.max(TIME).alias(TIME))
    [row] = reached.agg(F.min(TIME).alias(TIME)).collect()
    found: int | None = row[TIME]
    return found
