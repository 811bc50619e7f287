"""Rows between two operators of the recompute, and the stream time by which an operator judges each.

Stream time is that at the record's own offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, Node
from recount.declare.schema import FieldType
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import ROWS_BEFORE, ROWS_UP_TO, Column, Window, named
from recount.recompute.frames.duck_frames import Frame, once, union_of
from recount.recompute.operators.log_order import Holds
from recount.recompute.spark_columns import spark_type

TOPIC, PARTITION, OFFSET, TIME = "__topic", "__partition", "__offset", "__timestamp_ms"
ORDER, SUPERSEDED, CARRIED, REACHED = "__order", "__superseded", "__carried_ms", "__reached_ms"
TURN = "__turn"
TURN_TYPE = "STRUCT(batch BIGINT, reached_ms BIGINT)"
_FIRST = -(2**63)
PLACE = (TOPIC, PARTITION, OFFSET)
_NUMBER = "__number_in_group"
META = (*PLACE, TIME, CARRIED, REACHED, TURN, ORDER, IS_NULL, SUPERSEDED)
OfGroup = Callable[[pa.Table], pa.Table]
STREAM_TIME = "__stream_time_ms"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows that leave ``node``: its fields as columns, and ``META``.

    ``PLACE`` is where a row entered from the log, null for a derived row, which is never late. ``ORDER`` sorts rows as
    the log does and tells any two rows of one operator apart. ``CARRIED`` is the stream time by which a row is judged
    further down, where an operator has held it back; null in any other. ``REACHED`` is the stream time of the row's
    partition at its place, over all good records of the interval; null for a derived row, and for one that was carried
    from an earlier one. ``TURN`` says when the record that made a row was read: in which batch of the interval (less
    than 0: of an earlier one), and how far that had come in its partition. With ``ORDER`` it is the order of one key's
    records in several partitions (``in_turn``). Null where ``ORDER`` is no place in the log, or all was read before
    there were turns. ``SUPERSEDED`` marks a change of a versioned table that is older than the key's latest.

    ``holds`` says what the rows are, see ``log_order``.
    """

    node: Node
    frame: Frame
    holds: Holds = "records"

    def with_frame(self, node: Node, frame: Frame, holds: Holds | None = None) -> Rows:
        """The rows that ``node`` made of these rows."""
        return replace(self, node=node, frame=frame, holds=holds or self.holds)

    @property
    def current(self) -> Frame:
        """The rows without changes that were older than the latest when they came."""
        return self.frame.where(~F.col(SUPERSEDED))

    @property
    def key_and_window(self) -> list[Column]:
        """The columns that tell apart what replaces each other."""
        bounds = [name for name in (WINDOW_START, WINDOW_END) if name in self.node.fields]
        return [named(name) for name in (self.node.key, *bounds)]

    @property
    def identity(self) -> list[Column]:
        """The columns that tell the rows of a table apart: the key, and of results of windows the window too."""
        return self.key_and_window if self.holds == "latest" else [named(self.node.key)]

    @property
    def latest(self) -> Frame:
        """The last row of each key and window."""
        return self.frame if self.holds == "latest" else last_of(self.current, self.key_and_window, *in_turn())


def in_groups(frame: Frame, groups: Sequence[str], function: OfGroup, schema: T.StructType) -> Frame:
    """The results of ``function`` for the rows of each of the ``groups`` that these columns distinguish.

    The rows come sorted, so that no more than one group and one batch of them are in this process.
    """
    number = F.row_number().over(Window.of(*groups)).alias(_NUMBER)
    numbered = frame.select(*frame.columns, number).sorted_by(*groups, _NUMBER)
    return numbered.passed_through(_InGroups(function=function, schema=to_arrow_schema(schema)), schema)


