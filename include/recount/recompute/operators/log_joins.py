"""Joins of two streams and of two tables: what the rows of both sides make together."""

from __future__ import annotations

from pyspark.sql.types import StructType

from recount.declare.operators.joins import Join, StreamStreamJoin, TableTableJoin
from recount.recompute.decoding import IS_NULL
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, Window, named
from recount.recompute.frames.duck_frames import Frame, How, once, union_of
from recount.recompute.operators.carried import IS_NEW, Carrying
from recount.recompute.operators.frontiers import ALL_DUE, LEFT_IN
from recount.recompute.operators.log_rows import ORDER, PLACE, TIME, Rows, derived, in_turn, last_of
from recount.recompute.rules.time_rules import has_versions, waits_ms
from recount.recompute.spark_columns import spark_type

LEFT, RIGHT = "__left", "__right"
READ_IN = "__read_in"
"""The number of the batch in which a record came to the join."""
_PARTNER = "__partner"
_TOUCHED = "__touched"
_LONGEST_MS = 2**45
"""1,115 years."""


def of(side: str, name: str) -> Column:
    """The column ``name`` of a ``side``."""
    return F.col(side).part(name)


def whole(frame: Frame, side: str) -> Frame:
    """Each row as one column, so that both sides can have columns of one name."""
    return frame.whole(side)


def joined_fields(node: Join, key: Column | None = None) -> list[Column]:
    """The fields of both sides, under ``key``: by default that of the side that is there.

    What both have is the left's, or where that is missing the right's.
    """
    columns = {
        name: F.when(of(LEFT, TIME).is_not_null(), _of_either(node, name)).otherwise(_of_right(node, name))
        for name in node.fields
    }
    columns[node.key] = _either_key(node) if key is None else key
    return [value.cast(spark_type(node.fields[name])).alias(name) for name, value in columns.items()]


def _either_key(node: Join) -> Column:
    return F.coalesce(of(LEFT, node.left.key), of(RIGHT, node.right.key))


def _of_either(node: Join, name: str) -> Column:
    return of(LEFT, name) if name in node.left.fields else of(RIGHT, name)


def _of_right(node: Join, name: str) -> Column:
    return of(RIGHT, name) if name in node.right.fields else F.lit(None)


def keeps_alone(node: StreamStreamJoin, side: int) -> bool:
    """Whether a record of input number ``side`` leaves alone if it finds no partner."""
    return node.kind == "outer" or (node.kind == "left" and side == 0)


def lateness_bound_ms(node: StreamStreamJoin, side: int) -> int:
    """A record is late when its time is more than this behind the stream time of its partition."""
    return (node.after_ms, node.before_ms)[side] + node.grace_ms


def paired(
    node: StreamStreamJoin,
    left: Frame,
    right: Frame,
    *,
    alone_before_ms: int,
    alone_since_ms: int,
    left_before: Frame | None = None,
) -> Rows:
    """All pairs of records on time, and those that found no partner: a null key finds none.

    A record with a key leaves alone only if its time is before ``alone_before_ms``: later ones can still find one.
    Rows that are all made of records that are not new have left before, those alone if before ``alone_since_ms``.
    Those of ``left_before`` have a partner, and left alone all the same (``left_before_partners``).

    Records meet by key and slice of time (``_meeting``), so that what is compared, and held, follows the records that
    are near each other in time, however many a key has.
    """
    met = _meeting(node, left, right, "inner" if node.kind == "inner" else "left")
    if node.kind == "outer":
        nothing = F.lit(None).cast(met.schema[LEFT].dataType).alias(LEFT)
        lone = _meeting(node, left, right, "left_anti").select(nothing, RIGHT)
        met = met.union(lone)
    if left_before is not None:
        met = met.union(left_before.select(LEFT, RIGHT))
    key, later = _either_key(node), _later_ms()
    both = of(LEFT, TIME).is_not_null() & of(RIGHT, TIME).is_not_null()
    is_new = F.coalesce(of(LEFT, IS_NEW), F.lit(False)) | F.coalesce(of(RIGHT, IS_NEW), F.lit(False))
    alone = (later < F.lit(alone_before_ms)) & (is_new | (later >= F.lit(alone_since_ms)))
    return rows_of(node, met.where(((both | key.is_null()) & is_new) | (~both & key.is_not_null() & alone)))


