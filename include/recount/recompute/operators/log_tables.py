"""Tables as the changes of their rows, made, filtered and regrouped; and lookups of stream records in a table.

Lookups are as of the records' time, and among the changes that had been read.

A row looks up as of its own time, but of no time before ``reached - history``. ``reached`` is how far time had come
when the row came to the lookup: the frontier after the batch before, or, of a record that comes as it is read, the
stream time of its own partition if that is later.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.tables import TableAggregate, TableFilter, ToTable
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import ROWS_BEFORE, Column, Window, named
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of, once, union_of
from recount.recompute.operators.carried import GROUP, IS_NEW, Carrying
from recount.recompute.operators.frontiers import LEFT_IN, NONE_DUE, BatchEnds, Wait, left_in, with_left_in
from recount.recompute.operators.log_aggregates import Over
from recount.recompute.operators.log_joins import LEFT, RIGHT, joined_fields, of, state, whole
from recount.recompute.operators.log_order import require_changes, require_every_change
from recount.recompute.operators.log_rows import (
    META,
    OFFSET,
    ORDER,
    PARTITION,
    PLACE,
    STREAM_TIME,
    SUPERSEDED,
    TIME,
    TOPIC,
    TURN,
    Rows,
    derived,
    in_turn,
    is_place,
    last_of,
    of_window,
    shaped,
    turn_or_first,
)
from recount.recompute.rules.expression_rules import column

_PASSES, _GROUP, _BEFORE, _IS_ROW = "__passes", GROUP, "__group_before", "__is_row"
_LAST_MS, _LEFT_MS, _TOUCHED = "__last_ms", "__left_ms", "__touched"
ASKED = "__asked_ms"
"""As of when a row looks its row of the table up."""
BY, READ, UNREAD, _WINNER = "__by", "__read", "__unread", "__winner"
UNREAD_SCHEMA = (
    "topic string, partition int, offset long, timestamp_ms long, event_topic string, event_partition int, "
    "event_offset long, event_ms long, key string"
)
Needed = Callable[[Frame], Frame]
READ_TYPE = "MAP(VARCHAR, BIGINT)"
_READ = pa.map_(pa.string(), pa.int64())
_ENDS = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64()), ("read", _READ)]
)


def changes(node: ToTable, above: Rows, carrying: Carrying, *, only_by_time: bool = False) -> Rows:
    """The rows with a key as changes; in a versioned table, one older than an earlier one is superseded.

    ``only_by_time``: all that follows are lookups as of the event's time, to which the order of reading means nothing.
    """
    require_changes(node, above.holds, only_by_time=only_by_time)
    keyed = above.current.where(named(node.key).is_not_null())
    if above.holds == "latest":
        return above.with_frame(node, keyed)
    if not node.versioned:
        return above.with_frame(node, keyed, "changes")
    known = carrying.with_carried(node, "youngest", keyed)
    earlier = _in_turn([named(node.key)]).ending(ROWS_BEFORE)
    version = F.struct(TIME, ORDER)
    older = version < F.largest(version).over(earlier)
    judged = known.with_column(SUPERSEDED, F.coalesce(older, F.lit(False)))
    carrying.keep(node, "youngest", lambda: last_of(judged, [named(node.key)], F.col(TIME), F.col(ORDER)))
    return above.with_frame(node, _new(judged), "changes")


def _in_turn(keys: list[Column]) -> Window:
    """The rows of each key as they came: those that are carried first."""
    return Window.of(*keys).sorted(F.col(IS_NEW), *in_turn())


def _new(known: Frame) -> Frame:
    return known.where(F.col(IS_NEW)).drop(IS_NEW)


def filtered(node: TableFilter, above: Rows, carrying: Carrying) -> Rows:
    """A row that does not pass is deleted, which means something only where one passed before."""
    passes = ~F.col(IS_NULL) & F.coalesce(column(node.predicate, node.input.fields), F.lit(False))
    judged = above.frame.with_column(_PASSES, passes)
    if above.holds != "latest":
        known = carrying.with_carried(node, "passed", judged)
        earlier = _in_turn([named(node.key)]).ending(ROWS_BEFORE)
        passed = F.last_value(F.when(~F.col(SUPERSEDED), F.col(_PASSES))).over(earlier)
        idle = ~F.col(_PASSES) & ~F.coalesce(passed, F.lit(False))
        found = known.with_column("__idle", idle)
        carrying.keep(node, "passed", lambda: _current(known, [named(node.key)]))
        judged = _new(found.with_column(SUPERSEDED, F.col(SUPERSEDED) | F.col("__idle")).drop("__idle"))
    return above.with_frame(node, judged.with_column(IS_NULL, ~F.col(_PASSES)).drop(_PASSES))


def _current(known: Frame, keys: list[Column]) -> Frame:
    """The row of each key that came last."""
    return last_of(known.where(~F.col(SUPERSEDED)), keys, F.col(IS_NEW), *in_turn())


def regrouped(node: TableAggregate, above: Rows, carrying: Carrying) -> Rows:
    """One row for each group that a change touched, over the rows that are in it in the end.

    A group keeps its row when it is empty. Its time is the latest of the changes that touched it, the leaving of a row
    included. Where only the latest rows are known, its time is that of the rows that it has, and if it has lost its
    last row in this interval, it is deleted.
    """
    by = F.when(~F.col(IS_NULL), column(node.by, node.input.fields))
    rows = above.current.with_column(_GROUP, by)
    known = carrying.with_carried(node, "rows", rows)
    held = once(_current(known, above.identity)).where(F.col(_GROUP).is_not_null())
    carrying.keep(node, "rows", lambda: held)
    has_history = above.holds == "changes"
    parts = [held.with_column(_IS_ROW, F.lit(True)), _touched(above, known, has_history)]
    if has_history:
        no_times = parts[1].select(_GROUP, TIME).where(F.lit(False))
        parts.append(carrying.with_carried(node, "groups", no_times).with_column(_IS_ROW, F.lit(False)))
    everything = union_of(parts)
    results = Over(fields=node.input.fields, counting=F.col(_IS_ROW)).results(node.aggregates)
    grouped = everything.group_by(_GROUP).agg(
        *(result.alias(name) for name, result in results.items()),
        F.largest(TIME).alias(_LAST_MS),
        F.largest(_LEFT_MS).alias(_LEFT_MS),
        F.any_holds(_IS_ROW).alias(_IS_ROW),
        F.any_holds(_TOUCHED).alias(_TOUCHED),
    )
    grouped = once(grouped.with_column(_LAST_MS, F.coalesce(_LAST_MS, _LEFT_MS)))
    if has_history:
        carrying.keep(node, "groups", lambda: grouped.select(_GROUP, F.col(_LAST_MS).alias(TIME)))
    made = grouped.where(_TOUCHED).with_column(node.key, F.col(_GROUP))
    order = of_window(F.col(_GROUP), F.lit(0), F.lit(0))
    is_null = F.lit(False) if has_history else ~F.col(_IS_ROW)
    frame = shaped(derived(made, F.col(_LAST_MS), order, is_null), node.fields)
    return Rows(node=node, frame=frame, holds="latest")


def _touched(above: Rows, known: Frame, has_history: bool) -> Frame:
    """Every group that a new change put a row into or took one out of, with the time of that change.

    Without a history the time of a row that left is kept apart: its group may have had others after it.
    """
    before = F.one_before(_GROUP).over(_in_turn(above.identity))
    moved = _new(known.with_column(_BEFORE, before))
    entered = moved.select(_GROUP, F.col(TIME), F.lit(None).cast("long").alias(_LEFT_MS))
    time = F.col(TIME) if has_history else F.lit(None).cast("long")
    left = moved.select(F.col(_BEFORE).alias(_GROUP), time.alias(TIME), F.col(TIME).alias(_LEFT_MS))
    told = {_IS_ROW: F.lit(False), _TOUCHED: F.lit(True)}
    return entered.union(left).where(F.col(_GROUP).is_not_null()).with_columns(told)


def reached_before(numbered: Frame, frontiers_ms: Sequence[int], first_ms: int) -> Frame:
    """``numbered`` with the later of ``STREAM_TIME`` and the frontier before the batch ``LEFT_IN``, as ``STREAM_TIME``.

    The frontier came from ``first_ms`` to ``frontiers_ms``; before there was one it says nothing.
    """
    known = [ms if ms > NONE_DUE else None for ms in (first_ms, *frontiers_ms)]
    before = F.by_python(lambda number: known[number], T.LongType())
    return numbered.with_column(STREAM_TIME, F.greatest(STREAM_TIME, before(LEFT_IN))).drop(LEFT_IN)


def asking(timed: Frame, history_ms: int) -> Frame:
    """``timed`` rows with ``ASKED``."""
    return timed.with_column(ASKED, F.greatest(F.col(TIME), F.col(STREAM_TIME) - history_ms))


def margin(history_ms: int) -> Column:
    """How much further a row would have to look back than it can, less 1 ms; it is late from 0 on."""
    return F.col(STREAM_TIME) - history_ms - F.col(TIME) - 1


def seen_by_all(read: Iterable[Mapping[str, int]]) -> Column:
    """Whether every row that had ``read`` so far of the partitions of tables had read a change."""
    told = list(read)
    if not told:
        return F.lit(True)
    least = {name: min(one.get(name, 0) for one in told) for name in set().union(*told)}
    place = F.col(ORDER).at(0)
    partition = F.concat(place.part("topic"), "-", place.part("partition"))
    return place.part("offset") < F.coalesce(F.map_of(least).value_at(partition), F.lit(0))


def without_forgotten(node: StreamTableJoin, versions: Frame, bound_ms: int, is_seen: Column) -> Frame:
    """``versions`` without those that are older than the newest at ``bound_ms`` of their key, as all rows saw it."""
    newest = F.struct(F.col(TIME), F.col(ORDER))
    stands = versions.where((F.col(TIME) <= bound_ms) & is_seen).group_by(named(node.right.key).alias("__of"))
    marked = versions.join(
        stands.agg(F.largest(newest).alias("__stands")), named(node.right.key) == F.col("__of"), "left"
    )
    kept = marked.where(F.col("__stands").is_null() | (newest >= F.col("__stands")))
    return kept.select(*map(named, versions.columns))


@dataclass(frozen=True, kw_only=True)
class TableEnds:
    """The records ``start`` <= offset < ``end`` of a source partition saw the table up to the offsets ``read``.

    ``read`` has for each (topic, partition) of a table the first offset that had not been read; of one that is missing
    nothing had been.
    """

    topic: str
    partition: int
    start: int
    end: int
    read: Mapping[tuple[str, int], int]


def keyed_for_lookup(node: StreamTableJoin, frame: Frame) -> Frame:
    """``frame`` with the key ``BY`` under which the table is read."""
    return frame.with_column(BY, by_of(node))


def by_of(node: StreamTableJoin) -> Column:
    """The key of the table that a row asks for."""
    return named(node.key) if node.by is None else column(node.by, node.left.fields)


def looked_up(node: StreamTableJoin, keyed: Frame, table: Rows, carrying: Carrying, needed: Needed) -> Frame:
    """Every row of ``keyed`` as ``LEFT`` with the table's row, if it had one, as ``RIGHT``.

    It asks as of its time, or of ``ASKED`` where it has that column. Of the table are carried those versions that are
    ``needed`` of all, or as of arrival the row of each key.

    A row of ``keyed`` without the column ``READ``, or with null in it, sees the whole log of the table; as of arrival
    that is its state in the end. ``UNREAD`` is the change that a row would have found instead of what it did, had it
    been read: place and time; null where there is none.
    """
    by_time, is_told = node.as_of == "event", READ in keyed.columns
    require_every_change(node, table.holds)
    known = carrying.with_carried(node, "table", table.frame)
    key = named(node.right.key)
    if by_time:
        carrying.keep(node, "table", lambda: needed(last_of(known, [key, F.col(TIME)], F.col(ORDER))))
    elif is_told:
        carrying.keep(node, "table", lambda: last_of(known, [key], F.col(IS_NEW), *in_turn()))
    else:
        carrying.keep(node, "table", lambda: state(table, known))
    changes = known if by_time or is_told else state(table, known)
    fits = of(LEFT, BY) == of(RIGHT, node.right.key)
    if by_time:
        fits &= of(RIGHT, TIME) <= of(LEFT, ASKED if ASKED in keyed.columns else TIME)
    by = {name: of(RIGHT, name) for name in ([TIME, ORDER] if by_time else [IS_NEW, TURN, ORDER])}
    if not by_time:
        by[TURN] = turn_or_first(by[TURN])
    newest = F.struct(*(value.alias(name) for name, value in by.items()))
    is_there = of(RIGHT, TIME).is_not_null()
    was_read = is_there & _was_read() if is_told else is_there
    change = F.struct(of(RIGHT, ORDER).at(0).alias("place"), of(RIGHT, TIME).alias("ms"))
    pairs = whole(keyed, LEFT).join(whole(changes, RIGHT), fits, "left")
    found = pairs.group_by(of(LEFT, ORDER).alias("__event")).agg(
        F.first_of(LEFT).alias(LEFT),
        F.of_largest(RIGHT, F.when(was_read, newest)).alias(RIGHT),
        F.of_largest(change, F.when(is_there, newest)).alias("__newest"),
    )
    overlooked = ~F.col("__newest").part("place").equals_or_both_null(of(RIGHT, ORDER).at(0))
    unread = F.when(overlooked & F.lit(by_time), F.col("__newest"))
    deleted = F.coalesce(of(RIGHT, IS_NULL), F.lit(True))
    winner = F.struct(*(of(RIGHT, name).alias(name) for name in (*PLACE, TIME, IS_NEW)))
    row = F.when(~deleted, F.col(RIGHT)).alias(RIGHT)
    return found.select(LEFT, row, unread.alias(UNREAD), winner.alias(_WINNER))


def counts(found: Frame) -> tuple[int, int]:
    """How many rows asked for one of the table, and how many of these ``found`` none."""
    is_missed = F.when(of(RIGHT, TIME).is_null(), 1)
    asked = found.where(of(LEFT, BY).is_not_null())
    [row] = asked.agg(F.count_of().alias("asked"), F.count_of(is_missed).alias("missed")).rows()
    return row["asked"], row["missed"]


def unread_changes(node: StreamTableJoin, found: Frame) -> Frame:
    """The changes in ``UNREAD``, each with the first record that would have found it (``UNREAD_SCHEMA``)."""
    change = F.col(UNREAD)
    place = change.part("place")
    event = F.filtered(of(LEFT, ORDER), is_place).at(0)
    return found.where(change.is_not_null() & event.is_not_null()).select(
        place.part("topic").alias("topic"),
        place.part("partition").cast("int").alias("partition"),
        place.part("offset").alias("offset"),
        change.part("ms").alias("timestamp_ms"),
        event.part("topic").alias("event_topic"),
        event.part("partition").cast("int").alias("event_partition"),
        event.part("offset").alias("event_offset"),
        of(LEFT, TIME).alias("event_ms"),
        of(LEFT, node.key).cast("string").alias("key"),
    )


def changes_of_old_rows(found: Frame) -> Frame:
    """The new changes that rows of earlier intervals find now, deletions too: place and time."""
    overtaken = found.where(~of(LEFT, IS_NEW) & F.col(_WINNER).part(IS_NEW))
    return overtaken.select(*(F.col(_WINNER).part(name).alias(name) for name in (*PLACE, TIME))).distinct()


def with_table_row(node: StreamTableJoin, found: Frame) -> Rows:
    """The rows that leave: they keep their place in the log."""
    kept = found.where(of(RIGHT, TIME).is_not_null()) if node.kind == "inner" else found
    fields = joined_fields(node, of(LEFT, node.key))
    return Rows(node=node, frame=kept.select(*fields, *(of(LEFT, name).alias(name) for name in META)))


def with_read(keyed: Frame, ends: Sequence[TableEnds], database: Database) -> Frame:
    """``keyed`` with the column ``READ``: up to where the batch that read each record had read every table."""
    rows = [
        (one.topic, one.partition, one.start, one.end, [(f"{t}-{p}", end) for (t, p), end in one.read.items()])
        for one in ends
    ]
    parts = (
        [pa.array(part, kind) for part, kind in zip(zip(*rows, strict=True), _ENDS.types, strict=True)] if rows else []
    )
    ranges = frame_of(database, [pa.table(parts, _ENDS)] if rows else [], _ENDS)
    spans = ranges.select(*(F.col(name).alias(f"__span_{name}") for name in ranges.columns))
    within = (
        (F.col(TOPIC) == F.col("__span_topic"))
        & (F.col(PARTITION) == F.col("__span_partition"))
        & (F.col(OFFSET) >= F.col("__span_start"))
        & (F.col(OFFSET) < F.col("__span_end"))
    )
    return keyed.join(spans, within, "left").select(*map(named, keyed.columns), F.col("__span_read").alias(READ))


def with_read_when_due(keyed: Frame, batches: Sequence[BatchEnds], waits: Sequence[Wait], database: Database) -> Frame:
    """``keyed`` with the column ``READ``: up to where the batch in which each record left all ``waits`` had read."""
    return _with_read_in(with_left_in(keyed, batches, waits), batches, database)


def with_read_of_all(keyed: Frame, batches: Sequence[BatchEnds], database: Database) -> Frame:
    """``keyed`` with the column ``READ``: up to where the batch had read that read the last record of each row."""
    return _with_read_in(with_last_in(keyed, batches), batches, database)


def with_last_in(rows: Frame, batches: Sequence[BatchEnds]) -> Frame:
    """``rows`` with ``LEFT_IN``: the number of the batch that read the last record of each."""
    number = left_in(batches, [])

    def last(order: Sequence[Mapping[str, Any]]) -> int:
        places = (step for step in order if step["topic"] and step["partition"] >= 0)
        return max(number(at["topic"], at["partition"], at["offset"], 0) for at in places)

    return rows.with_column(LEFT_IN, F.by_python(last, T.LongType())(ORDER))


def _with_read_in(numbered: Frame, batches: Sequence[BatchEnds], database: Database) -> Frame:
    read = [[(f"{t}-{p}", end) for (t, p), end in batch.ends.items()] for batch in batches]
    schema = pa.schema([(LEFT_IN, pa.int64()), (READ, _READ)])
    told = pa.table([pa.array(range(len(read)), pa.int64()), pa.array(read, _READ)], schema)
    return numbered.join(frame_of(database, [told], schema), [LEFT_IN], "left").drop(LEFT_IN)


def _was_read() -> Column:
    place = of(RIGHT, ORDER).at(0)
    partition = F.concat(place.part("topic"), "-", place.part("partition"))
    end = of(LEFT, READ).value_at(partition)
    return of(LEFT, READ).is_null() | (place.part("offset") < F.coalesce(end, F.lit(0)))
