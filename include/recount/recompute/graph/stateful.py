"""Operators that judge time: who is late by which stream time, who is handed on, and what is noted of each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.core.changelogs import Suppress
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import WINDOW_END, WINDOW_START, Filter, Node, WindowedAggregate, WithFields
from recount.core.processing import Deduplicate, InOrder, Process
from recount.core.stateless import Peek, Repartition, Select, Through
from recount.recompute.columns import named
from recount.recompute.decoding import IS_NULL
from recount.recompute.graph import joins, lookups, remembering
from recount.recompute.graph.carrying import CLOCKS, IS_NEW, Carrying, require_incremental
from recount.recompute.graph.frontiers import (
    ALL_DUE,
    LEFT_IN,
    NONE_DUE,
    REACHED_BEFORE,
    BatchEnds,
    Partition,
    Reached,
    Wait,
    reached,
    with_left_in,
    with_reached_before,
)
from recount.recompute.graph.journal import Journal
from recount.recompute.graph.judging import STREAM_TIME, held_back, judged, refused, stream_times
from recount.recompute.graph.ordering import leaves_at_once, leaves_when_read, lies_in_the_log, require_ordered, waits
from recount.recompute.graph.rows import ORDER, PARTITION, PLACE, TIME, TOPIC, Rows, at_time, last_of, shaped
from recount.recompute.graph.stateless import returned, stateless
from recount.recompute.graph.windowing import Windowing
from recount.recompute.rules.deduplicating import goes_by_offset
from recount.recompute.rules.waiting import (
    is_held_back,
    judges_above,
    refusing_above,
    topics_awaited,
    waited_above_ms,
    waits_ms,
)

BEYOND_SCHEMA = "topic string, partition int, offset long, timestamp_ms long, operator string"


@dataclass(kw_only=True)
class Stateful:
    """The operators that judge time, over the ``entries`` of each topic: all that could advance stream time.

    Without ``lateness`` nothing is late. With ``batches`` only what was due after them leaves. ``carrying`` has what
    the stretch of the log before left behind, and takes what the next one must know. ``passed_over`` has the places of
    records that did not advance an operator's stream time, ``on_time`` the records that an aggregation has placed in
    windows, ``again`` all due windows within the look back, ``processed_or_raised`` what processors made, beside the
    records for which they raised, ``tried`` the records that folds were tried with, ``beyond`` those that came too late
    even for what was carried. Frames that are read more than once are computed once, and held until nobody refers to
    them.
    """

    entries: Mapping[str, DataFrame]
    lateness: bool
    table_ends: Sequence[lookups.TableEnds] | None
    frontier_ms: int | None
    batches: Sequence[BatchEnds] | None
    journal: Journal
    carrying: Carrying
    passed_over: dict[Node, DataFrame] = field(default_factory=dict)
    reached: dict[str, Reached] = field(default_factory=dict)
    frontiers: dict[Node, list[int]] = field(default_factory=dict)
    clocks: dict[str, tuple[frozenset[str], DataFrame]] = field(default_factory=dict)
    on_time: dict[Node, DataFrame] = field(default_factory=dict)
    again: dict[Node, Rows] = field(default_factory=dict)
    processed_or_raised: dict[Node, DataFrame] = field(default_factory=dict)
    tried: dict[Node, DataFrame] = field(default_factory=dict)
    beyond: list[DataFrame] = field(default_factory=list)

    def windowed(self, node: WindowedAggregate, above: Rows) -> Rows:
        """Records placed in windows, the late ones noted for each, the others aggregated."""
        return Windowing(node=node, operators=self).rows(above)

    def stream_joined(self, node: StreamStreamJoin, sides: Sequence[Rows]) -> Rows:
        """Each side judged by its own partitions; a null key is kept on an outer side only."""
        frames = [side.current for side in sides]
        keys = [named(side.key) for side in (node.left, node.right)]
        judging = [
            (frame, ~F.col(IS_NULL) & key.isNull(), ~F.col(IS_NULL) & key.isNotNull())
            for frame, key in zip(frames, keys, strict=True)
        ]
        times = self.times(node, judging)
        known = []
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
            on_time = timed.where(~F.col(IS_NULL) & ~dropped & ~late)
            within = self._within_reach(node, on_time, waits_ms(node), lacks_key)
            known.append(self._joinable(node, side, within, keys[side]))
        before_ms = self.carrying.frontier_before_ms(node) - waits_ms(node)
        bound_ms = 0 if node.kind == "inner" else self.frontier_now_ms(node) - waits_ms(node)
        return joins.paired(node, *known, alone_before_ms=bound_ms, alone_since_ms=before_ms)

    def _joinable(self, node: StreamStreamJoin, side: int, on_time: DataFrame, key: Column) -> DataFrame:
        """The records of one ``side`` that others can be joined with."""
        what = f"side-{side}"
        known = self.carrying.with_carried(node, what, on_time)

        def kept() -> DataFrame:
            return known.where(key.isNotNull() & (F.col(TIME) >= self.since_ms(node) - joins.reach_ms(node)))

        self.carrying.keep(node, what, kept)
        return known

    def looked_up(self, node: StreamTableJoin, stream: Rows, table: Rows) -> Rows:
        """Each record with the table's row; a record without one is filtered by an inner join."""
        frame = stream.current
        self.journal.note(frame.where(F.col(IS_NULL)), F.lit("null value"))
        valued = frame.where(~F.col(IS_NULL))
        if node.grace_ms is not None:
            valued = held_back(self._due(node, valued, node.grace_ms))
        keyed = lookups.keyed_for_lookup(node, valued)
        if self.lateness or node.as_of == "arrival":
            keyed = self._with_read(node, keyed, table)
        found = self._keep(lookups.looked_up(node, keyed, table, self.carrying))
        self.journal.unread_by(lookups.unread_changes(node, found))
        by, row = joins.of(joins.LEFT, lookups.BY), joins.of(joins.RIGHT, TIME)
        missing = F.when(by.isNull(), "null key").otherwise("filtered")
        fate = F.lit("counted") if node.kind == "left" else F.when(row.isNotNull(), "counted").otherwise(missing)
        places = [joins.of(joins.LEFT, name).alias(name) for name in PLACE]
        self.journal.note(found.select(*places, fate.alias("__fate")), F.col("__fate"))
        return lookups.with_table_row(node, found)

    def _due(self, node: StreamTableJoin, valued: DataFrame, grace_ms: int) -> DataFrame:
        """The judged records that the table's time has reached; the others wait."""
        nowhere, stood = self._nowhere(node.left), self._stood_of_topics(node.left)
        times = stream_times(self._entries(node.left), nowhere, stood) if self.lateness else None
        timed = judged(valued, times)
        known = self.carrying.with_carried(node, "waiting", timed)
        is_due = F.col(TIME) + grace_ms <= self.frontier_now_ms(node.right)
        if self.batches is not None:
            known = self._keep(known)
        self.carrying.keep(node, "waiting", lambda: known.where(~is_due))
        return known.where(is_due).drop(IS_NEW)

    def _with_read(self, node: StreamTableJoin, keyed: DataFrame, table: Rows) -> DataFrame:
        """How far the table had been read when each record looked its row up; the whole of it, where nobody said."""
        awaited = waits(node)
        if node.grace_ms is None:
            if self.table_ends is None:
                return keyed
            lookups.require_offsets(node, table)
            if leaves_at_once(node.left):
                return lookups.with_read(keyed, self.table_ends, self.carrying.session)
            if self.batches is not None and leaves_when_read(node.left):
                return lookups.with_read_of_all(keyed, self.batches, self.carrying.session)
        if self.batches is None or awaited is None or not lies_in_the_log(node.right):
            return keyed
        until = [Wait(self.frontiers_ms(one, self.batches), ahead_ms) for one, ahead_ms in awaited]
        return lookups.with_read_when_due(keyed, self.batches, until, self.carrying.session)

    def deduplicated(self, node: Deduplicate, above: Rows) -> Rows:
        """The first of each id; a record is late when its id's horizon has passed."""
        frame = above.current.withColumn(remembering.IDENTITY, remembering.identity(node))
        has_id = F.col(remembering.IDENTITY).isNotNull()
        timed = judged(frame, self.times(node, [(frame, ~has_id, has_id)]))
        margin = F.col(STREAM_TIME) - F.col(TIME) - node.horizon_ms - 1
        late = F.coalesce(margin >= 0, F.lit(False))
        self.journal.note(timed, F.when(~has_id, "null key").when(late, "late"))
        self._late(timed.where(has_id & late), F.col(remembering.IDENTITY), margin)
        on_time = self._within_reach(node, timed.where(has_id & ~late), node.horizon_ms)
        decided = self._decided(node, on_time)
        self.journal.unread_by(remembering.read_too_late(decided))
        wins = F.col(remembering.WINS)
        self.journal.note(decided.where(IS_NEW), F.when(wins, "counted").otherwise("deduplicated"))
        left = decided.where(wins & self._has_left(node) & ~F.col(remembering.HANDED_ON))
        if not goes_by_offset(node):
            left = held_back(left)
        return above.with_frame(node, shaped(left, node.fields), "records")

    def _has_left(self, node: Deduplicate) -> Column:
        if goes_by_offset(node):
            return F.lit(True)
        return F.col(TIME) + node.horizon_ms < self.frontier_now_ms(node)

    def _decided(self, node: Deduplicate, on_time: DataFrame) -> DataFrame:
        """The records on time and those that were carried, with ``WINS``.

        Carried are the records of a horizon, and winners of the horizon before it: what they are is settled.
        """
        horizon_ms, handed_on = node.horizon_ms, F.col(remembering.HANDED_ON)
        new = on_time.withColumns({remembering.HANDED_ON: F.lit(False), remembering.WON: F.lit(False)})
        known = self.carrying.with_carried(node, "records", new)
        is_old = F.col(TIME) < self.carrying.since_before_ms(node) - horizon_ms
        known = known.withColumn(remembering.SETTLED, ~F.col(IS_NEW) & F.col(remembering.WON) & is_old)
        if self.lateness and self.batches is not None and not goes_by_offset(node):
            decided_by = Wait(self.frontiers_ms(node, self.batches), horizon_ms + 1)
            numbered = with_left_in(known, self.batches, [decided_by])
            known = numbered.withColumn(LEFT_IN, F.when(handed_on, -1).otherwise(F.col(LEFT_IN)))
        decided = self._keep(remembering.with_winners(node, known))

        def kept() -> DataFrame:
            wins, first_ms = F.col(remembering.WINS), self.since_ms(node) - horizon_ms
            near = (F.col(TIME) >= first_ms) | (wins & (F.col(TIME) >= first_ms - horizon_ms))
            told = {remembering.HANDED_ON: handed_on | (wins & self._has_left(node)), remembering.WON: wins}
            return decided.where(near).withColumns(told)

        self.carrying.keep(node, "records", kept)
        return decided

    def ordered(self, node: InOrder, above: Rows) -> Rows:
        """The records on time, each with its event time before its order."""
        frame = above.current
        timed = judged(frame, self.times(node, [(frame, F.lit(False), F.lit(True))]))
        timed, passed = self._with_passed(node, timed)
        margin = passed - F.col(TIME) - node.grace_ms - 1
        late = F.coalesce(margin >= 0, F.lit(False))
        self.journal.note(timed, F.when(late, "late"))
        self._late(timed.where(late).withColumn(STREAM_TIME, passed), named(node.key), margin)
        known = self.carrying.with_carried(node, "held", timed.where(~late).drop(REACHED_BEFORE))
        if self.batches is not None:
            known = self._keep(known)
        is_due = F.col(TIME) + node.grace_ms < self.frontier_now_ms(node)
        self.carrying.keep(node, "held", lambda: known.where(~is_due))
        ordered = held_back(known.where(is_due)).withColumn(ORDER, F.concat(at_time(), F.col(ORDER)))
        return above.with_frame(node, shaped(ordered, node.fields), "records")

    def _with_passed(self, node: Node, timed: DataFrame) -> tuple[DataFrame, Column]:
        """``timed``, and the time up to which records had left when each was read: no earlier one is on time any more.

        That of its own partition; or the frontier, where the partition had been idle.
        """
        if not self.lateness or self.batches is None:
            return timed, F.col(STREAM_TIME)
        first_ms = self.carrying.frontier_before_ms(node)
        reached = with_reached_before(timed, self.batches, self.frontiers_ms(node, self.batches), first_ms)
        return self._keep(reached), F.greatest(STREAM_TIME, REACHED_BEFORE)

    def processed(self, node: Process, above: Rows) -> Rows:
        """Each key's records in their order, with timers; at last those that the frontier has reached."""
        require_ordered(node.input, node)
        frame, has_key = above.current, named(node.key).isNotNull()
        without = self._without(node, [(frame, ~has_key, remembering.takes(node))])
        entries, delay_ms = self._entries(node), waited_above_ms(node)
        stood = self._stood(node)
        timed = judged(frame.where(remembering.takes(node)), stream_times(entries, without, stood, before=True))
        reached = timed.withColumn(STREAM_TIME, F.col(STREAM_TIME) - delay_ms)
        fate = F.when(~has_key, "null key").when(F.col(IS_NULL), "null value").otherwise("counted")
        self.journal.note(frame, fate)
        end_ms = self._timers_end_ms(node, entries, without)
        known = reached.withColumn(remembering.STATE, F.lit(None).cast("string"))
        before = self.carrying.carried_to(node, "states", [node.key, remembering.STATE])
        if before is not None:
            known = known.unionByName(before.drop(IS_NEW), allowMissingColumns=True)
        made = self._keep(remembering.processed_by_key(node, above, known, end_ms))
        is_state = F.col(remembering.STATE).isNotNull()
        self.carrying.keep(node, "states", lambda: made.where(is_state))
        self.processed_or_raised[node] = made.where(~is_state).drop(remembering.STATE)
        return above.with_frame(node, returned(self.processed_or_raised[node]), "records")

    def suppressed(self, node: Suppress, above: Rows) -> Rows:
        """The last update of each row; those too that were held back at the last cut."""
        known = self.carrying.with_carried(node, "held", above.latest)
        bounds = [name for name in (WINDOW_START, WINDOW_END) if name in node.fields]
        keys = [named(name) for name in (node.key, *bounds)]
        latest = known if self.carrying.carried is None else last_of(known, keys, F.col(IS_NEW), F.col(ORDER))
        self.carrying.keep(node, "held", lambda: latest.where(F.col(TIME) > self.held_after_ms(node)))
        return above.with_frame(node, latest.drop(IS_NEW), "latest")

    def held_after_ms(self, node: Suppress) -> int:
        """A row whose first update is not after this has left the suppression."""
        return ALL_DUE if self.batches is None else self._reached(node, self.batches).last_ms - node.limit_ms

    def report_beyond(self, node: Node, rows: DataFrame) -> None:
        """Note that ``rows`` came to ``node`` too late for what was carried to it."""
        said = ("topic", "partition", "offset", "timestamp_ms")
        told = [F.col(name).alias(alias) for name, alias in zip((*PLACE, TIME), said, strict=True)]
        self.beyond.append(rows.select(*told, F.lit(str(node)).alias("operator")).distinct())

    def all_due(self, node: Node) -> Rows | None:
        """What leaves ``node`` of ``again``; None where it leaves no results of windows one by one."""
        if isinstance(node, Filter | WithFields | Select | Peek | Repartition | Through):
            above = self.all_due(node.input)
            return None if above is None else stateless(node, [above])
        return self.again.get(node)

    def all_beyond(self) -> DataFrame:
        """The records that came too late for what was carried, each with the operator that says so."""
        nothing = self.carrying.session.createDataFrame([], BEYOND_SCHEMA)
        return reduce(DataFrame.unionByName, self.beyond, nothing)

    def kept(self) -> dict[str, DataFrame]:
        """What the next stretch of the log must know of this one."""
        batches = self.batches
        assert batches is not None, "a stretch of the log ends with a batch"
        require_incremental(self.carrying.names)
        frames = {name: made() for name, made in self.carrying.kept.items()}
        frontiers = {node: self.frontier_now_ms(node) for node in self.carrying.asked}
        reached = {name: self._reached_by(name, batches) for name in self.clocks}
        return {CLOCKS: self.carrying.clocks(reached, frontiers), **frames}

    def release(self) -> None:
        """Give the cached frames back."""
        for frame in self.carrying.held:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        return self.carrying.once(frame)

    def _within_reach(self, node: Node, on_time: DataFrame, back_ms: int, spared: Column | None = None) -> DataFrame:
        """Without new records more than ``back_ms`` older than the look back goes, but those that are ``spared``."""
        first_ms = self.carrying.since_before_ms(node) - back_ms
        if first_ms < NONE_DUE // 2:
            return on_time
        is_gone = (F.col(TIME) < first_ms) & (F.lit(True) if spared is None else ~spared)
        self.report_beyond(node, on_time.where(is_gone))
        return on_time.where(~is_gone)

    def _entries(self, node: Node) -> DataFrame:
        return self._entries_of(topics_awaited(node))

    def _entries_of(self, topics: frozenset[str]) -> DataFrame:
        first, *others = (self.entries[topic] for topic in sorted(topics))
        for other in others:
            first = first.union(other)
        return first

    def times(self, node: Node, judging: Sequence[tuple[DataFrame, Column, Column]]) -> DataFrame | None:
        """The stream times by which ``node`` judges, after ``refused``."""
        without = self._without(node, judging)
        return stream_times(self._entries(node), without, self._stood(node)) if self.lateness else None

    def _without(self, node: Node, judging: Sequence[tuple[DataFrame, Column, Column]]) -> DataFrame:
        """The places of records that do not advance the stream time of ``node``: refused by it, or further up."""
        if is_held_back(node):
            return self._nowhere(node)
        above = [self.passed_over[judge] for judge in refusing_above(node) if judge in self.passed_over]
        found = self.passed_over[node] = self._keep(refused(judging, above))
        return found

    def _nowhere(self, node: Node) -> DataFrame:
        return refused([(self._entries(node), F.lit(False), F.lit(True))])

    def frontier_now_ms(self, node: Node) -> int:
        """How far the frontier of ``node`` had come, less what the operators above delay; never ahead of theirs."""
        if self.batches is None:
            return ALL_DUE
        frontiers = self.frontiers_ms(node, self.batches)
        return frontiers[-1] if frontiers else self.carrying.frontier_before_ms(node)

    def since_ms(self, node: Node) -> int:
        """How far back what is carried to ``node`` must reach."""
        return self.carrying.since_ms(self.frontier_now_ms(node))

    def frontiers_ms(self, node: Node, batches: Sequence[BatchEnds]) -> list[int]:
        """How far the frontier of ``node`` had come after each batch, less what the operators above delay."""
        if node not in self.frontiers:
            ways = [(self._reached(node, batches).frontiers_ms, waited_above_ms(node))]
            ways += [(self.frontiers_ms(judge, batches), delay_ms) for judge, delay_ms in judges_above(node)]
            behind = [[reached - delay_ms for reached in frontiers] for frontiers, delay_ms in ways]
            self.frontiers[node] = [max(NONE_DUE, min(each)) for each in zip(*behind, strict=True)]
        return self.frontiers[node]

    def _stood(self, node: Node) -> Mapping[Partition, int]:
        """The stream times of ``node`` at the last cut."""
        return self._stood_of(node) if node in self.passed_over else self._stood_of_topics(node)

    def _stood_of(self, node: Node) -> Mapping[Partition, int]:
        name = self.carrying.names[node]
        self.clocks[name] = topics_awaited(node), self.passed_over[node]
        return self.carrying.stood(name).stream_times

    def _stood_of_topics(self, node: Node) -> Mapping[Partition, int]:
        """Of all records of its topics."""
        return self.carrying.stood(self._clock_of_topics(node)).stream_times

    def _clock_of_topics(self, node: Node) -> str:
        topics = topics_awaited(node)
        name = "+".join(sorted(topics))
        self.clocks.setdefault(name, (topics, self._nowhere(node)))
        return name

    def _reached(self, node: Node, batches: Sequence[BatchEnds]) -> Reached:
        """How far the frontier of ``node`` itself had come after each batch, and each partition in the end."""
        if node not in self.passed_over:
            return self._reached_by(self._clock_of_topics(node), batches)
        self._stood_of(node)
        return self._reached_by(self.carrying.names[node], batches)

    def _reached_by(self, clock: str, batches: Sequence[BatchEnds]) -> Reached:
        if clock not in self.reached:
            topics, without = self.clocks[clock]
            entries, stood = self._entries_of(topics), self.carrying.stood(clock)
            self.reached[clock] = reached(batches, entries, without, topics, stood)
        return self.reached[clock]

    def _timers_end_ms(self, node: Process, entries: DataFrame, without: DataFrame) -> int | None:
        if self.batches is not None:
            reached_ms = self.frontier_now_ms(node)
            return reached_ms if reached_ms > NONE_DUE else None
        frontier_ms = self.frontier_ms if self.frontier_ms is not None else _frontier_ms(entries, without)
        return None if frontier_ms is None else frontier_ms - waited_above_ms(node)

    def _late(self, rows: DataFrame, key: Column, margin: Column) -> None:
        self.journal.late_for(rows, key, margin, F.lit(None), F.lit(None))


def _frontier_ms(entries: DataFrame, without: DataFrame) -> int | None:
    """The smallest stream time of all partitions."""
    advancing = entries.join(without, list(PLACE), "left").where(F.col("__refused").isNull())
    reached = advancing.groupBy(TOPIC, PARTITION).agg(F.max(TIME).alias(TIME))
    [row] = reached.agg(F.min(TIME).alias(TIME)).collect()
    found: int | None = row[TIME]
    return found