@dataclass(frozen=True, kw_only=True)
class _InGroups:
    """A pass over groups whose rows follow each other; ``_NUMBER`` is 1 for the first row of each."""

    function: OfGroup
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at_hand: list[pa.Table] = []
        for batch in batches:
            rows = pa.table(batch.drop_columns([_NUMBER]))
            starts = np.flatnonzero(batch.column(_NUMBER).to_numpy() == 1).tolist()
            if not starts:
                at_hand.append(rows)
                continue
            *whole, last = (rows.slice(start, end - start) for start, end in pairwise([*starts, rows.num_rows]))
            if at_hand:
                whole.insert(0, pa.concat_tables([*at_hand, rows.slice(0, starts[0])]))
            yield from self._made(whole)
            at_hand = [last]
        if at_hand:
            yield from self._made([pa.concat_tables(at_hand)])

    def _made(self, groups: Sequence[pa.Table]) -> list[pa.RecordBatch]:
        made = [self.function(group).select(self.schema.names) for group in groups]
        return pa.concat_tables(made).combine_chunks().cast(self.schema).to_batches() if made else []


def last_of(frame: Frame, keys: list[Column], *order: Column) -> Frame:
    """The last by ``order`` of the rows with equal ``keys``."""
    ranked = Window.of(*keys).sorted(*(one.descending() for one in order))
    return frame.with_column("__rank", F.row_number().over(ranked)).where(F.col("__rank") == 1).drop("__rank")


def in_turn() -> list[Column]:
    """The order in which the rows of one key were read."""
    return [turn_or_first(), F.col(ORDER)]


def turn_or_first(turn: Column | None = None) -> Column:
    """A turn to be compared: where there is none, it is before all others."""
    first = F.struct(F.lit(_FIRST).alias("batch"), F.lit(_FIRST).alias("reached_ms"))
    return F.coalesce(F.col(TURN) if turn is None else turn, first)


def step(name: Column, first: Column, second: Column) -> Column:
    """One step of an order: a place in the log, or what tells rows of one place apart."""
    return F.struct(
        name.cast("string").alias("topic"), first.cast("long").alias("partition"), second.cast("long").alias("offset")
    )


def at_place() -> Column:
    """The order of a record that comes from the log itself."""
    return F.array(step(*(F.col(name) for name in PLACE)))


def at_time() -> Column:
    """The beginning of an order by event time: before all places of the log."""
    return F.array(step(F.lit(""), F.col(TIME), F.lit(0)))


def of_window(key: Column, start: Column, end: Column) -> Column:
    """The order of a window's result: by start, end and key, before all records. -1: the key is no topic."""
    return F.array(step(F.lit(""), start, end), step(key, F.lit(-1), F.lit(0)))


def window_end(order: Column) -> Column:
    """The end of the window that the result with this ``order`` is of, also where the row has it no more."""
    return order.at(0).part("offset")


def is_place(one: Column) -> Column:
    """Whether a step of an order is the place of a record in the log."""
    return (one.part("topic") != "") & (one.part("partition") >= 0)


def after(order: Column, index: Column) -> Column:
    """``order``, and within it ``index``."""
    return F.list_of_all(order, F.array(step(F.lit(""), index, F.lit(0))))


def origin() -> Column:
    """The places in the log that made a row: ``orders-0@17+payments-2@5``; null for a window's result."""
    places = F.filtered(F.col(ORDER), is_place)
    texts = F.mapped(
        places, lambda one: F.concat(one.part("topic"), "-", one.part("partition"), "@", one.part("offset"))
    )
    return F.when(F.size(texts) > 0, F.joined_texts(texts, "+"))


def derived(
    frame: Frame, time: Column, order: Column, is_null: Column | None = None, turn: Column | None = None
) -> Frame:
    """``frame`` with the ``META`` of rows that no longer lie in the log themselves."""
    nowhere = {TOPIC: "string", PARTITION: "int", OFFSET: "long", CARRIED: "long", REACHED: "long"}
    return frame.with_columns(
        {
            **{name: F.lit(None).cast(kind) for name, kind in nowhere.items()},
            TURN: F.lit(None).cast(TURN_TYPE) if turn is None else turn,
            TIME: time,
            ORDER: order,
            IS_NULL: F.lit(False) if is_null is None else is_null,
            SUPERSEDED: F.lit(False),
        }
    )


