"""Tables as the changes of their rows, made, filtered and regrouped; and lookups of stream records in a table.

Lookups are as of the records' time, and among the changes that had been read.

A row looks up as of its own time, but of no time before ``reached - history``. ``reached`` is how far time had come
when the row came to the lookup: the frontier after the batch before, or, of a record that comes as it is read, the
stream time of its own partition if that is later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.tables import TableAggregate, TableFilter, ToTable
from recount.recompute.decoding import IS_NULL
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
)
from recount.recompute.raw_log import once
from recount.recompute.spark_columns import column, named

_PASSES, _GROUP, _BEFORE, _IS_ROW = "__passes", GROUP, "__group_before", "__is_row"
_LAST_MS, _LEFT_MS, _TOUCHED = "__last_ms", "__left_ms", "__touched"
ASKED = "__asked_ms"
"""As of when a row looks its row of the table up."""
BY, READ, UNREAD, _WINNER = "__by", "__read", "__unread", "__winner"
UNREAD_SCHEMA = (
    "topic string, partition int, offset long, timestamp_ms long, event_topic string, event_partition int, "
    "event_offset long, event_ms long, key string"
)
Needed = Callable[[DataFrame], DataFrame]
_ENDS = "topic string, partition int, start long, end long, read map<string, long>"


def changes(node: ToTable, above: Rows, carrying: Carrying, *, only_by_time: bool = False) -> Rows:
    """The rows with a key as changes; in a versioned table, one older than an earlier one is superseded.

    ``only_by_time``: all that follows are lookups as of the event's time, to which the order of reading means nothing.
    """
    require_changes(node, above.holds, only_by_time=only_by_time)
    keyed = above.current.where(named(node.key).isNotNull())
    if above.holds == "latest":
        return above.with_frame(node, keyed)
    if not node.versioned:
        return above.with_frame(node, keyed, "changes")
    known = carrying.with_carried(node, "youngest", keyed)
    earlier = _in_turn([named(node.key)]).rowsBetween(Window.unboundedPreceding, -1)
    version = F.struct(TIME, ORDER)
    older = version < F.max(version).over(earlier)
    judged = known.withColumn(SUPERSEDED, F.coalesce(older, F.lit(False)))
    carrying.keep(node, "youngest", lambda: last_of(judged, [named(node.key)], F.col(TIME), F.col(ORDER)))
    return above.with_frame(node, _new(judged), "changes")


def _in_turn(keys: list[Column]) -> WindowSpec:
    """The rows of each key as they came: those that are carried first."""
    return Window.partitionBy(*keys).orderBy(F.col(IS_NEW), *in_turn())


def _new(known: DataFrame) -> DataFrame:
    return known.where(F.col(IS_NEW)).drop(IS_NEW)


def filtered(node: TableFilter, above: Rows, carrying: Carrying) -> Rows:
    """A row that does not pass is deleted, which means something only where one passed before."""
    passes = ~F.col(IS_NULL) & F.coalesce(column(node.predicate, node.input.fields), F.lit(False))
    judged = above.frame.withColumn(_PASSES, passes)
    if above.holds != "latest":
        known = carrying.with_carried(node, "passed", judged)
        earlier = _in_turn([named(node.key)]).rowsBetween(Window.unboundedPreceding, -1)
        passed = F.last(F.when(~F.col(SUPERSEDED), F.col(_PASSES)), ignorenulls=True).over(earlier)
        idle = ~F.col(_PASSES) & ~F.coalesce(passed, F.lit(False))
        found = known.withColumn("__idle", idle)
        carrying.keep(node, "passed", lambda: _current(known, [named(node.key)]))
        judged = _new(found.withColumn(SUPERSEDED, F.col(SUPERSEDED) | F.col("__idle")).drop("__idle"))
    return above.with_frame(node, judged.withColumn(IS_NULL, ~F.col(_PASSES)).drop(_PASSES))


def _current(known: DataFrame, keys: list[Column]) -> DataFrame:
    """The row of each key that came last."""
    return last_of(known.where(~F.col(SUPERSEDED)), keys, F.col(IS_NEW), *in_turn())


def regrouped(node: TableAggregate, above: Rows, carrying: Carrying) -> Rows:
    """One row for each group that a change touched, over the rows that are in it in the end.

    A group keeps its row when it is empty. Its time is the latest of the changes that touched it, the leaving of a row
    included. Where only the latest rows are known, its time is that of the rows that it has, and if it has lost its
    last row in this interval, it is deleted.
    """
    by = F.when(~F.col(IS_NULL), column(node.by, node.input.fields))
    rows = above.current.withColumn(_GROUP, by)
    known = carrying.with_carried(node, "rows", rows)
    held = once(_current(known, above.identity)).where(F.col(_GROUP).isNotNull())
    carrying.keep(node, "rows", lambda: held)
    has_history = above.holds == "changes"
    parts = [held.withColumn(_IS_ROW, F.lit(True)), _touched(above, known, has_history)]
    if has_history:
        no_times = parts[1].select(_GROUP, TIME).limit(0)
        parts.append(carrying.with_carried(node, "groups", no_times).withColumn(_IS_ROW, F.lit(False)))
    everything = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
    results = Over(fields=node.input.fields, counting=F.col(_IS_ROW)).results(node.aggregates)
    grouped = everything.groupBy(_GROUP).agg(
        *(result.alias(name) for name, result in results.items()),
        F.max(TIME).alias(_LAST_MS),
        F.max(_LEFT_MS).alias(_LEFT_MS),
        F.bool_or(_IS_ROW).alias(_IS_ROW),
        F.bool_or(_TOUCHED).alias(_TOUCHED),
    )
    grouped = once(grouped.withColumn(_LAST_MS, F.coalesce(_LAST_MS, _LEFT_MS)))
    if has_history:
        carrying.keep(node, "groups", lambda: grouped.select(_GROUP, F.col(_LAST_MS).alias(TIME)))
    made = grouped.where(_TOUCHED).withColumn(node.key, F.col(_GROUP))
    order = of_window(F.col(_GROUP), F.lit(0), F.lit(0))
    is_null = F.lit(False) if has_history else ~F.col(_IS_ROW)
    frame = shaped(derived(made, F.col(_LAST_MS), order, is_null), node.fields)
    return Rows(node=node, frame=frame, holds="latest")


def _touched(above: Rows, known: DataFrame, has_history: bool) -> DataFrame:
    """Every group that a new change put a row into or took one out of, with the time of that change.

    Without a history the time of a row that left is kept apart: its group may have had others after it.
    """
    before = F.lag(_GROUP).over(_in_turn(above.identity))
    moved = _new(known.withColumn(_BEFORE, before))
    entered = moved.select(_GROUP, F.col(TIME), F.lit(None).cast("long").alias(_LEFT_MS))
    time = F.col(TIME) if has_history else F.lit(None).cast("long")
    left = moved.select(F.col(_BEFORE).alias(_GROUP), time.alias(TIME), F.col(TIME).alias(_LEFT_MS))
    told = {_IS_ROW: F.lit(False), _TOUCHED: F.lit(True)}
    return entered.union(left).where(F.col(_GROUP).isNotNull()).withColumns(told)


def reached_before(numbered: DataFrame, frontiers_ms: Sequence[int], first_ms: int) -> DataFrame:
    """``numbered`` with the later of ``STREAM_TIME`` and the frontier before the batch ``LEFT_IN``, as ``STREAM_TIME``.

    The frontier came from ``first_ms`` to ``frontiers_ms``; before there was one it says nothing.
    """
    known = [ms if ms > NONE_DUE else None for ms in (first_ms, *frontiers_ms)]
    before = F.udf(lambda number: known[number], "long")
    return numbered.withColumn(STREAM_TIME, F.greatest(STREAM_TIME, before(LEFT_IN))).drop(LEFT_IN)


def asking(timed: DataFrame, history_ms: int) -> DataFrame:
    """``timed`` rows with ``ASKED``."""
    return timed.withColumn(ASKED, F.greatest(F.col(TIME), F.col(STREAM_TIME) - history_ms))


def margin(history_ms: int) -> Column:
    """How much further a row would have to look back than it can, less 1 ms; it is late from 0 on."""
    return F.col(STREAM_TIME) - history_ms - F.col(TIME) - 1


def seen_by_all(read: Iterable[Mapping[str, int]]) -> Column:
    """Whether every row that had ``read`` so far of the partitions of tables had read a change."""
    told = list(read)
    if not told:
        return F.lit(True)
    least = {name: min(one.get(name, 0) for one in told) for name in set().union(*told)}
    ends = F.create_map(*(F.lit(part) for item in least.items() for part in item)) if least else None
    place = F.col(ORDER)[0]
    partition = F.concat(place["topic"], F.lit("-"), place["partition"].cast("string"))
    end = F.lit(0) if ends is None else F.coalesce(F.try_element_at(ends, partition), F.lit(0))
    return place["offset"] < end


def without_forgotten(node: StreamTableJoin, versions: DataFrame, bound_ms: int, is_seen: Column) -> DataFrame:
    """``versions`` without those that are older than the newest at ``bound_ms`` of their key, as all rows saw it."""
    newest = F.struct(F.col(TIME), F.col(ORDER))
    stands = versions.where((F.col(TIME) <= bound_ms) & is_seen).groupBy(named(node.right.key).alias("__of"))
    marked = versions.join(stands.agg(F.max(newest).alias("__stands")), named(node.right.key) == F.col("__of"), "left")
    kept = marked.where(F.col("__stands").isNull() | (newest >= F.col("__stands")))
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


def keyed_for_lookup(node: StreamTableJoin, frame: DataFrame) -> DataFrame:
    """``frame`` with the key ``BY`` under which the table is read."""
    return frame.withColumn(BY, by_of(node))


def by_of(node: StreamTableJoin) -> Column:
    """The key of the table that a row asks for."""
    return named(node.key) if node.by is None else column(node.by, node.left.fields)


def looked_up(node: StreamTableJoin, keyed: DataFrame, table: Rows, carrying: Carrying, needed: Needed) -> DataFrame:
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
    by = [TIME, ORDER] if by_time else [IS_NEW, TURN, ORDER]
    newest = F.struct(*(of(RIGHT, name) for name in by))
    is_there = of(RIGHT, TIME).isNotNull()
    was_read = is_there & _was_read() if is_told else is_there
    change = F.struct(of(RIGHT, ORDER)[0].alias("place"), of(RIGHT, TIME).alias("ms"))
    pairs = whole(keyed, LEFT).join(whole(changes, RIGHT), fits, "left")
    found = pairs.groupBy(of(LEFT, ORDER).alias("__event")).agg(
        F.first(LEFT).alias(LEFT),
        F.max_by(RIGHT, F.when(was_read, newest)).alias(RIGHT),
        F.max_by(change, F.when(is_there, newest)).alias("__newest"),
    )
    overlooked = ~F.col("__newest")["place"].eqNullSafe(of(RIGHT, ORDER)[0])
    unread = F.when(overlooked & F.lit(by_time), F.col("__newest"))
    deleted = F.coalesce(of(RIGHT, IS_NULL), F.lit(True))
    winner = F.struct(*(of(RIGHT, name).alias(name) for name in (*PLACE, TIME, IS_NEW)))
    row = F.when(~deleted, F.col(RIGHT)).alias(RIGHT)
    return found.select(LEFT, row, unread.alias(UNREAD), winner.alias(_WINNER))


def counts(found: DataFrame) -> tuple[int, int]:
    """How many rows asked for one of the table, and how many of these ``found`` none."""
    is_missed = F.when(of(RIGHT, TIME).isNull(), 1).otherwise(0)
    asked = found.where(of(LEFT, BY).isNotNull())
    row = asked.agg(F.count("*").alias("asked"), F.sum(is_missed).alias("missed")).first()
    return (row.asked, row.missed or 0) if row else (0, 0)


def unread_changes(node: StreamTableJoin, found: DataFrame) -> DataFrame:
    """The changes in ``UNREAD``, each with the first record that would have found it (``UNREAD_SCHEMA``)."""
    change = F.col(UNREAD)
    place = change["place"]
    event = F.try_element_at(F.filter(of(LEFT, ORDER), is_place), F.lit(1))
    return found.where(change.isNotNull() & event.isNotNull()).select(
        place["topic"].alias("topic"),
        place["partition"].cast("int").alias("partition"),
        place["offset"].alias("offset"),
        change["ms"].alias("timestamp_ms"),
        event["topic"].alias("event_topic"),
        event["partition"].cast("int").alias("event_partition"),
        event["offset"].alias("event_offset"),
        of(LEFT, TIME).alias("event_ms"),
        of(LEFT, node.key).cast("string").alias("key"),
    )


def changes_of_old_rows(found: DataFrame) -> DataFrame:
    """The new changes that rows of earlier intervals find now, deletions too: place and time."""
    overtaken = found.where(~of(LEFT, IS_NEW) & F.col(_WINNER)[IS_NEW])
    return overtaken.select(*(F.col(_WINNER)[name].alias(name) for name in (*PLACE, TIME))).distinct()


def with_table_row(node: StreamTableJoin, found: DataFrame) -> Rows:
    """The rows that leave: they keep their place in the log."""
    kept = found.where(of(RIGHT, TIME).isNotNull()) if node.kind == "inner" else found
    fields = joined_fields(node, of(LEFT, node.key))
    return Rows(node=node, frame=kept.select(*fields, *(of(LEFT, name).alias(name) for name in META)))


def with_read(keyed: DataFrame, ends: Sequence[TableEnds], session: SparkSession) -> DataFrame:
    """``keyed`` with the column ``READ``: up to where the batch that read each record had read every table."""
    rows = [
        (one.topic, one.partition, one.start, one.end, {f"{t}-{p}": end for (t, p), end in one.read.items()})
        for one in ends
    ]
    ranges = session.createDataFrame(rows, _ENDS)
    spans = ranges.select(*(F.col(name).alias(f"__span_{name}") for name in ranges.columns))
    within = (
        (F.col(TOPIC) == F.col("__span_topic"))
        & (F.col(PARTITION) == F.col("__span_partition"))
        & (F.col(OFFSET) >= F.col("__span_start"))
        & (F.col(OFFSET) < F.col("__span_end"))
    )
    return keyed.join(spans, within, "left").select(*map(named, keyed.columns), F.col("__span_read").alias(READ))


def with_read_when_due(
    keyed: DataFrame, batches: Sequence[BatchEnds], waits: Sequence[Wait], session: SparkSession
) -> DataFrame:
    """``keyed`` with the column ``READ``: up to where the batch in which each record left all ``waits`` had read."""
    return _with_read_in(with_left_in(keyed, batches, waits), batches, session)


def with_read_of_all(keyed: DataFrame, batches: Sequence[BatchEnds], session: SparkSession) -> DataFrame:
    """``keyed`` with the column ``READ``: up to where the batch had read that read the last record of each row."""
    return _with_read_in(with_last_in(keyed, batches), batches, session)


def with_last_in(rows: DataFrame, batches: Sequence[BatchEnds]) -> DataFrame:
    """``rows`` with ``LEFT_IN``: the number of the batch that read the last record of each."""
    number = left_in(batches, [])

    def last(order: Sequence[Mapping[str, Any]]) -> int:
        places = (step for step in order if step["topic"] and step["partition"] >= 0)
        return max(number(place["topic"], place["partition"], place["offset"], 0) for place in places)

    return rows.withColumn(LEFT_IN, F.udf(last, "long")(ORDER))


def _with_read_in(numbered: DataFrame, batches: Sequence[BatchEnds], session: SparkSession) -> DataFrame:
    read = [(at, {f"{t}-{p}": end for (t, p), end in batch.ends.items()}) for at, batch in enumerate(batches)]
    told = session.createDataFrame(read, f"{LEFT_IN} long, {READ} map<string, long>")
    return numbered.join(F.broadcast(told), LEFT_IN, "left").drop(LEFT_IN)


def _was_read() -> Column:
    place = of(RIGHT, ORDER)[0]
    partition = F.concat(place["topic"], F.lit("-"), place["partition"])
    end = F.try_element_at(of(LEFT, READ), partition)
    return of(LEFT, READ).isNull() | (place["offset"] < F.coalesce(end, F.lit(0)))