def rows_of(node: StreamStreamJoin, met: Frame) -> Rows:
    """The rows that leave ``node`` of what has ``met``: a ``LEFT``, a ``RIGHT``, or both."""
    kind = met.schema[LEFT].dataType
    assert isinstance(kind, StructType)
    nothing = F.array().cast(kind[ORDER].dataType)
    order = F.list_of_all(*(F.coalesce(of(side, ORDER), nothing) for side in (LEFT, RIGHT)))
    made = met.select(*joined_fields(node), _later_ms().alias("__later_ms"), order.alias("__both"))
    return Rows(node=node, frame=derived(made, F.col("__later_ms"), F.col("__both")).drop("__later_ms", "__both"))


def _later_ms() -> Column:
    return F.greatest(of(LEFT, TIME), of(RIGHT, TIME))


def left_before_partners(node: StreamStreamJoin, left: Frame, right: Frame) -> Frame:
    """The records all of whose partners were read (``READ_IN``) after they had left alone (``LEFT_IN``).

    Each is the ``LEFT`` or ``RIGHT`` of a row of its own, beside it the place of the first of its partners.
    """
    pairs = _meeting(node, left, right, "inner")
    found = []
    for side, other in ((LEFT, RIGHT), (RIGHT, LEFT))[: 1 + (node.kind == "outer")]:
        of_record = pairs.group_by(of(side, ORDER).alias(ORDER)).agg(
            F.first_of(side).alias(side),
            F.smallest(F.struct(*(of(other, name).alias(name) for name in (READ_IN, *PLACE, TIME)))).alias(_PARTNER),
        )
        too_late = of_record.where(of(_PARTNER, READ_IN) > of(side, LEFT_IN))
        nothing = F.lit(None).cast(pairs.schema[other].dataType)
        found.append(too_late.with_column(other, nothing).drop(ORDER))
    made = union_of(found)
    kept = {
        side: [name for name in rows.columns if name not in (READ_IN, LEFT_IN)]
        for side, rows in ((LEFT, left), (RIGHT, right))
    }
    sides = (
        F.when(F.col(side).is_not_null(), F.struct(*(of(side, name).alias(name) for name in names))).alias(side)
        for side, names in kept.items()
    )
    return made.select(*sides, _PARTNER)


def taken_back(node: StreamStreamJoin, left: Frame, right: Frame, *, alone_before_ms: int) -> Frame:
    """The carried records that had left alone before ``alone_before_ms``, and whose first partner is new: the same."""
    near = F.col(TIME) <= F.lit(min(alone_before_ms + max(node.before_ms, node.after_ms), ALL_DUE))
    had_left = ~F.col(IS_NEW) & (F.col(TIME) < F.lit(alone_before_ms))
    numbers = {READ_IN: F.when(F.col(IS_NEW), 0).otherwise(-1), LEFT_IN: F.when(had_left, -1).otherwise(0)}
    return left_before_partners(node, *(side.where(near).with_columns(numbers) for side in (left, right)))


def first_partners(found: Frame) -> Frame:
    """Places and times of the partners of ``left_before_partners``."""
    return found.select(*(of(_PARTNER, name).alias(name) for name in (*PLACE, TIME)))


def partners_read_too_late(node: StreamStreamJoin, left_before: Frame) -> Frame:
    """The partners of ``left_before_partners``, each with the record that had left (``UNREAD_SCHEMA``).

    A result of windows has no place: its topic is empty, its partition and its offset are -1.
    """
    nowhere = dict(zip(PLACE, (F.lit(""), F.lit(-1), F.lit(-1)), strict=True))
    partner = [F.coalesce(of(_PARTNER, name), other).alias(name.strip("_")) for name, other in nowhere.items()]
    alone = [
        F.coalesce(of(LEFT, name), of(RIGHT, name), other).alias(f"event_{name.strip('_')}")
        for name, other in nowhere.items()
    ]
    return left_before.select(
        *partner,
        of(_PARTNER, TIME).alias("timestamp_ms"),
        *alone,
        F.coalesce(of(LEFT, TIME), of(RIGHT, TIME)).alias("event_ms"),
        _either_key(node).cast("string").alias("key"),
    )