def shaped(frame: Frame, fields: Mapping[str, FieldType], *further: str) -> Frame:
    """``fields`` in their declared types, ``META``, and ``further`` columns; a field that is missing is null."""
    columns = [
        (named(name) if name in frame.columns else F.lit(None)).cast(spark_type(kind)).alias(name)
        for name, kind in fields.items()
    ]
    return frame.select(*columns, *META, *further)


def refused(judging: Sequence[tuple[Frame, Column, Column]], above: Sequence[Frame] = ()) -> Frame | None:
    """The places of records that do not advance the stream time of an operator: those without the key that it needs.

    ``judging`` has of each input the rows, whether one lacks the key, and whether one is judged; ``above`` the places
    that operators further up refused. Of the rows that a flat-map made of one record, one that is judged is enough.
    None where there are no such records; so the rows are read here.
    """
    rows = [(frame.where(F.col(OFFSET).is_not_null()), lacks, judged) for frame, lacks, judged in judging]
    said = [frame.where(lacks).select(*PLACE) for frame, lacks, _ in rows]
    lacking = once(union_of([*said, *(frame.select(*PLACE) for frame in above)]))
    if lacking.is_empty():
        return None
    taken = union_of([frame.where(judged).select(*PLACE) for frame, _, judged in rows])
    found = lacking.distinct().join(taken, list(PLACE), "left_anti")
    return once(found.select(*PLACE, F.lit(True).alias("__refused")))


def advancing(entries: Frame, without: Frame | None) -> Frame:
    """The ``entries`` that are not among the places ``without``."""
    return entries if without is None else entries.join(without, list(PLACE), "left_anti")


def stream_times(
    entries: Frame, without: Frame | None, stood: Mapping[tuple[str, int], int], *, before: bool = False
) -> Frame:
    """Stream time at every place: the largest event time of the partition up to it, passing over ``without``.

    The record itself counts, unless ``before`` asks for the stream time that it found. ``stood`` has what partitions
    had reached before the first of ``entries``. Null: nothing advanced it yet.
    """
    so_far = Window.of(TOPIC, PARTITION).sorted(OFFSET).ending(ROWS_BEFORE if before else ROWS_UP_TO)
    time = F.col(TIME)
    if without is not None:
        entries, time = entries.join(without, list(PLACE), "left"), F.when(F.col("__refused").is_null(), time)
    return entries.select(*PLACE, _since_it_stood(F.largest(time).over(so_far), stood).alias(STREAM_TIME))


def times_of_rows(topics: Collection[str], stood: Mapping[tuple[str, int], int]) -> Column:
    """The same, as each row of ``topics`` says itself: where every good record advances it. Others have none."""
    return F.when(F.col(TOPIC).is_in(topics), _since_it_stood(F.col(REACHED), stood))


def _since_it_stood(reached: Column, stood: Mapping[tuple[str, int], int]) -> Column:
    if not stood:
        return reached
    known = {f"{topic}-{partition}": time_ms for (topic, partition), time_ms in stood.items()}
    partition = F.concat(F.col(TOPIC), "-", F.col(PARTITION))
    return F.greatest(reached, F.map_of(known).value_at(partition))


def judged(frame: Frame, times: Frame | Column | None) -> Frame:
    """``frame`` with ``STREAM_TIME``: what a row carries, else ``times`` of it, or at its place.

    It is null for a derived row and, with ``times`` None, for all: nothing is late. Otherwise ``PLACE`` comes first, in
    either case: the columns of what is carried are known by their order.
    """
    if times is None:
        return frame.with_column(STREAM_TIME, F.lit(None).cast("long"))
    if isinstance(times, Frame):
        timed = frame.join(times, list(PLACE), "left")
    else:
        others = [named(name) for name in frame.columns if name not in PLACE]
        timed = frame.select(*PLACE, *others, times.alias(STREAM_TIME))
    return timed.with_column(STREAM_TIME, F.coalesce(CARRIED, STREAM_TIME))


def held_back(timed: Frame) -> Frame:
    """Judged rows as they go on from an operator that holds rows back: they are judged alike further down."""
    return timed.with_column(CARRIED, F.col(STREAM_TIME)).drop(STREAM_TIME)
