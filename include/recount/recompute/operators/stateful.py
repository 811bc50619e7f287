"""Operators that judge time: who is late by which stream time, who is handed on, and what is noted of each record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin
from recount.declare.operators.nodes import Filter, Node, SelectKey, Sink, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import FlatMap, Foreach, Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress
from recount.declare.windows import GlobalWindow, LastN
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, named
from recount.recompute.frames.duck_frames import Frame, no_rows, once, union_of
from recount.recompute.operators import log_joins, log_processing, log_tables
from recount.recompute.operators.carried import CLOCKS, IDENTITY, IS_NEW, Carrying, require_incremental
from recount.recompute.operators.frontiers import (
    ALL_DUE,
    LEFT_IN,
    NONE_DUE,
    REACHED_BEFORE,
    BatchEnds,
    Wait,
    behind,
    with_left_in,
    with_reached_before,
)
from recount.recompute.operators.log_clocks import Clocks, Journal
from recount.recompute.operators.log_order import (
    NotRecomputable,
    closing,
    leaves_at_once,
    leaves_when_read,
    lies_in_the_log,
    require_offsets,
    require_ordered,
    waits,
)
from recount.recompute.operators.log_rows import (
    OFFSET,
    ORDER,
    PLACE,
    STREAM_TIME,
    TIME,
    TURN,
    TURN_TYPE,
    Rows,
    at_time,
    held_back,
    in_turn,
    judged,
    last_of,
    shaped,
    window_end,
)
from recount.recompute.operators.log_stateless import or_deleted, returned, stateless
from recount.recompute.operators.windowed_rows import Windowing
from recount.recompute.rules.time_rules import goes_by_offset, overdue_ms, waited_above_ms, waits_ms

BEYOND_SCHEMA = "topic string, partition int, offset long, timestamp_ms long, operator string"


_Kinds = tuple[type[Filter | WithFields | Select | SelectKey | FlatMap | Peek | Repartition | Through], ...]
Readers = Mapping[Node, Sequence[tuple[Node, int]]]
_ONE_FROM_ONE = (Filter, WithFields, Select, Peek, Repartition, Through)
"""Operators that make one row, or none, of each."""
_FROM_ONE = (*_ONE_FROM_ONE, SelectKey, FlatMap)
"""These, and those that make rows of another key, or several."""


@dataclass(kw_only=True)
class Stateful:
    """The operators that judge time, by ``clocks``.

    Without ``lateness`` nothing is late. With ``batches`` only what was due after them leaves. ``carrying`` has what
    the interval of the log before left behind, and takes what the next one must know. ``on_time`` has the records that
    an aggregation has placed in windows, ``came`` those of the interval, late ones too,
    ``again`` all due windows and looked-up rows within the look back, ``replaced`` the final results that left in an
    earlier one, as they are now, with deletions of those that are no more,
    ``taken_back`` the rows that left joins alone in an earlier one, without lateness, and have a partner now,
    ``overtaken`` the changes of tables, and partners, that came too late for rows of earlier intervals,
    ``processed_or_raised`` what
    processors made, beside the records for which they raised, ``tried`` the records that folds were tried with,
    ``looked_up_rows`` what lookups found, ``asked`` that of the rows of this interval,
    ``waiting`` the rows that wait for a table in which they can look a limited time back,
    ``beyond`` those that came too late even for what was carried, ``added`` those of them whose windows add up.
    What was closed at ``closed_ms`` stays closed.
    """

    lateness: bool
    table_ends: Sequence[log_tables.TableEnds] | None
    batches: Sequence[BatchEnds] | None
    journal: Journal
    carrying: Carrying
    clocks: Clocks
    on_time: dict[Node, Frame] = field(default_factory=dict)
    came: dict[Node, Frame] = field(default_factory=dict)
    again: dict[Node, Rows] = field(default_factory=dict)
    replaced: dict[Node, Rows] = field(default_factory=dict)
    processed_or_raised: dict[Node, Frame] = field(default_factory=dict)
    tried: dict[Node, Frame] = field(default_factory=dict)
    looked_up_rows: dict[Node, Frame] = field(default_factory=dict)
    asked: dict[StreamTableJoin, Frame] = field(default_factory=dict)
    taken_back: dict[Node, Rows] = field(default_factory=dict)
    overtaken: dict[Node, Frame] = field(default_factory=dict)
    waiting: dict[Node, Frame] = field(default_factory=dict)
    beyond: list[Frame] = field(default_factory=list)
    added: dict[WindowedAggregate, Frame] = field(default_factory=dict)
    closed_ms: int = NONE_DUE

    def windowed(self, node: WindowedAggregate, above: Rows) -> Rows:
        """Records placed in windows, the late ones noted for each, the others aggregated."""
        return Windowing(node=node, operators=self).rows(above)

    def stream_joined(self, node: StreamStreamJoin, sides: Sequence[Rows]) -> Rows:
        """Each side judged by its own partitions; a null key is kept on an outer side only."""
        frames = [side.current for side in sides]
        keys = [named(side.key) for side in (node.left, node.right)]
        judging = [
            (frame, ~F.col(IS_NULL) & key.is_null(), ~F.col(IS_NULL) & key.is_not_null())
            for frame, key in zip(frames, keys, strict=True)
        ]
        times = self.clocks.times(node, judging)
        known = []
        for side, (frame, lacks_key, _) in enumerate(judging):
            bound_ms = log_joins.lateness_bound_ms(node, side)
            margin = F.col(STREAM_TIME) - F.col(TIME) - bound_ms - 1
            late = ~lacks_key & F.coalesce(margin >= 0, F.lit(False))
            timed = once(judged(frame, times))
            dropped = lacks_key & F.lit(not log_joins.keeps_alone(node, side))
            fate = (
                F.when(F.col(IS_NULL), "null value").when(dropped, "null key").when(late, "late").otherwise("counted")
            )
            self.journal.note(timed, fate)
            self._late(timed.where(~F.col(IS_NULL) & late), keys[side], margin)
            on_time = timed.where(~F.col(IS_NULL) & ~dropped & ~late)
            within = self._within_reach(node, on_time, waits_ms(node), lacks_key)
            known.append(self._joinable(node, side, within, keys[side]))
        before_ms = behind(self.carrying.frontier_before_ms(node), waits_ms(node))
        bound_ms = 0 if node.kind == "inner" else behind(self.clocks.frontier_now_ms(node), waits_ms(node))
        left_before = self._left_before_partners(node, known, before_ms)
        if node.kind != "inner" and not self.lateness and self.carrying.carried is not None:
            found = once(log_joins.taken_back(node, *known, alone_before_ms=before_ms))
            self.taken_back[node] = log_joins.rows_of(node, found)
            self.overtaken[node] = log_joins.first_partners(found)
        return log_joins.paired(
            node, *known, alone_before_ms=bound_ms, alone_since_ms=before_ms, left_before=left_before
        )

    def _left_before_partners(self, node: StreamStreamJoin, known: Sequence[Frame], before_ms: int) -> Frame | None:
        """The records that left alone before partners on time came: a partition had been idle. None if none can.

        What was carried came before the first batch, and had left before it where its time is before ``before_ms``.
        """
        if node.kind == "inner" or not self.lateness or self.batches is None or not self.clocks.left_some_behind(node):
            return None
        left, right = (self._read_in(side, rows, self.batches) for side, rows in zip(node.inputs, known, strict=True))
        if left is None or right is None:
            return None
        until = Wait(self.clocks.frontiers_ms(node, self.batches), waits_ms(node) + 1)
        had_left = ~F.col(IS_NEW) & (F.col(TIME) < before_ms)
        left_at = F.when(had_left, -1).otherwise(F.greatest(LEFT_IN, log_joins.READ_IN))
        read_in = F.when(F.col(IS_NEW), F.col(log_joins.READ_IN)).otherwise(-1)
        sides = (rows.with_column(log_joins.READ_IN, read_in) for rows in (left, right))
        numbered = (with_left_in(rows, self.batches, [until]).with_column(LEFT_IN, left_at) for rows in sides)
        found = once(log_joins.left_before_partners(node, *numbered))
        self.journal.unread_by(log_joins.partners_read_too_late(node, found))
        return found

    def _read_in(self, side: Node, rows: Frame, batches: Sequence[BatchEnds]) -> Frame | None:
        """``rows`` of a ``side`` of a join with ``READ_IN``; None where the log does not say when they came."""
        awaited, closed_by, time = waits(side), closing(side), F.col(TIME)
        if awaited is None and closed_by is not None:
            awaited, time = [closed_by], window_end(F.col(ORDER))
        if awaited is None:
            return None
        until = [Wait(self.clocks.frontiers_ms(one, batches), ahead_ms) for one, ahead_ms in awaited]
        return with_left_in(rows, batches, until, time=time).renamed({LEFT_IN: log_joins.READ_IN})

    def _joinable(self, node: StreamStreamJoin, side: int, on_time: Frame, key: Column) -> Frame:
        """The records of one ``side`` that others can be joined with."""
        what = f"side-{side}"
        known = self.carrying.with_carried(node, what, on_time)

        def kept() -> Frame:
            first_ms = behind(self.clocks.since_ms(node), log_joins.reach_ms(node))
            return known.where(key.is_not_null() & (F.col(TIME) >= first_ms))

        self.carrying.keep(node, what, kept)
        return known

    def looked_up(self, node: StreamTableJoin, stream: Rows, table: Rows) -> Rows:
        """Each record with the table's row; a record without one is filtered by an inner join."""
        frame = stream.current
        self.journal.note(frame.where(F.col(IS_NULL)), F.lit("null value"))
        valued = frame.where(~F.col(IS_NULL))
        if node.history_ms is not None:
            valued = self._asking(node, valued, node.history_ms)
        if node.grace_ms is not None:
            valued = held_back(self._due(node, valued, node.grace_ms))
        keyed = log_tables.keyed_for_lookup(node, valued)
        if self.lateness or node.as_of == "arrival":
            keyed = self._with_read(node, keyed, table)
        if node.as_of == "event":
            keyed = self._asked_again(node, keyed, table)

        def needed(versions: Frame) -> Frame:
            return versions if node.history_ms is None else self._within_history(node, versions, every)

        found = every = once(log_tables.looked_up(node, keyed, table, self.carrying, needed))
        self.looked_up_rows[node] = found
        self.journal.unread_by(log_tables.unread_changes(node, found))
        if node.as_of == "event" and self.carrying.carried is not None:
            self.again[node] = log_tables.with_table_row(node, found)
            self.overtaken[node] = log_tables.changes_of_old_rows(found)
            found = found.where(log_joins.of(log_joins.LEFT, IS_NEW))
        self.asked[node] = found
        by, row = log_joins.of(log_joins.LEFT, log_tables.BY), log_joins.of(log_joins.RIGHT, TIME)
        missing = F.when(by.is_null(), "null key").otherwise("filtered")
        fate = F.lit("counted") if node.kind == "left" else F.when(row.is_not_null(), "counted").otherwise(missing)
        places = [log_joins.of(log_joins.LEFT, name).alias(name) for name in PLACE]
        self.journal.note(found.select(*places, fate.alias("__fate")), F.col("__fate"))
        return log_tables.with_table_row(node, found)

    def _asking(self, node: StreamTableJoin, valued: Frame, history_ms: int) -> Frame:
        """``valued`` rows with ``ASKED``; those for which that is not their own time are late for the history."""
        if leaves_at_once(node.left):
            timed = judged(valued, self.clocks.times_of_all_always(node.left))
        else:
            timed = judged(valued, None)
        if self.batches is not None:
            awaited = waits(node.left)
            if awaited is None and not leaves_when_read(node.left):
                raise NotRecomputable(
                    f"{node} cannot be recomputed",
                    given=f"a history, and {node.left}, of whose rows the log does not tell when they came",
                    expected="records of topics, in order or first ones too, or pairs of an inner join",
                    remedy="leave the history out: it is unlimited then",
                )
            if awaited is None:
                numbered = log_tables.with_last_in(timed, self.batches)
            else:
                until = [Wait(self.clocks.frontiers_ms(one, self.batches), ahead_ms) for one, ahead_ms in awaited]
                numbered = with_left_in(timed, self.batches, until)
            first_ms = self.carrying.frontier_at_cut_ms(node)
            timed = log_tables.reached_before(numbered, self.clocks.frontiers_ms(node, self.batches), first_ms)
        timed = once(timed)
        if self.lateness:
            margin = log_tables.margin(history_ms)
            asks = F.col(OFFSET).is_not_null() & log_tables.by_of(node).is_not_null()
            self._late(timed.where((margin >= 0) & asks), named(node.key), margin)
        return log_tables.asking(timed, history_ms).drop(STREAM_TIME)

    def _within_history(self, node: StreamTableJoin, versions: Frame, found: Frame) -> Frame:
        """The ``versions`` that later rows can ask for, or those that wait, or again those of the look back."""
        assert node.history_ms is not None
        rows = found.parts_of(log_joins.LEFT)
        again = rows.where(F.col(TIME) >= self.clocks.since_ms(node.left))
        if log_tables.READ not in again.columns:
            again = again.with_column(log_tables.READ, F.lit(None).cast(log_tables.READ_TYPE))
        bounds_ms = [self.clocks.frontier_now_ms(node) - node.history_ms, _least_ms(again)]
        if node in self.waiting:
            bounds_ms.append(_least_ms(self.waiting[node]))
        told = again.where(F.col(log_tables.READ).is_not_null()).select(log_tables.READ).distinct()
        ends = [dict(row[log_tables.READ]) for row in told.rows()]
        bound_ms = min(ms for ms in bounds_ms if ms is not None)
        return log_tables.without_forgotten(node, versions, bound_ms, log_tables.seen_by_all(ends))

    def _asked_again(self, node: StreamTableJoin, keyed: Frame, table: Rows) -> Frame:
        """With the rows of the look back, for which a change of the table can come yet; older changes are reported."""
        first_ms = self.carrying.since_before_ms(node.left)
        if first_ms >= NONE_DUE // 2 and not self.lateness:
            self.report_beyond(node, table.frame.where(F.col(TIME) < first_ms))
        known = self.carrying.with_carried(node, "asked", keyed)
        self.carrying.keep(node, "asked", lambda: known.where(F.col(TIME) >= self.clocks.since_ms(node.left)))
        return known

    def _due(self, node: StreamTableJoin, valued: Frame, grace_ms: int) -> Frame:
        """The judged records that the table's time has reached; the others wait."""
        timed = judged(valued, self.clocks.times_of_all(node.left))
        known = self.carrying.with_carried(node, "waiting", timed)
        is_due = F.col(TIME) + grace_ms <= self.clocks.frontier_now_ms(node.right)
        if self.batches is not None:
            known = once(known)
        self.carrying.keep(node, "waiting", lambda: known.where(~is_due))
        self.journal.note(known.where(~is_due), F.lit("waiting"))
        if node.history_ms is not None:
            self.waiting[node] = known.where(~is_due)
        return known.where(is_due).drop(IS_NEW)

    def _with_read(self, node: StreamTableJoin, keyed: Frame, table: Rows) -> Frame:
        """How far the table had been read when each record looked its row up; the whole of it, where nobody said."""
        awaited = waits(node)
        if node.grace_ms is None:
            if self.table_ends is None:
                return keyed
            require_offsets(node, table.holds)
            if leaves_at_once(node.left):
                return log_tables.with_read(keyed, self.table_ends, self.carrying.database)
            if self.batches is not None and leaves_when_read(node.left):
                return log_tables.with_read_of_all(keyed, self.batches, self.carrying.database)
        if self.batches is None or awaited is None or not lies_in_the_log(node.right):
            return keyed
        until = [Wait(self.clocks.frontiers_ms(one, self.batches), ahead_ms) for one, ahead_ms in awaited]
        return log_tables.with_read_when_due(keyed, self.batches, until, self.carrying.database)

    def deduplicated(self, node: Deduplicate, above: Rows) -> Rows:
        """The first of each id; a record is late when its id's horizon has passed."""
        frame = above.current.with_column(IDENTITY, log_processing.identity(node))
        has_id = F.col(IDENTITY).is_not_null()
        timed = judged(frame, self.clocks.times(node, [(frame, ~has_id, has_id)]))
        margin = F.col(STREAM_TIME) - F.col(TIME) - node.horizon_ms - 1
        late = F.coalesce(margin >= 0, F.lit(False))
        self.journal.note(timed, F.when(~has_id, "null key").when(late, "late"))
        self._late(timed.where(has_id & late), F.col(IDENTITY), margin)
        on_time = self._within_reach(node, timed.where(has_id & ~late), node.horizon_ms)
        decided = self._decided(node, on_time)
        self.journal.unread_by(log_processing.read_too_late(decided))
        wins = F.col(log_processing.WINS)
        fate = F.when(~self._has_left(node), "waiting").when(wins, "counted").otherwise("deduplicated")
        self.journal.note(decided.where(IS_NEW), fate)
        left = decided.where(wins & self._has_left(node) & ~F.col(log_processing.HANDED_ON))
        if not goes_by_offset(node):
            left = held_back(left)
        return above.with_frame(node, shaped(left, node.fields), "records")

    def _has_left(self, node: Deduplicate) -> Column:
        if goes_by_offset(node):
            return F.lit(True)
        return F.col(TIME) + node.horizon_ms < self.clocks.frontier_now_ms(node)

    def _decided(self, node: Deduplicate, on_time: Frame) -> Frame:
        """The records on time and those that were carried, with ``WINS``.

        Carried are the records of a horizon, and winners of the horizon before it: what they are is settled.
        """
        horizon_ms, handed_on = node.horizon_ms, F.col(log_processing.HANDED_ON)
        new = on_time.with_columns({log_processing.HANDED_ON: F.lit(False), log_processing.WON: F.lit(False)})
        known = self.carrying.with_carried(node, "records", new)
        is_old = F.col(TIME) < behind(self.carrying.since_before_ms(node), horizon_ms)
        known = known.with_column(log_processing.SETTLED, ~F.col(IS_NEW) & F.col(log_processing.WON) & is_old)
        if self.lateness and self.batches is not None and not goes_by_offset(node):
            decided_by = Wait(self.clocks.frontiers_ms(node, self.batches), horizon_ms + 1)
            numbered = with_left_in(known, self.batches, [decided_by])
            known = numbered.with_column(LEFT_IN, F.when(handed_on, -1).otherwise(F.col(LEFT_IN)))
        decided = once(log_processing.with_winners(node, known))

        def kept() -> Frame:
            wins, first_ms = F.col(log_processing.WINS), behind(self.clocks.since_ms(node), horizon_ms)
            near = (F.col(TIME) >= first_ms) | (wins & (F.col(TIME) >= behind(first_ms, horizon_ms)))
            told = {log_processing.HANDED_ON: handed_on | (wins & self._has_left(node)), log_processing.WON: wins}
            return decided.where(near).with_columns(told)

        self.carrying.keep(node, "records", kept)
        return decided

    def ordered(self, node: InOrder, above: Rows) -> Rows:
        """The records on time, each with its event time before its order."""
        frame = above.current
        timed = judged(frame, self.clocks.times(node, [(frame, F.lit(False), F.lit(True))]))
        timed, passed = self._with_passed(node, timed)
        margin = passed - F.col(TIME) - node.grace_ms - 1
        late = F.coalesce(margin >= 0, F.lit(False))
        self.journal.note(timed, F.when(late, "late"))
        self._late(timed.where(late).with_column(STREAM_TIME, passed), named(node.key), margin)
        known = self.carrying.with_carried(node, "held", timed.where(~late).drop(REACHED_BEFORE))
        if self.batches is not None:
            known = once(known)
        is_due = F.col(TIME) + node.grace_ms < self.clocks.frontier_now_ms(node)
        self.carrying.keep(node, "held", lambda: known.where(~is_due))
        self.journal.note(known.where(~is_due), F.lit("waiting"))
        by_time = {ORDER: F.list_of_all(at_time(), F.col(ORDER)), TURN: F.lit(None).cast(TURN_TYPE)}
        ordered = held_back(known.where(is_due)).with_columns(by_time)
        return above.with_frame(node, shaped(ordered, node.fields), "records")

    def _with_passed(self, node: Node, timed: Frame) -> tuple[Frame, Column]:
        """``timed``, and the time up to which records had left when each was read: no earlier one is on time any more.

        That of its own partition; or the frontier, where the partition had been idle.
        """
        if not self.lateness or self.batches is None:
            return timed, F.col(STREAM_TIME)
        first_ms = self.carrying.frontier_before_ms(node)
        reached = with_reached_before(timed, self.batches, self.clocks.frontiers_ms(node, self.batches), first_ms)
        return once(reached), F.greatest(STREAM_TIME, REACHED_BEFORE)

    def processed(self, node: Process, above: Rows) -> Rows:
        """Each key's records in their order, with timers; at last those that the frontier has reached."""
        require_ordered(node.input, node)
        frame, has_key = above.current, named(node.key).is_not_null()
        found = self.clocks.times_before(node, [(frame, ~has_key, log_processing.takes(node))])
        timed = judged(frame.where(log_processing.takes(node)), found)
        reached = timed.with_column(STREAM_TIME, F.col(STREAM_TIME) - waited_above_ms(node))
        fate = F.when(~has_key, "null key").when(F.col(IS_NULL), "null value").otherwise("counted")
        self.journal.note(frame, fate)
        end_ms = self.clocks.timers_end_ms(node)
        known = reached.with_column(log_processing.STATE, F.lit(None).cast("string"))
        before = self.carrying.carried_to(node, "states", [node.key, log_processing.STATE])
        if before is not None:
            known = known.union(before.drop(IS_NEW))
        made = once(log_processing.processed_by_key(node, above, known, end_ms))
        is_state = F.col(log_processing.STATE).is_not_null()
        self.carrying.keep(node, "states", lambda: made.where(is_state))
        self.processed_or_raised[node] = made.where(~is_state).drop(log_processing.STATE)
        return above.with_frame(node, returned(self.processed_or_raised[node]), "records")

    def suppressed(self, node: Suppress, above: Rows) -> Rows:
        """The last update of each row; those too that were held back at the last cut."""
        known = self.carrying.with_carried(node, "held", above.latest)
        read_last = [F.col(IS_NEW), *in_turn()]
        latest = known if self.carrying.carried is None else last_of(known, above.key_and_window, *read_last)
        self.carrying.keep(node, "held", lambda: latest.where(F.col(TIME) > self.held_after_ms(node)))
        return above.with_frame(node, latest.drop(IS_NEW), "latest")

    def held_after_ms(self, node: Suppress) -> int:
        """A row whose first update is not after this has left the suppression."""
        reached_ms = self.clocks.own_frontier_ms(node)
        return reached_ms if reached_ms == ALL_DUE else reached_ms - node.limit_ms

    def report_beyond(self, node: Node, rows: Frame) -> None:
        """Note that ``rows`` came to ``node`` too late for what was carried to it."""
        said = ("topic", "partition", "offset", "timestamp_ms")
        told = [F.col(name).alias(alias) for name, alias in zip((*PLACE, TIME), said, strict=True)]
        self.beyond.append(rows.select(*told, F.lit(str(node)).alias("operator")).distinct())

    def all_due(self, node: Node) -> Rows | None:
        """Rows of ``again`` as they leave ``node``; None where it leaves no rows of windows or lookups one by one."""
        through = _ONE_FROM_ONE if self.again_ends_after_ms(node) is None else _FROM_ONE
        return _leaving(node, self.again, through)

    def again_ends_after_ms(self, node: Node) -> int | None:
        """``again`` has every due window that ends after this, as it leaves ``node``; None where it has none."""
        while isinstance(node, _FROM_ONE):
            node = node.input
        if node not in self.again or not isinstance(node, WindowedAggregate):
            return None
        assert not isinstance(node.windows, GlobalWindow | LastN), "they never close"
        return int(overdue_ms(node.windows, 0, self.carrying.since_before_ms(node)))

    def all_taken_back(self, node: Node) -> Rows | None:
        """Rows of ``taken_back`` as they left ``node``; None where it leaves no rows of a join one by one."""
        return _leaving(node, self.taken_back, _FROM_ONE)

    def all_replaced(self, node: Node) -> Rows | None:
        """Rows of ``replaced`` that leave ``node``, with deletions of those that a filter no longer lets pass."""
        if not isinstance(node, _ONE_FROM_ONE):
            return self.replaced.get(node)
        above = self.all_replaced(node.input)
        if above is None:
            return None
        return or_deleted(node, above) if isinstance(node, Filter) else stateless(node, [above])

    def said_again_since_ms(self, node: Node) -> int | None:
        """``again`` has each record from here on that leaves ``node``; None: it has results of windows, or none."""
        if isinstance(node, _ONE_FROM_ONE):
            return self.said_again_since_ms(node.input)
        if isinstance(node, StreamTableJoin) and node in self.again:
            return self.carrying.since_before_ms(node.left)
        return None

    def report_overtaken(self, readers: Readers) -> None:
        """Report what would change more than ``added``, ``again`` and ``taken_back`` say."""
        for added_to, rows in self.added.items():
            if not _ends_in_sinks(added_to, readers, ()):
                self.report_beyond(added_to, rows)
        if self.lateness:
            return
        for node, changes in self.overtaken.items():
            if not _ends_in_sinks(node, readers, _FROM_ONE if node in self.taken_back else _ONE_FROM_ONE):
                self.report_beyond(node, changes)

    def all_beyond(self) -> Frame:
        """The records that came too late for what was carried, each with the operator that says so."""
        nothing = no_rows(self.carrying.database, BEYOND_SCHEMA)
        return union_of([nothing, *self.beyond])

    def kept(self) -> dict[str, Frame]:
        """The frames that the next interval of the log needs."""
        assert self.batches is not None, "a part of the log ends with a batch"
        require_incremental(self.carrying.names)
        frames = {name: made() for name, made in self.carrying.kept.items()}
        return {CLOCKS: self.clocks.kept(self.batches), **frames}

    def reaches_back_to_ms(self) -> int:
        """The end of the look back of the operator that is farthest behind; ``ALL_DUE`` where none looks back."""
        return min((self.clocks.since_ms(node) for node in self.carrying.asked), default=ALL_DUE)

    def _within_reach(self, node: Node, on_time: Frame, back_ms: int, spared: Column | None = None) -> Frame:
        """Without new records more than ``back_ms`` older than the look back goes, but those that are ``spared``."""
        first_ms = behind(self.carrying.since_before_ms(node), back_ms)
        if first_ms < NONE_DUE // 2:
            return on_time
        is_gone = (F.col(TIME) < first_ms) & (F.lit(True) if spared is None else ~spared)
        self.report_beyond(node, on_time.where(is_gone))
        return on_time.where(~is_gone)

    def _late(self, rows: Frame, key: Column, margin: Column) -> None:
        self.journal.late_for(rows, key, margin, F.lit(None), F.lit(None))


def _leaving(node: Node, found: Mapping[Node, Rows], through: _Kinds) -> Rows | None:
    """The rows ``found`` of the operator above, as they leave ``node`` one by one, ``through`` such operators."""
    if not isinstance(node, through):
        return found.get(node)
    above = _leaving(node.input, found, through)
    return None if above is None else stateless(node, [above])


def _least_ms(asking: Frame) -> int | None:
    """The earliest time as of which a row asks; None without any."""
    [row] = asking.agg(F.smallest(log_tables.ASKED).alias("least")).rows()
    found: int | None = row["least"]
    return found


def _ends_in_sinks(node: Node, readers: Readers, through: _Kinds) -> bool:
    """Whether all that leaves ``node`` reaches sinks, ``through`` such operators alone."""
    return all(
        isinstance(reader, Sink | Foreach) or (isinstance(reader, through) and _ends_in_sinks(reader, readers, through))
        for reader, _ in readers[node]
    )