def _meeting(node: StreamStreamJoin, left: Frame, right: Frame, how: How) -> Frame:
    """Both sides joined by key and time: ``inner``, ``left``, or as ``left_anti`` the right records that meet nothing.

    Time is cut into slices as long as the interval ``[-before, after]``. The side that is kept whole is in the
    slice of its time; a record of the other is there once for each of the one or two slices in which it can be
    met. So each pair meets in one slice, once. With ``before`` 2, ``after`` 3, slices of 6::

        slice     0           6           12
        l at 4    ····4·
        r at 7    ····▪▪      ▪▪····        met by an l from 4 to 9: there in slice 0 and in slice 6
    """
    length_ms = node.before_ms + node.after_ms + 1
    kept, other, back_ms, ahead_ms = (LEFT, RIGHT, node.after_ms, node.before_ms)
    if how == "left_anti":
        kept, other, back_ms, ahead_ms = (RIGHT, LEFT, node.before_ms, node.after_ms)
    sides = {LEFT: whole(left, LEFT), RIGHT: whole(right, RIGHT)}
    first, last = (_stretch(of(other, TIME) + F.lit(ms), length_ms) for ms in (-back_ms, ahead_ms))
    in_either = F.each_of(F.distinct(F.array(first, last)))
    near = sides[other].select(other, in_either.alias("__near"))
    placed = sides[kept].with_column("__stretch", _stretch(of(kept, TIME), length_ms))
    apart = of(RIGHT, TIME) - of(LEFT, TIME)
    fits = (
        (of(LEFT, node.left.key) == of(RIGHT, node.right.key))
        & (F.col("__stretch") == F.col("__near"))
        & (apart >= F.lit(-node.before_ms))
        & (apart <= F.lit(node.after_ms))
    )
    return placed.join(near, fits, how).drop("__stretch", "__near")


def _stretch(time: Column, length_ms: int) -> Column:
    """The start of the slice of ``time``; all time is one slice where an interval is longer than time can go on."""
    return F.lit(0) if length_ms > _LONGEST_MS else time - F.remainder(time, length_ms)


def reach_ms(node: StreamStreamJoin) -> int:
    """How far behind the frontier a record is at most that can still find a partner, or whose partners can."""
    return waits_ms(node) + max(node.before_ms, node.after_ms)


def table_joined(node: TableTableJoin, left: Rows, right: Rows, *, carrying: Carrying) -> Rows:
    """One row for each key of either table; one that the join leaves out is deleted, which is no row at all.

    Its time is the later of the rows that are there: that of a tombstone depends on which side was read first.
    """
    sides = [whole(_carried_state(node, rows, side, carrying), side) for rows, side in ((left, LEFT), (right, RIGHT))]
    keys = of(LEFT, node.left.key) == of(RIGHT, node.right.key)
    both = sides[0].join(sides[1], keys, "full")
    both = both.where(F.coalesce(of(LEFT, _TOUCHED), F.lit(False)) | F.coalesce(of(RIGHT, _TOUCHED), F.lit(False)))
    there = {side: F.coalesce(~of(side, IS_NULL), F.lit(False)) for side in (LEFT, RIGHT)}
    exists = {"inner": there[LEFT] & there[RIGHT], "left": there[LEFT], "outer": there[LEFT] | there[RIGHT]}[node.kind]
    times = [F.when(is_there | ~exists, of(side, TIME)) for side, is_there in there.items()]
    known = both.select(
        *(F.when(is_there, F.col(side)).alias(side) for side, is_there in there.items()),
        _either_key(node).alias("__either_key"),
        F.greatest(*times).alias("__later_ms"),
        (~exists).alias("__deleted"),
        F.coalesce(of(LEFT, ORDER), of(RIGHT, ORDER)).alias("__cause"),
    )
    made = known.select(*joined_fields(node, F.col("__either_key")), "__later_ms", "__deleted", "__cause")
    frame = derived(made, F.col("__later_ms"), F.col("__cause"), F.col("__deleted"))
    return Rows(node=node, frame=frame.drop("__later_ms", "__deleted", "__cause"), holds="latest")


def _carried_state(node: TableTableJoin, table: Rows, side: str, carrying: Carrying) -> Frame:
    """``state`` of ``table``, what was carried included; ``_TOUCHED`` are the keys of which something came."""
    what = f"table{side}".replace("__", "-")
    known = carrying.with_carried(node, what, table.frame)
    of_key = Window.of(named(table.node.key))
    touched = once(state(table, known.with_column(_TOUCHED, F.largest(IS_NEW).over(of_key))))
    carrying.keep(node, what, lambda: touched)
    return touched


def state(table: Rows, known: Frame) -> Frame:
    """The row of each key that counts, of the rows of ``table`` that are ``known``, new or carried (``IS_NEW``).

    It is the last that was read; of a versioned table the youngest.
    """
    newest = [F.col(TIME), F.col(ORDER)] if has_versions(table.node) else [F.col(IS_NEW), *in_turn()]
    return last_of(known, table.identity, *newest)
