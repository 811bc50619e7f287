"""Stream records looked up in a table: as of their time, and among the changes that had been read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.core.joins import StreamTableJoin
from recount.recompute.columns import column, named
from recount.recompute.decoding import IS_NULL
from recount.recompute.graph.carrying import IS_NEW, Carrying
from recount.recompute.graph.frontiers import LEFT_IN, BatchEnds, Wait, left_in, with_left_in
from recount.recompute.graph.joins import LEFT, RIGHT, joined_fields, of, state, whole
from recount.recompute.graph.looking_back import ASKED
from recount.recompute.graph.rows import (
    META,
    OFFSET,
    ORDER,
    PARTITION,
    PLACE,
    TIME,
    TOPIC,
    TURN,
    Rows,
    in_turn,
    is_place,
    last_of,
)
from recount.recompute.graph.updates import require_every_change

BY, READ, UNREAD, _WINNER = "__by", "__read", "__unread", "__winner"
UNREAD_SCHEMA = (
    "topic string, partition int, offset long, timestamp_ms long, event_topic string, event_partition int, "
    "event_offset long, event_ms long, key string"
)
Needed = Callable[[DataFrame], DataFrame]
_ENDS = "topic string, partition int, start long, end long, read map<string, long>"


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
    """The new changes that rows of earlier stretches find now, deletions too: place and time."""
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
